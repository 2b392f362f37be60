"""The atlas as tables: for the terminal, and as CSV for people's own."""

import math
from typing import Any

from descentlab.atlas._cells import Answer, Cell
from descentlab.atlas._survey import Atlas, Row
from descentlab.judging import Estimate
from descentlab.papers import KERNEL_WORDS, OPTIMIZER_WORDS
from descentlab.words import csv_table

COLUMNS = (
    "paper", "task", "kernel", "optimizer", "own", "learns", "learning_share", "learning_low",
    "learning_high", "steps", "steps_low", "steps_high", "learning_rates", "recovers", "recovering_share",
    "recovering_low", "recovering_high", "quantity", "quantity_low", "quantity_high", "recovering_rates",
    "best_rate_at_the_edge", "seeds", "does_not_fit",
)  # fmt: skip
RATE_COLUMNS = (
    "paper", "task", "kernel", "optimizer", "rate", "learning_share", "median_steps", "recovering_share",
)  # fmt: skip


def as_csv(atlas: Atlas) -> str:
    """A line a cell; what is not finite is empty."""
    cells = [(row, optimizer, cell) for row in atlas.rows for optimizer, cell in row.cells.items()]
    return csv_table([COLUMNS, *(_line(*cell, atlas.seeds) for cell in cells)])


def rates_as_csv(atlas: Atlas) -> str:
    """A line a cell and rate: the shares of all seeds, and the median steps."""
    lines = [
        [row.paper.name, row.crossing.task, row.kernel, optimizer, rate, *map(_finite, shares)]
        for row, optimizer, cell in atlas.cells()
        for rate, shares in cell.shares.items()
    ]
    return csv_table([RATE_COLUMNS, *lines])


def _line(row: Row, optimizer: str, cell: Cell | str, seeds: int) -> list[Any]:
    own = (optimizer, row.kernel) == row.crossing.own
    start = [row.paper.name, row.crossing.task, row.kernel, optimizer, int(own)]
    if isinstance(cell, str):
        return [*start, *[""] * (len(COLUMNS) - len(start) - 1), cell]
    found = []
    for answer in (cell.learns, cell.recovers):
        found += [answer.word, *_three(answer.share), *_three(answer.detail)]
        found.append(" ".join(f"{rate:g}" for rate in answer.rates))
    edges = [name for name in ("learns", "recovers") if getattr(cell, name).at_the_edge]
    return [*start, *found, " ".join(edges), seeds, ""]


def _three(estimate: Estimate) -> list[Any]:
    return [_finite(x) for x in (estimate.value, *estimate.interval())]


def _finite(x: float) -> float | str:
    return x if math.isfinite(x) else ""


# ---------------------------------------------------------------- the terminal


def as_text(atlas: Atlas) -> str:
    """A line a task and kernel, a column an optimiser; and below, what learning and recovering mean."""
    lines = [["", *OPTIMIZER_WORDS.values()], *([row.title, *shown(row)] for row in atlas.rows if row.fits)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return "\n".join([*table, "", *goals(atlas), LEGEND])


def as_markdown(atlas: Atlas) -> str:
    """The same for a page of documentation."""
    lines = [
        f"| {row.crossing.task} | {KERNEL_WORDS[row.kernel]} | {' | '.join(shown(row))} |"
        for row in atlas.rows
        if row.fits
    ]
    header = ["| task | attention | " + " | ".join(OPTIMIZER_WORDS.values()) + " |", "| --- " * 6 + "|"]
    return "\n".join([*header, *lines, "", *(f"- {goal}" for goal in goals(atlas))])


LEGEND = (
    "Seeds that learn, with median steps, at the best rate for learning; seeds that recover the truth, at "
    "the best rate for that. * the paper's own pair, - does not fit."
)


def goals(atlas: Atlas) -> list[str]:
    """What learning and recovering mean for each task."""
    found = {
        row.crossing.task: (row.crossing.learns.words, row.crossing.recovers.words) for row in atlas.rows
    }
    return [f"{task}. Learns: {learns}. Recovers: {recovers}." for task, (learns, recovers) in found.items()]


def shown(row: Row) -> list[str]:
    """The cells of a row in a few words."""
    return [
        brief(cell) + (" *" if (optimizer, row.kernel) == row.crossing.own else "")
        if isinstance(cell, Cell)
        else "-"
        for optimizer, cell in row.cells.items()
    ]


def brief(cell: Cell) -> str:
    """A cell in a few words: 8/8 in 120, recovers 0/8."""
    steps = f" in {cell.learns.detail.value:.0f}" if math.isfinite(cell.learns.detail.value) else ""
    return f"{counted(cell.learns)}{steps}, recovers {counted(cell.recovers)}"


def counted(answer: Answer) -> str:
    """How many seeds of how many."""
    return f"{round(answer.share.value * answer.share.seeds)}/{answer.share.seeds}"
