"""The files of a sweep that people look at: tables, and a diagram of each quantity."""

from __future__ import annotations

from pathlib import Path

from descentlab.drawing import draw, save
from descentlab.sweeping._gather import scalars, write
from descentlab.sweeping._sweep import Sweep


def draw_all(sweep: Sweep, out: Path) -> list[Path]:
    """Writes the tables of a sweep, and a diagram of each of its quantities, into a folder."""
    write(sweep.grids, sweep.exponents, out)
    paths = []
    for grid, data in sweep.grids.items():
        for name, series in scalars(data).items():
            found = sweep.exponents.get(str(name), {})
            powers = {size: fit for size, fit in found.items() if fit.power_law is not False}
            fits = {size.removeprefix(f"{grid}."): fit.value for size, fit in powers.items()}
            if (figure := draw(series, fits)) is not None:
                paths.append(out / f"{grid + '_' if grid else ''}{name}.png")
                save(figure, paths[-1])
    return paths
