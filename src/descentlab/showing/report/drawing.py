"""Figures and tables of a paper in a report, each by itself: one that fails says so and costs no other."""

import csv
import io
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xarray as xr

from descentlab.drawing import LEVELS, MOST_MOMENTS, Movie, save
from descentlab.engine import Settings
from descentlab.papers import Figure, Paper, Table
from descentlab.running import Run, datasets
from descentlab.showing.report.files import Files
from descentlab.showing.report.interactive import plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

LARGEST_SVG = 1_500_000
PIXELS = 96


@dataclass(frozen=True)
class Drawing:
    """A figure in a report: the files of its picture, its plot and its numbers; or what went wrong.

    `moving` is what moves beside it, of `kind` movie or surfaces.
    """

    figure: Figure | Table
    anchor: str
    picture: str = ""
    width: int = 0
    plot: str = ""
    moving: str = ""
    kind: str = ""
    links: tuple[tuple[str, str, str], ...] = ()
    note: str = ""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
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
    files.put(name, _csv([header, *rows]))
    return Drawing(
        table, anchor, header=tuple(str(one) for one in header), rows=tuple(tuple(row) for row in rows),
        links=(("CSV", name, files.weight(name)),),
    )  # fmt: skip


def _figure(figure: Figure, data: Mapping[str, xr.Dataset], anchor: str, files: Files) -> Drawing:
    canvas = figure(**data)
    try:
        picture = _picture(canvas, anchor, files)
        found = plot(canvas)
    finally:
        # Figures made by pyplot stay in its list until closed; others are not in it.
        if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
            pyplot.close(canvas)
    names, notes, kind = {picture.rpartition(".")[2].upper(): picture}, [], ""
    parts: dict[str, Any] = {}
    if found is not None:
        parts["plot"] = f"plots/{anchor}.js"
        files.put(parts["plot"], _script(anchor, found.as_json()))
        names["CSV"] = f"data/{anchor}.csv"
        files.put(names["CSV"], found.table_as_csv())
        if found.thinned > 1:
            notes.append(f"The plot shows one point in {found.thinned} of its lines, the CSV all.")
    if figure.moving is not None:
        moving = figure.moving(**data)
        kind = "movie" if isinstance(moving, Movie) else "surfaces"
        content = moving.as_json() if isinstance(moving, Movie) else [one.as_json() for one in moving]
        parts["moving"] = f"plots/{anchor}-moving.js"
        files.put(parts["moving"], _script(f"{anchor}-moving", content))
        if not isinstance(moving, Movie):
            names["CSV"] = f"data/{anchor}.csv"
            rows = [row for surface in moving for row in surface.rows()]
            files.put(names["CSV"], _csv([("surface", "x", "y", "height"), *rows]))
        if kind == "movie":
            notes.append(
                f"At most {MOST_MOMENTS} moments, entries to 1/{LEVELS} of the colour bar; the runs have all."
            )
    links = tuple((text, file, files.weight(file)) for text, file in names.items())
    width = round(PIXELS * canvas.get_size_inches()[0])
    return Drawing(figure, anchor, picture, width, kind=kind, links=links, note=" ".join(notes), **parts)


def _csv(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _script(name: str, content: Any) -> str:
    """Data as a script: pages that are opened from a disk may load scripts and nothing else."""
    return f"descentlab.take({json.dumps(name)}, {json.dumps(content, separators=(',', ':'))});\n"


def _picture(canvas: "Canvas", anchor: str, files: Files, largest: int = LARGEST_SVG) -> str:
    """A matplotlib figure as a file: SVG while that is small, otherwise PNG."""
    for kind in ("svg", "png"):
        buffer = io.BytesIO()
        save(canvas, buffer, kind)
        if kind == "png" or buffer.tell() < largest:
            break
    name = f"figures/{anchor}.{kind}"
    files.put(name, buffer.getvalue())
    return name
