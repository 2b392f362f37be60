"""Figures and tables of a paper as HTML, each by itself: one that fails says so and costs no other."""

import base64
import re
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray as xr
from markupsafe import Markup, escape

from descentlab.experiment import Run, datasets
from descentlab.paper import Figure, Paper, Table
from descentlab.plot import save
from descentlab.preset import Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

LARGEST_SVG = 400_000
# Figures are drawn for print, at 9 points; a screen is read from farther away. None gets smaller than drawn.
ENLARGED = 1.4


@dataclass(frozen=True)
class Drawing:
    """A figure as it stands on the page: its picture, or its header and rows, or what went wrong."""

    figure: Figure | Table
    anchor: str
    picture: Markup | None = None
    header: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    error: str = ""


def drawing(
    paper: Paper, figure: Figure | Table, preset: Settings, runs: Mapping[Settings, Run], anchor: str
) -> Drawing:
    """A figure or table drawn from its runs; an error becomes part of the result and a line on stderr."""
    try:
        lacking = [name for name, overrides in figure.runs.items() if preset.replace(overrides) not in runs]
        if lacking:
            raise LookupError(f"no data of run {', '.join(lacking)}")
        data = datasets(figure, preset, runs)
        if isinstance(figure, Table):
            header, rows = figure.rows(**data)
            cells = tuple(tuple(row) for row in rows)
            return Drawing(figure, anchor, header=tuple(str(name) for name in header), rows=cells)
        return Drawing(figure, anchor, picture=_drawn(figure, data, anchor))
    except Exception as error:
        # A paper's drawing may raise anything, and the verdicts must still reach the reader.
        print(f"{paper.name}: {figure.name} could not be drawn.", file=sys.stderr)
        traceback.print_exc()
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return Drawing(figure, anchor, error=what)


def _drawn(figure: Figure, data: Mapping[str, xr.Dataset], anchor: str) -> Markup:
    canvas = figure.draw(**data)
    try:
        return picture(canvas, figure.caption, anchor)
    finally:
        # Figures made by pyplot stay in its list until closed; others are not in it.
        if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
            pyplot.close(canvas)


def picture(canvas: "Canvas", caption: str, prefix: str, largest: int = LARGEST_SVG) -> Markup:
    """A matplotlib figure inside the page: SVG while that is small, otherwise PNG."""
    drawn = 96 * canvas.get_size_inches()[0]
    size = f"min-width: {drawn:.0f}px; max-width: {ENLARGED * drawn:.0f}px"
    with tempfile.TemporaryDirectory() as folder:
        vector, raster = Path(folder, "figure.svg"), Path(folder, "figure.png")
        save(canvas, vector)
        if vector.stat().st_size < largest:
            return _inline(vector.read_text(encoding="utf-8"), caption, prefix, size)
        save(canvas, raster)
        source = f"data:image/png;base64,{base64.b64encode(raster.read_bytes()).decode()}"
    return Markup('<img style="{}" src="{}" alt="{}">').format(size, source, caption)


def _inline(svg: str, caption: str, prefix: str, size: str) -> Markup:
    """The svg element alone, its ids made unique on the page and its style sheet left to the page's own."""
    svg = svg[svg.index("<svg") :]
    for needless in (r"<metadata>.*?</metadata>", r"<!--.*?-->", r"<style\b.*?</style>"):
        svg = re.sub(needless, "", svg, flags=re.DOTALL)
    for reference in (' id="', 'href="#', "url(#"):
        svg = svg.replace(reference, f"{reference}{escape(prefix)}-")
    opening, rest = svg[: svg.index(">") + 1], svg[svg.index(">") + 1 :]
    match = re.search(r'viewBox="([^"]*)"', opening)
    assert match is not None, "matplotlib gives every svg a viewBox"
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{match[1]}" style="{size}" role="img" aria-label="{escape(caption)}">'
    )
    return Markup(opening + re.sub(r">\s+<", "><", rest.strip()))
