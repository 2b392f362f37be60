"""Work: runs that the store lacks, planned as tasks that any process can perform.

A task is a group of cells, presets of one paper that share a compiled program and its records. Their seeds
are rows of that program, so what differs in numbers alone is computed together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from descentlab.engine import Settings
from descentlab.papers import Paper, load
from descentlab.store import Store, run_id

MANY_CELLS = 8  # of a shape, for which a program of their own is worth its compiling
MOST_ROWS = 128  # of a task: enough to share a program, few enough to lose little with a worker
MOST_BYTES = 2**30  # what the rows of a task may take together


@dataclass(frozen=True)
class Task:
    """Cells of one compiled shape, and the seeds each is to have; it had `first` when the task was planned.

    `room` is the number of rows to compile for; 0 says that the cells go one after another through the
    program of a single run.
    """

    paper: str
    presets: tuple[Settings, ...]
    first: int
    seeds: int
    room: int = 0


@dataclass(frozen=True)
class Result:
    """What became of a cell: done, busy (another process has it), or failed with an error."""

    preset: Settings
    outcome: str
    error: str = ""


def code_of(paper: Paper, preset: Settings) -> str:
    """What computes a run: the paper's code, and functions of one's own that the preset names."""
    return paper.code_version(preset) + preset.foreign_code()


def identify(paper: Paper, preset: Settings) -> str:
    """The name of a run in every store."""
    return run_id(paper.name, code_of(paper, preset), preset.settings())


def label(paper: str, presets: Sequence[Settings]) -> str:
    """Runs in a few words: the paper, and where its presets differ from the default one."""
    base = type(presets[0])().settings()
    words = [paper] if len(presets) == 1 else [paper, f"{len(presets)} cells"]
    for name in base:
        values = list(dict.fromkeys(p.settings()[name] for p in presets))
        if values != [base[name]]:
            shown = [f"{v:g}" if isinstance(v, float) else str(v) for v in values]
            words.append(f"{name}={shown[0]}" + (f"..{shown[-1]}" if len(shown) > 1 else ""))
    return " ".join(words)


def names_of(task: Task) -> list[str]:
    """The names of a task's runs."""
    return [identify(load(task.paper), preset) for preset in task.presets]


def plan(paper: Paper, presets: Iterable[Settings], seeds: int, store: Store, parts: int = 1) -> list[Task]:
    """What the store lacks as tasks, the largest first; `parts` of them or more if there are enough cells.

    Few cells of a shape go through the program of a single run, which serves whatever else is run; many are
    worth a program of their own, in which they are computed together.
    """
    shapes: dict[Any, list[Settings]] = {}
    for preset in dict.fromkeys(presets):
        have = store.seeds(identify(paper, preset))
        if have < seeds:
            program = paper.system_of(preset).program(preset)
            shapes.setdefault((have, jax.tree.structure(program)), []).append(preset)
    for own in shapes.values():
        paper.system_of(own[0]).require(own[0])
    batches = [batch for (have, _), own in shapes.items() for batch in _batches(paper, own, seeds - have)]
    pieces = [-(-len(batch.cells) // batch.most) for batch in batches]
    while sum(pieces) < parts and any(n < len(batch.cells) for n, batch in zip(pieces, batches, strict=True)):
        sizes = [len(batch.cells) / n for n, batch in zip(pieces, batches, strict=True)]
        pieces[int(np.argmax(sizes))] += 1
    tasks = []
    for batch, count in zip(batches, pieces, strict=True):
        ends = [-(-len(batch.cells) * i // count) for i in range(count + 1)]
        chunks = [tuple(batch.cells[first:last]) for first, last in pairwise(ends)]
        # Tasks of one shape share its program: smaller ones are filled up.
        room = max(map(len, chunks)) * batch.seeds if batch.together else 0
        tasks += [Task(paper.name, chunk, seeds - batch.seeds, seeds, room) for chunk in chunks]
    return sorted(tasks, key=lambda task: -len(task.presets))


@dataclass(frozen=True)
class _Batch:
    """Cells of one program that lack so many seeds; a task may have `most` of them."""

    cells: list[Settings]
    seeds: int
    together: bool
    most: int


def _batches(paper: Paper, alike: list[Settings], seeds: int) -> list[_Batch]:
    """Cells of one program: those of the same records together if they are many, else one by one."""
    # A flow takes steps of its own length: in a batch, all would take as many as the stiffest.
    if len(alike) < MANY_CELLS or not paper.system_of(alike[0]).divisible(alike[0]):
        return [_Batch(alike, seeds, False, len(alike))]
    recorded: dict[tuple[int, ...], list[Settings]] = {}
    for preset in alike:
        recorded.setdefault(tuple(np.asarray(paper.records(preset)).tolist()), []).append(preset)
    found = []
    for records, own in recorded.items():
        together = len(own) >= MANY_CELLS
        bytes_each = max(paper.system_of(own[0]).bytes_of_a_row(own[0], len(records)), 1) if together else 1
        most = max(1, min(MOST_ROWS, MOST_BYTES // bytes_each) // seeds) if together else len(own)
        found.append(_Batch(own, seeds, together, most))
    return found
