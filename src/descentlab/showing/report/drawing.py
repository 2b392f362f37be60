"""Figures and tables of a paper in a report, each by itself: one that fails says so and costs no other."""

import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xarray as xr

from descentlab.drawing import LEVELS, MOST_MOMENTS, Movie, rendered
from descentlab.engine import Settings
from descentlab.papers import Figure, Paper, Table
from descentlab.running import Run, datasets
from descentlab.showing.report.files import Files
from descentlab.showing.report.interactive import plot
from descentlab.words import csv_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

LARGEST_SVG = 1_500_000
PIXELS = 96


@dataclass(frozen=True)
class Drawing:
    """A figure in a report: the files of its picture, its plot and its numbers; or what went wrong.

    `plot` says whether it has one, and `moving` what moves beside it: a movie or surfaces.
    """

    figure: Figure | Table
    anchor: str
    picture: str = ""
    width: int = 0
    plot: bool = False
    moving: str = ""
    links: Sequence[tuple[str, str, str]] = ()
    note: str = ""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    error: str = ""


def drawing(
    paper: Paper,
    figure: Figure | Table,
    preset: Settings,
    runs: Mapping[Settings, Run],
    anchor: str,
    files: Files,
) -> Drawing:
    """A figure or table drawn from its runs; an error becomes part of the result and a line on stderr."""
    try:
        lacking = [name for name, overrides in figure.runs.items() if preset.replace(overrides) not in runs]
        if lacking:
            raise LookupError(f"no data of run {', '.join(lacking)}")
        data = datasets(figure, preset, runs)
        if isinstance(figure, Table):
            return _table(figure, data, anchor, files)
        return _figure(figure, data, anchor, files)
    except Exception as error:
        # A paper's drawing may raise anything, and the verdicts must still reach the reader.
        print(f"{paper.name}: {figure.name} could not be drawn.", file=sys.stderr)
        traceback.print_exc()
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return Drawing(figure, anchor, error=what)


def _table(table: Table, data: Mapping[str, xr.Dataset], anchor: str, files: Files) -> Drawing:
    header, rows = table.rows(**data)
    name = f"data/{anchor}.csv"
    files.put(name, csv_table([header, *rows]))
    return Drawing(table, anchor, header=header, rows=rows, links=files.links({"CSV": name}))


def _figure(figure: Figure, data: Mapping[str, xr.Dataset], anchor: str, files: Files) -> Drawing:
    canvas = figure(**data)
    try:
        picture = _picture(canvas, anchor, files)
        found = plot(canvas)
    finally:
        # Figures made by pyplot stay in its list until closed; others are not in it.
        if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
            pyplot.close(canvas)
    table, moves, notes = "", "", []
    if found is not None:
        _put_script(anchor, found.as_json(), files)
        table = found.table_as_csv()
        if found.thinned > 1:
            notes.append(f"The plot shows one point in {found.thinned} of its lines, the CSV all.")
    moving = figure.moving(**data) if figure.moving is not None else None
    if isinstance(moving, Movie):
        moves = "movie"
        _put_script(f"{anchor}-moving", moving.as_json(), files)
        notes.append(
            f"At most {MOST_MOMENTS} moments, entries to 1/{LEVELS} of the colour bar; the runs have all."
        )
    elif moving is not None:
        moves = "surfaces"
        _put_script(f"{anchor}-moving", [one.as_json() for one in moving], files)
        rows = [row for surface in moving for row in surface.rows()]
        table = csv_table([("surface", "x", "y", "height"), *rows])
    names = {picture.rpartition(".")[2].upper(): picture}
    if table:
        names["CSV"] = f"data/{anchor}.csv"
        files.put(names["CSV"], table)
    width = round(PIXELS * canvas.get_size_inches()[0])
    links, note = files.links(names), " ".join(notes)
    return Drawing(figure, anchor, picture, width, found is not None, moves, links, note)


def _put_script(name: str, content: Any, files: Files) -> None:
    """Data as a script: pages that are opened from a disk may load scripts and nothing else."""
    text = f"descentlab.take({json.dumps(name)}, {json.dumps(content, separators=(',', ':'))});\n"
    files.put(f"plots/{name}.js", text)


def _picture(canvas: "Canvas", anchor: str, files: Files, largest: int = LARGEST_SVG) -> str:
    """A matplotlib figure as a file: SVG while that is small, otherwise PNG."""
    for kind in ("svg", "png"):
        content = rendered(canvas, kind)
        if kind == "png" or len(content) < largest:
            break
    name = f"figures/{anchor}.{kind}"
    files.put(name, content)
    return name
