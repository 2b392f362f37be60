"""The atlas: every paper's task under every optimiser and attention kernel that fits it, as one table.

Papers declare what fits (`Crossing`); their modules are found by name. Cells are runs like any other: what
the store holds is not computed again, and what it lacks is made by all cores.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from descentlab import running
from descentlab.atlas._cells import Cell, judged
from descentlab.engine import Settings
from descentlab.papers import KERNEL_WORDS, OPTIMIZER_WORDS, Crossing, Paper, load, names
from descentlab.running import Pool, Progress, identify
from descentlab.store import Store

NAME = "atlas"  # on the command line, beside the papers


@dataclass(frozen=True)
class Row:
    """A task with one attention kernel: a cell, or why there is none, for each optimiser."""

    paper: Paper
    crossing: Crossing
    kernel: str
    cells: dict[str, Cell | str]

    @property
    def fits(self) -> bool:
        """Whether the kernel fits the task at all."""
        return any(isinstance(cell, Cell) for cell in self.cells.values())

    @property
    def title(self) -> str:
        """The task and the kernel in words."""
        return f"{self.paper.name}: {self.crossing.task}, {KERNEL_WORDS[self.kernel]} attention"


@dataclass(frozen=True)
class Atlas:
    """All rows, and the seeds behind each cell."""

    rows: list[Row]
    seeds: int

    def cells(self) -> Iterator[tuple[Row, str, Cell]]:
        """The cells that there are."""
        for row in self.rows:
            for optimizer, cell in row.cells.items():
                if isinstance(cell, Cell):
                    yield row, optimizer, cell


def tasks() -> list[tuple[Paper, Crossing]]:
    """The tasks that papers declare, in the order of the papers' names."""
    return [(paper, crossing) for paper in map(load, names()) for crossing in paper.crossings]


def presets(crossing: Crossing) -> list[Settings]:
    """The runs of all cells of a task."""
    fitting = [(o, k) for k in KERNEL_WORDS for o in OPTIMIZER_WORDS if crossing.fits(o, k)]
    return [preset for pair in fitting for preset in crossing.runs(*pair).values()]


def survey(seeds: int, store: Store, *, pool: Pool | None = None, progress: Progress | None = None) -> Atlas:
    """The atlas; runs that the store lacks are made by the pool, as in `running.complete`."""
    wanted: dict[Paper, list[Settings]] = {}
    for paper, crossing in tasks():
        wanted.setdefault(paper, []).extend(presets(crossing))
    for paper, own in wanted.items():
        tally = running.complete(paper, own, seeds, store, pool=pool, progress=progress, retry=True)
        tally.raise_failures()
    return Atlas([row for paper, crossing in tasks() for row in _rows(paper, crossing, seeds, store)], seeds)


def held(store: Store) -> int:
    """How many seeds of every run of the atlas the store holds; 0 where it lacks one."""
    runs = [identify(paper, preset) for paper, crossing in tasks() for preset in presets(crossing)]
    return min(map(store.seeds, runs), default=0)


def _rows(paper: Paper, crossing: Crossing, seeds: int, store: Store) -> list[Row]:
    def cell(optimizer: str, kernel: str) -> Cell | str:
        if not crossing.fits(optimizer, kernel):
            return crossing.why_not(optimizer, kernel)
        runs = crossing.runs(optimizer, kernel).items()
        return judged(crossing, {rate: running.stored(paper, p, seeds, store).data for rate, p in runs})

    return [Row(paper, crossing, k, {o: cell(o, k) for o in OPTIMIZER_WORDS}) for k in KERNEL_WORDS]
