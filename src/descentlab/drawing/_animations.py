"""What moves: matrices along training, and surfaces to turn around. A report shows them, paper cannot.

A drawing of a paper may come with either; both are pure functions of stored runs, like the drawing.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import xarray as xr

# A page holds one byte for an entry, and so many moments: what is left out is between two that are shown.
LEVELS, NONE = 254, 255
MOST_MOMENTS = 48


@dataclass(frozen=True)
class Movie:
    """Matrices at the same steps, each with dimensions step and two of its own (rows, columns)."""

    matrices: Mapping[str, xr.DataArray]
    colours: str = "RdBu_r"
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        steps = [matrix["step"].values for matrix in self.matrices.values()]
        for name, matrix in self.matrices.items():
            if matrix.ndim != 3 or matrix.dims[0] != "step":
                raise ValueError(f"{name} must have dimensions step, rows and columns, got {matrix.dims}.")
            if not np.array_equal(matrix["step"].values, steps[0]):
                raise ValueError(f"{name} must have the steps of the others.")

    def moments(self) -> np.ndarray:
        """The records that are shown, evenly chosen among all, the first and the last among them."""
        (count,) = {matrix.sizes["step"] for matrix in self.matrices.values()}
        return np.unique(np.linspace(0, count - 1, min(count, MOST_MOMENTS)).round().astype(int))

    def as_json(self) -> dict[str, Any]:
        """Steps, and for each matrix its bounds and its entries in bytes between them."""
        chosen = self.moments()
        first = next(iter(self.matrices.values()))
        panels = [
            _panel(name, matrix.isel(step=chosen), self.low, self.high)
            for name, matrix in self.matrices.items()
        ]
        return {
            "steps": [int(step) for step in first["step"].values[chosen]], "panels": panels,
            "colours": colour_scale(self.colours),
        }  # fmt: skip


def _panel(name: str, matrix: xr.DataArray, low: float | None, high: float | None) -> dict[str, Any]:
    values = matrix.values.astype(float)
    size = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
    low, high = -size if low is None else low, size if high is None else high
    level = np.clip(np.rint(LEVELS * (values - low) / (high - low)), 0, LEVELS)
    entries = np.where(np.isnan(level), NONE, level).astype(np.uint8)
    return {
        "name": name, "rows": matrix.shape[1], "columns": matrix.shape[2], "low": low, "high": high,
        "row": str(matrix.dims[1]), "column": str(matrix.dims[2]),
        "entries": base64.b64encode(entries.tobytes()).decode(),
    }  # fmt: skip


@dataclass(frozen=True)
class Surface:
    """A quantity over a plane, `heights` by rows (x) and columns (y)."""

    name: str
    x: np.ndarray
    y: np.ndarray
    heights: np.ndarray
    x_name: str
    y_name: str

    def rows(self) -> list[tuple[Any, ...]]:
        """Every point: name, x, y and height, with all digits."""
        return [
            (self.name, x, y, float(self.heights[i, j]))
            for i, x in enumerate(self.x)
            for j, y in enumerate(self.y)
        ]

    def as_json(self) -> dict[str, Any]:
        """Four digits of every height."""
        heights = [[float(f"{h:.4g}") for h in row] for row in np.asarray(self.heights, float).T]
        return {
            "name": self.name, "x": [float(v) for v in self.x], "y": [float(v) for v in self.y],
            "heights": heights, "x_name": self.x_name, "y_name": self.y_name,
            "colours": colour_scale("viridis"),
        }  # fmt: skip


def colour_scale(name: str, count: int = 17) -> list[list[Any]]:
    """A colour map of matplotlib as a page takes it.

    >>> colour_scale("gray", 2)
    [[0.0, 'rgb(0,0,0)'], [1.0, 'rgb(255,255,255)']]
    """
    shades = matplotlib.colormaps[name](np.linspace(0, 1, count))
    return [
        [round(i / (count - 1), 4), f"rgb({','.join(str(round(255 * c)) for c in shade[:3])})"]
        for i, shade in enumerate(shades)
    ]
