"""Grids of sizes: the runs of a claim that ranges over a size, and the settings of stored runs.

A claim over sizes declares a `Grid`: one setting, its values, and what else changes with it. The measure gets
the dataset of each size and reads off it one number per seed, such as a time or a prefactor. `size_exponent`
is the exponent of these numbers in the size. List the sizes in the direction of the theorem's regime.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import xarray as xr


@dataclass(frozen=True)
class Grid:
    """Runs of a preset at several sizes: `cells` has the overrides of each run, `settings` those of all.

    An override may be a function of the preset's value, such as `times(2)`.

    >>> Grid("D", [{"D": 36}, {"D": 72}], {"reduced": True}).runs["D_1"]
    {'reduced': True, 'D': 72}
    """

    over: str
    cells: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def runs(self) -> dict[str, dict[str, Any]]:
        """The runs by name, as a claim or a figure takes them."""
        return {f"{self.over}_{i}": {**self.settings, **cell} for i, cell in enumerate(self.cells)}


def times(factor: float) -> Callable[[Any], Any]:
    """The override that multiplies a preset's value by a factor; whole numbers stay whole and positive.

    >>> times(0.4)(10), times(0.5)(0.3)
    (4, 0.15)
    """
    return lambda value: max(1, round(value * factor)) if isinstance(value, int) else value * factor


def setting(run: xr.Dataset, name: str) -> Any:
    """A setting of a stored run."""
    return json.loads(run.attrs["about"])["settings"][name]
