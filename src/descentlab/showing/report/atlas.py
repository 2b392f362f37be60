"""The atlas in a report: a page with the table, a figure for print, and all numbers as CSV."""

import math
import textwrap
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from descentlab.atlas import Answer, Atlas, Cell, Row, as_csv, counted, rates_as_csv
from descentlab.drawing import rendered, style
from descentlab.papers import KERNEL_WORDS, OPTIMIZER_WORDS
from descentlab.showing.report.files import Files
from descentlab.words import interval, number

PAGE = "atlas.html"
# What a cell comes to, with the pale colour that it has in print.
KINDS = {
    "both": ("learns and recovers the truth", "#bfe3e6"),
    "fits": ("learns, but does not recover the truth", "#fbd3b0"),
    "neither": ("does not learn", "#cfd3d7"),
    "unclear": ("unclear at this number of seeds", "#ffffff"),
}


@dataclass(frozen=True)
class Tile:
    """A cell as the page shows it; `reason` where there is none."""

    own: bool
    kind: str = ""
    lines: tuple[tuple[str, str], ...] = ()
    more: str = ""
    reason: str = ""


def atlas_map(atlas: Atlas, files: Files) -> dict[str, Any]:
    """The atlas as its page shows it; its figure and its numbers are written."""
    figure = draw(atlas)
    contents = {
        ("CSV of cells", "data/atlas.csv"): as_csv(atlas),
        ("CSV of all rates", "data/atlas-rates.csv"): rates_as_csv(atlas),
        ("SVG", "figures/atlas.svg"): rendered(figure, "svg"),
        ("PDF", "figures/atlas.pdf"): rendered(figure, "pdf"),
    }
    for (_, name), content in contents.items():
        files.put(name, content)
    groups = [list(rows) for _, rows in groupby(atlas.rows, key=lambda row: id(row.crossing))]
    return {
        "atlas": atlas, "optimizers": OPTIMIZER_WORDS.values(), "kinds": KINDS,
        "picture": "figures/atlas.svg", "width": round(96 * figure.get_size_inches()[0]),
        "groups": [{"row": rows[0], "lines": [_line(row) for row in rows]} for rows in groups],
        "links": files.links(dict(contents.keys())),
    }  # fmt: skip


def _line(row: Row) -> dict[str, Any]:
    """A kernel's line of a task; `reason` where the kernel does not fit the task at all."""
    reason = "" if row.fits else row.crossing.unfit.get(row.kernel, "")
    tiles = [tile(row, optimizer) for optimizer in OPTIMIZER_WORDS]
    return {"kernel": KERNEL_WORDS[row.kernel], "tiles": tiles, "reason": reason}


def kind_of(cell: Cell) -> str:
    """Which of KINDS a cell is."""
    if cell.learns.word == "no":
        return "neither"
    if "unclear" in (cell.learns.word, cell.recovers.word):
        return "unclear"
    return "both" if cell.recovers.word == "yes" else "fits"


def tile(row: Row, optimizer: str) -> Tile:
    """A cell in words."""
    cell, own = row.cells[optimizer], (optimizer, row.kernel) == row.crossing.own
    if isinstance(cell, str):
        return Tile(own, reason=cell)
    steps, quantity = cell.learns.detail, cell.recovers.detail
    lines = [
        (f"learns {counted(cell.learns)}", _percent(cell.learns)),
        (_steps(steps.value), interval(*steps.interval()) if cell.learns.share.value > 0 else ""),
        (f"recovers {counted(cell.recovers)}", _percent(cell.recovers)),
    ]
    more = (
        f"Learns at rate {_rates(cell.learns)}. Recovers best at rate {_rates(cell.recovers)}, where the "
        f"quantity ends at {number(quantity.value, 3)} in {interval(*quantity.interval())}."
    )
    return Tile(own, kind_of(cell), tuple(lines), more)


def _percent(answer: Answer) -> str:
    low, high = (round(100 * x) for x in answer.share.interval())
    return f"[{low}, {high}] %"


def _steps(value: float) -> str:
    return f"{number(value, 3)} steps" if math.isfinite(value) else "not in time"


def _rates(answer: Answer) -> str:
    edge = ", the least or largest tried" if answer.at_the_edge else ""
    return " or ".join(f"{rate:g}" for rate in answer.rates) + edge


# ---------------------------------------------------------------- the figure

WIDE, HIGH, LABEL = 1.35, 0.42, 2.6  # inches of a cell, and of what is left of the first


@style()
def draw(atlas: Atlas) -> Figure:
    """The table for print: a rectangle a cell, with its numbers."""
    rows = [row for row in atlas.rows if row.fits]
    size = (LABEL + WIDE * len(OPTIMIZER_WORDS), HIGH * (len(rows) + 1) + 0.5)
    figure = Figure(figsize=size)
    ax = figure.add_axes((LABEL / size[0], 0.45 / size[1], 1 - LABEL / size[0], 1 - 0.45 / size[1]))
    ax.set_xlim(0, len(OPTIMIZER_WORDS))
    ax.set_ylim(len(rows), -1)
    ax.set_axis_off()
    for x, name in enumerate(OPTIMIZER_WORDS.values()):
        ax.text(x + 0.5, -0.35, name, ha="center", va="center", fontsize=9)
    for y, row in enumerate(rows):
        _draw_row(ax, y, row, first=y == 0 or rows[y - 1].crossing is not row.crossing)
    handles = [Patch(fc=colour, ec="#8c8c8c", lw=0.5, label=words) for words, colour in KINDS.values()]
    figure.legend(handles=handles, loc="lower center", ncols=2, handlelength=1.2)
    return figure


def _draw_row(ax, y: int, row: Row, first: bool) -> None:
    if first:
        name = "\n".join(textwrap.wrap(row.crossing.task, 24))
        ax.text(-LABEL / WIDE + 0.03, y + 0.12, name, va="top", fontsize=8)
        ax.plot([-LABEL / WIDE, len(OPTIMIZER_WORDS)], [y, y], color="#8c8c8c", lw=0.5, clip_on=False)
    ax.text(-0.06, y + 0.5, KERNEL_WORDS[row.kernel], ha="right", va="center", fontsize=8)
    for x, optimizer in enumerate(OPTIMIZER_WORDS):
        found = tile(row, optimizer)
        if not found.kind:
            continue
        edge = {"ec": "black", "lw": 1.2, "zorder": 3} if found.own else {"ec": "#8c8c8c", "lw": 0.5}
        ax.add_patch(Rectangle((x + 0.03, y + 0.06), 0.94, 0.88, fc=KINDS[found.kind][1], **edge))
        (learns, _), (steps, _), (recovers, _) = found.lines
        words = f"{learns}, {steps}\n{recovers}"
        ax.text(x + 0.5, y + 0.5, words, ha="center", va="center", fontsize=6.5, zorder=4)
