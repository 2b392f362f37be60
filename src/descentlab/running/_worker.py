"""The worker: computes a job and stores its cells, in this process or in one that takes jobs from a pool.

A job holds the lock of each of its cells. Cells that another process holds are left to it, cells that it has
finished are not computed again, and checkpoints that a killed process left are taken up. Seeds that do not
fit the memory together are computed and stored in blocks.
"""

import contextlib
import functools
import os
import queue
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from descentlab.engine import Checkpoint, Settings, System, make_room, rollouts
from descentlab.errors import StoreError
from descentlab.papers import Paper, load
from descentlab.running._plan import MOST_BYTES, Job, Result, code_of, identify, label
from descentlab.running._progress import Progress, ProgressFile
from descentlab.store import Busy, Store, provenance

KEEP_SECONDS = 5.0  # between two checkpoints


def perform(
    job: Job, store: Store, progress: Progress | None = None, *, catch: bool = True
) -> Iterator[Result]:
    """Computes and stores what the cells of a job lack; yields the result of each cell as it comes.

    A cell that another process holds is busy. A cell that raises is recorded as failed and the others go on;
    with `catch=False` its error is raised instead. Errors of the store are always raised.
    """
    if len(job.presets) > 1 and not job.room:
        for preset in job.presets:
            yield from perform(replace(job, presets=(preset,)), store, progress, catch=catch)
        return
    paper = load(job.paper)
    names = {preset: identify(paper, preset) for preset in job.presets}
    todo: list[Settings] = []
    with contextlib.ExitStack() as held:
        for preset, name in names.items():
            try:
                held.enter_context(store.lock(name, wait=False))
                todo.append(preset)
            except Busy:
                yield Result(preset, "busy")
        while todo:
            lacking = [preset for preset in todo if store.seeds(names[preset]) < job.seeds]
            for preset in todo:
                if preset not in lacking:
                    yield Result(preset, "done")
            todo = lacking
            if not todo:
                break
            seeds, cells, resume = _next_block(todo, names, store, job.seeds)
            most, room = _seeds_at_once(paper, cells, job.seeds - job.first), job.room
            if most < job.seeds - job.first:
                # The last block is filled up to the size of the others, whose program then serves it too.
                seeds, room = seeds if resume else seeds[:most], len(cells) * most
            block = _Block(paper, cells, seeds, resume, room, names, store)
            failed = block.perform(progress or Progress(), catch)
            yield from failed
            todo = [preset for preset in todo if preset not in {result.preset for result in failed}]


def _next_block(
    lacking: list[Settings], names: Mapping[Settings, str], store: Store, seeds: int
) -> tuple[range, list[Settings], Checkpoint | None]:
    """The next batch: unfinished cells that share the first one's seed range and resume step.

    Returns the seeds, the cells, and a checkpoint of all cells if they have one.
    """
    found: dict[tuple[range, int], dict[Settings, Checkpoint | None]] = {}
    for preset in lacking:
        have = store.seeds(names[preset])
        kept = store.kept(names[preset], have, seeds)
        if kept is None:
            found.setdefault((range(have, seeds), 0), {})[preset] = None
        else:
            checkpoint = Checkpoint.from_arrays(kept[1])
            found.setdefault((kept[0], checkpoint.step), {})[preset] = checkpoint
    (missing, _), cells = next(iter(found.items()))
    parts = [part for part in cells.values() if part is not None]
    return missing, list(cells), Checkpoint.join(parts) if parts else None


def _seeds_at_once(paper: Paper, cells: Sequence[Settings], seeds: int) -> int:
    """How many of `seeds` seeds are computed at once: all, or even blocks that fit the memory."""
    preset = cells[0]
    try:
        each = len(cells) * _bytes_of_a_row(paper.system_of(preset), preset, len(paper.records(preset)))
    except Exception:
        return seeds  # the error comes again where the cell is computed, and is recorded there
    fitting = max(1, MOST_BYTES // max(each, 1))
    return -(-seeds // -(-seeds // fitting))


@functools.lru_cache(maxsize=1024)
def _bytes_of_a_row(system: System, preset: Settings, records: int) -> int:
    return system.bytes_of_a_row(preset, records)


@dataclass(frozen=True)
class _Block:
    """Some seeds of cells that continue from the same step."""

    paper: Paper
    presets: Sequence[Settings]
    seeds: range
    resume: Checkpoint | None
    room: int
    names: Mapping[Settings, str]
    store: Store

    def perform(self, progress: Progress, catch: bool) -> list[Result]:
        """Computes and stores the block; returns the cells that failed.

        If the block raises, its cells are computed one by one to find those that fail.
        """
        try:
            datasets, seconds = self._compute(progress)
            for preset, data in zip(self.presets, datasets, strict=True):
                absorb(self.paper, preset, data, seconds / len(self.presets), self.store)
        except StoreError:
            raise
        except Exception as error:
            if not catch:
                raise
            if len(self.presets) > 1:
                alone = [self._alone(i) for i in range(len(self.presets))]
                return [failed for block in alone for failed in block.perform(progress, catch)]
            (preset,), words = self.presets, f"{type(error).__name__}: {error}"
            trace = "".join(traceback.format_exception(error))
            about = {"error": words, "settings": preset.settings(), "trace": trace}
            self.store.fail(self.names[preset], about)
            return [Result(preset, "failed", words)]
        return []

    def _compute(self, progress: Progress) -> tuple[list[xr.Dataset], float]:
        preset, words = self.presets[0], label(self.paper.name, self.presets)
        steps, seeds = preset.steps, len(self.seeds)
        if self.resume:
            progress.say(f"{words} goes on at step {self.resume.step}")
        progress.begin(words, steps, seeds, len(self.presets))
        runs, records = [self.names[p] for p in self.presets], np.asarray(self.paper.records(preset)).tolist()
        loss = self.paper.system_of(preset).loss
        with ProgressFile(self.store, runs, words, steps, seeds, records, loss) as file:

            def watch(step: int, loss: float) -> None:
                file.step(step, loss)
                progress.step(step, loss)

            return compute(
                self.paper, self.presets, self.seeds, room=self.room, resume=self.resume, watch=watch,
                keep=self._keep, keep_every=KEEP_SECONDS,
            )  # fmt: skip

    def _alone(self, i: int) -> "_Block":
        part = self.resume and self.resume.rows(self._rows(i))
        return replace(self, presets=[self.presets[i]], resume=part, room=0)

    def _rows(self, i: int) -> slice:
        """The rows of cell i."""
        return slice(i * len(self.seeds), (i + 1) * len(self.seeds))

    def _keep(self, checkpoint: Checkpoint) -> None:
        for i, preset in enumerate(self.presets):
            self.store.keep(self.names[preset], self.seeds, checkpoint.rows(self._rows(i)).arrays())


def compute(
    paper: Paper, presets: Sequence[Settings], seeds: range, **further: Any
) -> tuple[list[xr.Dataset], float]:
    """The trajectories of `seeds` of cells of one shape, and the seconds it took; see `rollouts`."""
    make_room()
    began = time.monotonic()
    data = rollouts(paper.system_of(presets[0]), presets, seeds, paper.records(presets[0]), **further)
    return data, time.monotonic() - began


def absorb(paper: Paper, preset: Settings, fresh: xr.Dataset, seconds: float, store: Store) -> None:
    """Adds further seeds to a run of the store; the caller holds its lock."""
    name = identify(paper, preset)
    data, manifest = store.read(name), store.manifest(name) or {}
    first, last = int(fresh["seed"][0]), int(fresh["seed"][-1]) + 1
    about = {
        "paper": paper.name, "code": code_of(paper, preset), "settings": preset.settings(),
        "seconds": manifest.get("seconds", 0.0) + seconds,
        "history": [*manifest.get("history", []), {"seeds": [first, last], **provenance()}],
    }  # fmt: skip
    store.write(name, fresh if data is None else xr.concat([data, fresh], "seed"), about)
    store.drop(name, last)


def serve(descriptor: int) -> None:
    """Takes jobs from a connection and sends results back, until the caller is gone.

    After the results of a job comes None, or an error of the store.
    """
    os.dup2(2, 1)  # what is printed here must not come between the caller's results
    caller = Connection(descriptor)
    orders: queue.SimpleQueue[tuple[Job, Path]] = queue.SimpleQueue()

    def listen() -> None:
        while True:
            try:
                orders.put(caller.recv())
            except (EOFError, OSError):
                os._exit(1)  # the store is consistent at any moment

    threading.Thread(target=listen, daemon=True).start()
    while True:
        job, path = orders.get()
        try:
            for result in perform(job, Store(path)):
                caller.send(result)
            caller.send(None)
        except StoreError as error:
            caller.send(error)
