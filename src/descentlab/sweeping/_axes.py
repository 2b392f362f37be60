"""Axes: grids of settings, as they are written on the command line or in Python, and their cells.

An axis is a `Grid`; several make a product. `axis` reads NAME=V1,V2,..., `cells` gives the presets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from descentlab.engine import Settings
from descentlab.errors import SettingError
from descentlab.judging import Grid
from descentlab.papers import Paper

SPACINGS = {"linspace": np.linspace, "logspace": np.geomspace}
MOST_CELLS = 100_000  # of a grid; each is a folder of the store


class Spaced(float):
    """A value of linspace or logspace, which a setting of whole numbers rounds."""


def axis(words: str) -> Grid:
    """One axis of a grid as it is written on the command line.

    Settings that move together are joined by commas, their values by colons.

    >>> axis("s=10,20").cells
    [{'s': '10'}, {'s': '20'}]
    >>> axis("eta=logspace(1e-3,1e-1,3)").cells
    [{'eta': 0.001}, {'eta': 0.01}, {'eta': 0.1}]
    >>> axis("s,m_k=10:50,20:100").cells
    [{'s': '10', 'm_k': '50'}, {'s': '20', 'm_k': '100'}]
    """
    left, equals, right = words.partition("=")
    names = [name.strip() for name in left.split(",")]
    if not (all(names) and equals and right.strip()):
        raise SettingError(f"over takes NAME=V1,V2,... or NAME=logspace(FIRST,LAST,COUNT), got {words!r}.")
    if spaced := re.fullmatch(r"\s*([a-z]+)\((.*)\)\s*", right):
        values = [(value,) for value in _spaced(words, spaced[1], spaced[2])]
    else:
        parts = [value.split(":") if len(names) > 1 else [value] for value in right.split(",")]
        values = [tuple(part.strip() for part in value) for value in parts]
    _once(names)
    for value in values:
        if "" in value:
            raise SettingError(f"over takes values separated by commas, got an empty one in {words!r}.")
        if len(value) != len(names):
            raise SettingError(f"over takes {len(names)} values for {left}, joined by colons, got {words!r}.")
    return Grid("_".join(names), [dict(zip(names, value, strict=True)) for value in values])


def _spaced(words: str, kind: str, arguments: str) -> list[Spaced]:
    """The values of linspace(first, last, count) or logspace(first, last, count)."""
    try:
        first, last, count = arguments.split(",")
        ends, number = (float(first), float(last)), int(count)
        sound = np.isfinite(ends).all() and (kind == "linspace" or min(ends) > 0)
        if kind not in SPACINGS or number < 1 or not sound:
            raise ValueError
    except ValueError:
        raise SettingError(
            "over takes linspace(FIRST,LAST,COUNT) or logspace(FIRST,LAST,COUNT), the latter of positive "
            f"numbers, got {words!r}."
        ) from None
    _few(number, words)
    return [Spaced(f"{x:.12g}") for x in SPACINGS[kind](*ends, number)]


def _few(count: int, words: str) -> None:
    if count > MOST_CELLS:
        raise SettingError(f"a grid has at most {MOST_CELLS:,} cells, got {count:,} by {words}.")


def _once(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SettingError(f"over takes every setting once, got {name} {names.count(name)} times.")


def cells(base: Settings, over: Sequence[Grid]) -> np.ndarray:
    """The presets of a product of axes, an array with a dimension for each."""
    _once([name for grid in over for name in dict.fromkeys(k for cell in grid.cells for k in cell)])
    for grid in over:
        if not grid.cells:
            raise SettingError(f"over takes one value at least, got none of {grid.over}.")
    _few(math.prod(len(grid.cells) for grid in over), " x ".join(grid.over for grid in over))
    whole = {f.name for f in fields(base) if f.type is int}

    def typed(overrides: dict[str, Any]) -> dict[str, Any]:
        return {
            k: (round(v) if k in whole else float(v)) if isinstance(v, Spaced) else v
            for k, v in overrides.items()
        }

    found = np.empty([len(grid.cells) for grid in over], dtype=object)
    for index in np.ndindex(*found.shape):
        overrides: dict[str, Any] = {}
        for grid, i in zip(over, index, strict=True):
            overrides |= typed({**grid.settings, **grid.cells[i]})
        try:
            found[index] = base.replace(overrides)
        except SettingError as error:
            where = " ".join(f"{k}={v}" for k, v in overrides.items() if not callable(v))
            raise SettingError(f"cell {where}: {error}") from None
    for number, grid in enumerate(over):
        along = np.moveaxis(found, number, 0).reshape(len(grid.cells), -1)[:, 0]
        if len(set(along)) < len(along):
            raise SettingError(
                f"over takes different values, got some of {grid.over} twice (rounded, perhaps)."
            )
    return found


def axes_of(paper: Paper, over: Sequence[Grid | str] | Mapping[str, Sequence[Grid]]) -> dict[str, list[Grid]]:
    """The axes of each grid of a sweep."""
    axes = {
        name: [axis(one) if isinstance(one, str) else one for one in own]
        for name, own in (over if isinstance(over, Mapping) else {"": over}).items()
    }
    if not axes or not all(axes.values()):
        raise SettingError(
            "over takes at least one NAME=V1,V2,..., got none; the studies of "
            f"{paper.name}, which bring their own, are {', '.join(paper.studies) or '(none)'}."
        )
    return axes
