"""Scaling: how what is read off runs depends on a size, over a grid of sizes.

A claim that ranges over sizes declares a grid: one setting, its values, and what else moves with it. Its
measure gets the dataset of each size. What is read off a run (a time, a prefactor) becomes one number per
seed and size; `size_exponent` is the slope of their logarithms, with the drift over sub-ranges in the
interval, as for exponents in time (law.py). Sizes are listed in the direction of the theorem's regime.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import xarray as xr


@dataclass(frozen=True)
class Grid:
    """Runs of a preset at several sizes. `cells` are their overrides; `settings` are common to all.

    Overrides may be functions of the preset's own value, so that the grid moves with its base.

    >>> Grid("D", [{"D": 36}, {"D": 72}], {"reduced": True}).runs["D_1"]
    {'reduced': True, 'D': 72}
    """

    over: str
    cells: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> dict[str, dict[str, Any]]:
        """The runs by name, as a claim or a figure takes them."""
        return {f"{self.over}_{i}": {**self.settings, **cell} for i, cell in enumerate(self.cells)}


def times(factor: float) -> Callable[[Any], Any]:
    """A preset's own value times a factor; whole numbers stay whole, and positive.

    >>> times(0.4)(10), times(0.5)(0.3)
    (4, 0.15)
    """
    return lambda value: max(1, round(value * factor)) if isinstance(value, int) else value * factor


def setting(run: xr.Dataset, name: str) -> Any:
    """A setting of a stored run."""
    return json.loads(run.attrs["about"])["settings"][name]
