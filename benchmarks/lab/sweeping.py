"""The laboratory's side of a sweep: `sweep` itself, with a store, on one core."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from instances import teacher

from descentlab.papers import load
from descentlab.running import Here
from descentlab.store import Store
from descentlab.sweeping import cells, sweep
from descentlab.sweeping._axes import axis
from workloads import Workload


class Sweep:
    """All cells; those at the corners of the grid are what the reference trains."""

    def __init__(self, work: Workload, folder: Path) -> None:
        self.paper, self.work = load(work.paper), work
        self.base = self.paper.preset(work.preset).replace(work.settings, steps=work.steps)
        self.over = [axis(words) for words in work.over]
        grid = cells(self.base, self.over)
        self.seed_steps = float(grid.size * work.steps)
        self.corners = np.ix_(*([0, -1] for _ in grid.shape))
        self.record = np.asarray(self.paper.records(self.base))
        found = [teacher(p, work.steps) for p in grid[self.corners].ravel()]
        arrays = {name: np.stack([np.asarray(one[name]) for one in found]) for name in found[0]}
        np.savez(
            folder / "instance.npz", allow_pickle=False, record=self.record, checked=self.record, **arrays
        )

    def prepare(self) -> dict[str, Any]:
        """Compiling is what the first sweep takes longer than the second."""
        took = []
        for _ in range(2):
            began = time.perf_counter()
            self.run(True, None)
            took.append(time.perf_counter() - began)
        return {"compile_seconds": took[0] - took[1]}

    def check(self, out: Path) -> None:
        """The cells at the corners."""
        self.run(True, out)

    def run(self, recorded: bool, out: Path | None) -> None:
        """The whole sweep, into a store of its own."""
        with tempfile.TemporaryDirectory() as store:
            found = sweep(self.paper, self.base, self.over, 1, store, Here()).data
        if out:
            dims = [grid.over for grid in self.over]
            values = {
                name: found[name].transpose(*dims, "seed", "step").values[..., 0, :]
                for name in self.work.allowed
            }
            corners = {name: x[self.corners].reshape(-1, len(self.record)).T for name, x in values.items()}
            np.savez(out, record=self.record, **corners)  # type: ignore[arg-type]

    def explain(self) -> dict[str, Any]:
        """Of a step of a cell: the microseconds spent on training, as the store tells, and on all else."""
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            sweep(self.paper, self.base, self.over, 1, folder, Here())
            whole, store = time.perf_counter() - began, Store(folder)
            training = sum((store.manifest(run) or {})["seconds"] for run in store.ids())
        each = 1e6 / self.seed_steps
        parts = {"training": each * training, "store and dataset": each * (whole - training)}
        return {"microseconds": each * whole, "parts": parts}
