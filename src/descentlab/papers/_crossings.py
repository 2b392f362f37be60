"""Crossings: a paper's task under the optimisers and attention kernels of other papers.

A paper says what of the others fits its task, in its own letters:

    CROSSING = Crossing(
        "signal-noise classification", Preset(...), rate=("eta",),
        optimizers={"gd": Variant({"optimizer": "gd"}, spaced(0.1, 100, 7)), ...},
        kernels={"softmax": {}},
        learns=Goal("loss below a tenth of its start", share_of_start("training_loss"), below=0.1),
        recovers=Goal("test error below 5 %", lambda run: run["test_error"], below=0.05),
        own=("sign", "softmax"),
        unfit={"gaussian": "why not"},
    )

The atlas trains every pair of an optimiser and a kernel that fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from descentlab.engine import Settings
from descentlab.judging import first_step

OPTIMIZER_WORDS = {"gd": "GD", "sign": "SignGD", "adam": "Adam", "proximal": "Proximal"}
KERNEL_WORDS = {"softmax": "softmax", "gaussian": "Gaussian", "linear": "linear"}
FEWEST_SEEDS = 2
# Stands for what a seed that diverged has reached: nothing is worse, and it is a number.
WORST = 1e300


@dataclass(frozen=True)
class Goal:
    """A quantity along training, one number per seed and step, and the value that it has to reach."""

    words: str
    quantity: Callable[[xr.Dataset], xr.DataArray]
    below: float | None = None
    above: float | None = None

    def __post_init__(self) -> None:
        if (self.below is None) == (self.above is None):
            raise ValueError(f"A goal takes one of below and above, got {self.below} and {self.above}.")

    def series(self, run: xr.Dataset) -> xr.DataArray:
        """The quantity; as bad as can be in seeds that diverged."""
        found = self.quantity(run).transpose("seed", "step").astype(float)
        worst = WORST if self.below is not None else -WORST
        return found.where((run["diverged_at"] < 0) & np.isfinite(found), worst)

    def told(self, values: np.ndarray) -> np.ndarray:
        """Values with those of seeds that diverged as infinite."""
        return np.where(np.abs(values) < WORST, values, np.copysign(math.inf, values))

    def lacks(self, values: Any) -> np.ndarray:
        """How far values are from the goal; at most 0 where they have reached it."""
        values = np.asarray(values, float)
        return values - self.below if self.below is not None else float(self.above or 0.0) - values

    def first_steps(self, series: xr.DataArray) -> np.ndarray:
        """The first recorded step at which each seed has reached the goal; inf where none has."""
        return first_step(series, below=self.below, above=self.above)


def share_of_start(name: str) -> Callable[[xr.Dataset], xr.DataArray]:
    """A loss over its own first record."""
    return lambda run: run[name] / run[name].isel(step=0, drop=True)


@dataclass(frozen=True)
class Variant:
    """An optimiser as overrides of the preset, and the rates it is tried with."""

    settings: Mapping[str, Any]
    rates: Sequence[float]


def spaced(first: float, last: float, count: int) -> tuple[float, ...]:
    """Rates from first to last, evenly on a logarithmic scale, to three digits.

    >>> spaced(0.1, 10, 5)
    (0.1, 0.316, 1.0, 3.16, 10.0)
    """
    return tuple(float(f"{x:.3g}") for x in np.geomspace(first, last, count))


@dataclass(frozen=True)
class Crossing:
    """A task of a paper with what fits it; `unfit` says why something does not: a kernel, or a pair.

    `rate` names the fields that are the learning rate, `own` the optimiser and kernel of the paper itself.
    """

    task: str
    preset: Settings
    rate: tuple[str, ...]
    optimizers: Mapping[str, Variant]
    kernels: Mapping[str, Mapping[str, Any]]
    learns: Goal
    recovers: Goal
    own: tuple[str, str]
    unfit: Mapping[str | tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, known, given in (
            ("optimizers", OPTIMIZER_WORDS, self.optimizers),
            ("kernels", KERNEL_WORDS, self.kernels),
        ):
            if strange := [name for name in given if name not in known]:
                raise ValueError(f"{kind} of {self.task!r} takes {', '.join(known)}, got {strange[0]}.")
        for optimizer, kernel in ((o, k) for o in OPTIMIZER_WORDS for k in KERNEL_WORDS):
            if not self.fits(optimizer, kernel):
                self.why_not(optimizer, kernel)
        if not self.fits(*self.own):
            raise ValueError(f"own of {self.task!r} takes a pair that fits, got {self.own}.")

    def fits(self, optimizer: str, kernel: str) -> bool:
        """Whether the task can be trained so."""
        return (
            optimizer in self.optimizers and kernel in self.kernels and (optimizer, kernel) not in self.unfit
        )

    def why_not(self, optimizer: str, kernel: str) -> str:
        """Why it cannot."""
        for name in (kernel, optimizer, (optimizer, kernel)):
            if name in self.unfit:
                return self.unfit[name]
        raise ValueError(f"{self.task!r} must say why {optimizer} with {kernel} does not fit.")

    def runs(self, optimizer: str, kernel: str) -> dict[float, Settings]:
        """The presets of a cell by rate."""
        variant = self.optimizers[optimizer]
        base = self.preset.replace({**self.kernels[kernel], **variant.settings})
        return {rate: base.replace(dict.fromkeys(self.rate, rate)) for rate in variant.rates}
