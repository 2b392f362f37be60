"""The plan: what the store lacks, as jobs that any process can compute.

A job has cells of one paper that share a compiled program and the steps at which they are recorded. Each seed
of each cell is a row of that program, so cells that differ in numbers alone are computed together.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from descentlab.engine import Settings
from descentlab.papers import Paper, load
from descentlab.store import Store, run_id

MANY_CELLS = 8  # of a shape, for which compiling a program for all of them pays
MOST_ROWS = 128  # of a job: enough to share a program, few enough to lose little with a worker
MOST_BYTES = 2**30  # that the rows of a job may take together


@dataclass(frozen=True)
class Job:
    """Compute seeds `first` to `seeds - 1` of each preset.

    `room` is the number of rows to compile for. With 0 the cells go one after another through the program of
    a single run.
    """

    paper: str
    presets: tuple[Settings, ...]
    first: int
    seeds: int
    room: int = 0


@dataclass(frozen=True)
class Result:
    """What became of a cell: "done", "busy" (another process computes it), or "failed" with an error."""

    preset: Settings
    outcome: str
    error: str = ""


def code_of(paper: Paper, preset: Settings) -> str:
    """The version of the code that computes a run: the paper's, and functions that the preset names."""
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


def names_of(job: Job) -> list[str]:
    """The names of a job's runs."""
    return [identify(load(job.paper), preset) for preset in job.presets]


def plan(paper: Paper, presets: Iterable[Settings], seeds: int, store: Store, parts: int = 1) -> list[Job]:
    """The jobs that make what the store lacks, the largest first; at least `parts` if there are enough cells.

    A few cells of a shape go through the program of a single run, which other runs use too. Many cells get a
    program in which they are computed together.
    """
    shapes: dict[Any, list[Settings]] = {}
    for preset in dict.fromkeys(presets):
        have = store.seeds(identify(paper, preset))
        if have < seeds:
            program = paper.system_of(preset).program(preset)
            shapes.setdefault((have, jax.tree.structure(program)), []).append(preset)
    for cells in shapes.values():
        paper.system_of(cells[0]).require(cells[0])
    batches = [
        (have, batch, most)
        for (have, _), cells in shapes.items()
        for batch, most in _batches(paper, cells, seeds - have)
    ]
    pieces = [-(-len(cells) // (most or len(cells))) for _, cells, most in batches]
    sizes = [len(cells) for _, cells, _ in batches]
    while sum(pieces) < min(parts, sum(sizes)):
        pieces[int(np.argmax(np.divide(sizes, pieces)))] += 1
    jobs = []
    for (have, cells, most), count in zip(batches, pieces, strict=True):
        ends = [-(-len(cells) * i // count) for i in range(count + 1)]
        chunks = [tuple(cells[first:last]) for first, last in pairwise(ends)]
        # Jobs of one shape share its program: smaller ones are filled up.
        room = max(map(len, chunks)) * (seeds - have) if most else 0
        jobs += [Job(paper.name, chunk, have, seeds, room) for chunk in chunks]
    return sorted(jobs, key=lambda job: -len(job.presets))


def _batches(paper: Paper, cells: list[Settings], seeds: int) -> Iterator[tuple[list[Settings], int]]:
    """Cells of one program, and how many of them a job computes together: 0 if they go one by one."""
    # A flow chooses the length of its steps: in a batch, all cells would take as many as the stiffest.
    if len(cells) < MANY_CELLS or not paper.system_of(cells[0]).divisible(cells[0]):
        yield cells, 0
        return
    recorded: dict[tuple[int, ...], list[Settings]] = {}
    for preset in cells:
        recorded.setdefault(tuple(np.asarray(paper.records(preset)).tolist()), []).append(preset)
    for records, alike in recorded.items():
        most = 0
        if len(alike) >= MANY_CELLS:
            row = max(paper.system_of(alike[0]).bytes_of_a_row(alike[0], len(records)), 1)
            most = max(1, min(MOST_ROWS, MOST_BYTES // row) // seeds)
        yield alike, most
