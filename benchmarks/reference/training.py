"""What every reference is: parameters, batches, a loss that autograd differentiates, and an update."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

WARM_STEPS = 5


class Training:
    """One seed's training. Subclasses say what the loss is, and how parameters move."""

    params: tuple[Tensor, ...]
    runs = 1  # how many runs of all steps it is
    given = False  # whether batches are those of the instance, which both sides see

    def __init__(self, instance: dict[str, np.ndarray], variant: str) -> None:
        raise NotImplementedError

    def begin(self) -> None:
        """Puts the parameters where training starts."""
        raise NotImplementedError

    def batch(self, step: int) -> tuple[Tensor, ...]:
        """What the loss takes beside the parameters: nothing, or the batch of a step."""
        return ()

    def loss(self, *args: Tensor) -> Tensor:
        """The loss of the parameters on a batch."""
        raise NotImplementedError

    def update(self, *args: Tensor) -> None:
        """Moves the parameters along their gradients, in place."""
        raise NotImplementedError

    def observe(self) -> dict[str, Any]:
        """What is recorded."""
        raise NotImplementedError

    def step(self, step: int) -> None:
        """One step."""
        gradients = torch.autograd.grad(self.loss(*self.params, *self.batch(step)), self.params)
        with torch.no_grad():
            self.update(*self.params, *gradients)

    def compile(self) -> None:
        """Has the loss, with its derivative, and the update compiled."""
        self.loss, self.update = torch.compile(self.loss), torch.compile(self.update)

    def run(self, record: np.ndarray, given: bool = False) -> dict[str, np.ndarray]:
        """The records, from the first recorded step, which the start stands for, to the last."""
        self.given = given
        self.begin()
        wanted, rows = set(record.tolist()), []
        for step in range(int(record[0]), int(record[-1]) + 1):
            if step in wanted:
                with torch.no_grad():
                    rows.append(self.observe())
            if step < record[-1]:
                self.step(step)
        return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}


class Run:
    """A training as a side of a benchmark."""

    def __init__(self, training: Training, record: np.ndarray, checked: np.ndarray, compiled: bool) -> None:
        self.training, self.record, self.checked, self.compiled = training, record, checked, compiled
        self.seed_steps = float(training.runs * (record[-1] - record[0]))

    def prepare(self) -> dict[str, Any]:
        """Compiles where that is asked for, and takes a few steps."""
        if self.compiled:
            self.training.compile()
        took = []
        first = int(self.record[0])
        for _ in range(2):
            began = time.perf_counter()
            self.training.run(np.array([first, first + min(WARM_STEPS, int(self.record[-1]) - first)]))
            took.append(time.perf_counter() - began)
        return {"compile_seconds": took[0] - took[1] if self.compiled else 0.0}

    def check(self, out: Path) -> None:
        """The first steps, on the laboratory's batches."""
        np.savez(out, record=self.checked, **self.training.run(self.checked, given=True))

    def run(self, recorded: bool, out: Path | None) -> None:
        """The whole run, with batches of its own."""
        record = self.record if recorded else self.record[[0, -1]]
        found = self.training.run(record)
        if out:
            np.savez(out, record=record, **found)
