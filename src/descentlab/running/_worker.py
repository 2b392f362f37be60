"""Performing: computes and stores what the cells of a task lack.

Whoever performs a task holds the lock of each of its cells: cells that another process works on are left to
it, cells that it has finished are not computed again, and what a killed process left is taken up. Seeds that
would not fit the memory together are computed and stored in blocks.
"""

import contextlib
import functools
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import xarray as xr

from descentlab.engine import Checkpoint, Settings, System, make_room, rollouts
from descentlab.errors import StoreError
from descentlab.papers import Paper, load
from descentlab.running._plan import MOST_BYTES, Result, Task, code_of, identify, label
from descentlab.running._progress import Beacon, Watcher
from descentlab.store import Busy, Store, provenance


def perform(
    task: Task,
    store: Store,
    watcher: Watcher | None = None,
    *,
    wait: bool = False,
    catch: bool = True,
    keep_every: float = 5.0,
) -> list[Result]:
    """Computes and stores what the cells of a task lack.

    A cell that another process holds is left to it, or waited for (`wait`). A cell that raises is recorded
    as failed and the others go on (`catch`), or its error is raised. Errors of the store are always raised.
    """
    if len(task.presets) > 1 and not task.room:
        options: Any = {"wait": wait, "catch": catch, "keep_every": keep_every}
        alone = [replace(task, presets=(preset,)) for preset in task.presets]
        return [result for one in alone for result in perform(one, store, watcher, **options)]
    paper, watcher = load(task.paper), watcher or Watcher()
    names = {preset: identify(paper, preset) for preset in task.presets}

    def waiting(name: str) -> None:
        if wait:
            watcher.say(f"waiting for another process that works on {name}")

    def lacks(preset: Settings) -> bool:
        return store.seeds(names[preset]) < task.seeds

    results: dict[Settings, Result] = {}
    with contextlib.ExitStack() as held:
        # In the order of names: who waits for some while holding others must not be waited for.
        for preset in sorted(filter(lacks, task.presets), key=lambda p: names[p]):
            try:
                held.enter_context(store.lock(names[preset], partial(waiting, names[preset]), wait))
            except Busy:
                results[preset] = Result(preset, "busy")
        while lacking := [p for p in task.presets if p not in results and lacks(p)]:
            seeds, alike, resume = _next_block(lacking, names, store, task.seeds)
            most, room = _together(paper, alike, task.seeds - task.first), task.room
            if most < task.seeds - task.first:
                # The last block is filled up to the size of the others, whose program then serves it too.
                seeds, room = seeds if resume else seeds[:most], len(alike) * most
            block = _Block(paper, alike, seeds, resume, room, names, store, keep_every)
            beacon = Beacon(store, [names[p] for p in alike], watcher)
            results |= {one.preset: one for one in block.perform(beacon, catch)}
    return [results.get(p) or Result(p, "done") for p in task.presets]


def _next_block(
    lacking: list[Settings], names: Mapping[Settings, str], store: Store, seeds: int
) -> tuple[range, list[Settings], Checkpoint | None]:
    """The first cell with those that stand where it stands: their seeds, and a checkpoint of them all."""
    found: dict[tuple[range, int], dict[Settings, Checkpoint | None]] = {}
    for preset in lacking:
        have = store.seeds(names[preset])
        kept = store.kept(names[preset], have, seeds)
        if kept is None:
            found.setdefault((range(have, seeds), 0), {})[preset] = None
        else:
            checkpoint = Checkpoint.from_arrays(kept[1])
            found.setdefault((kept[0], checkpoint.step), {})[preset] = checkpoint
    (own, _), cells = next(iter(found.items()))
    parts = [part for part in cells.values() if part is not None]
    return own, list(cells), Checkpoint.join(parts) if parts else None


def _together(paper: Paper, cells: Sequence[Settings], seeds: int) -> int:
    """How many of so many seeds are computed at once: all, or even blocks that fit the memory together."""
    preset = cells[0]
    try:
        each = len(cells) * _bytes_of_a_row(paper.system_of(preset), preset, len(paper.records(preset)))
    except Exception:
        return seeds  # it raises again where a cell is computed, and is recorded as its error
    fitting = max(1, MOST_BYTES // max(each, 1))
    return -(-seeds // -(-seeds // fitting))


@functools.lru_cache(maxsize=1024)
def _bytes_of_a_row(system: System, preset: Settings, records: int) -> int:
    return system.bytes_of_a_row(preset, records)


@dataclass(frozen=True)
class _Block:
    """Some seeds of cells that stand at the same step."""

    paper: Paper
    presets: Sequence[Settings]
    seeds: range
    resume: Checkpoint | None
    room: int
    names: Mapping[Settings, str]
    store: Store
    keep_every: float

    def perform(self, watcher: Watcher, catch: bool) -> list[Result]:
        """Computes and stores the block; the cells that failed. If the block raises, cells run one by one."""
        try:
            self._store(*compute(
                self.paper, self.presets, self.seeds, watcher, room=self.room, resume=self.resume,
                keep=self._keep, keep_every=self.keep_every,
            ))  # fmt: skip
        except StoreError:
            raise
        except Exception as error:
            if not catch:
                raise
            if len(self.presets) == 1:
                return [self._fail(error)]
            return [one for i in range(len(self.presets)) for one in self._alone(i).perform(watcher, catch)]
        return []

    def _alone(self, i: int) -> "_Block":
        part = self.resume and self.resume.rows(slice(i * len(self.seeds), (i + 1) * len(self.seeds)))
        return replace(self, presets=[self.presets[i]], resume=part, room=0)

    def _keep(self, checkpoint: Checkpoint) -> None:
        for i, preset in enumerate(self.presets):
            part = checkpoint.rows(slice(i * len(self.seeds), (i + 1) * len(self.seeds)))
            self.store.keep(self.names[preset], self.seeds, part.arrays())

    def _store(self, datasets: Sequence[xr.Dataset], seconds: float) -> None:
        for preset, data in zip(self.presets, datasets, strict=True):
            absorb(self.paper, preset, data, seconds / len(self.presets), self.store)

    def _fail(self, error: Exception) -> Result:
        words = f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))
        settings = self.presets[0].settings()
        self.store.fail(self.names[self.presets[0]], {"error": words, "settings": settings, "trace": trace})
        return Result(self.presets[0], "failed", words)


def compute(
    paper: Paper, presets: Sequence[Settings], seeds: range, watcher: Watcher, **further: Any
) -> tuple[list[xr.Dataset], float]:
    """Some seeds of cells of one shape, and the seconds it took."""
    make_room()
    if resume := further.get("resume"):
        watcher.say(f"{label(paper.name, presets)} goes on at step {resume.step}")
    steps: int = presets[0].steps  # type: ignore[attr-defined]
    watcher.begin(label(paper.name, presets), steps, len(seeds), len(presets))
    system, records = paper.system_of(presets[0]), paper.records(presets[0])
    watcher.recorded([int(step) for step in records], system.loss)
    began = time.monotonic()
    try:
        data = rollouts(
            system, presets, seeds, records,
            watch=lambda progress: watcher.progress(progress.step, progress.loss), **further,
        )  # fmt: skip
    except BaseException:
        watcher.drop()
        raise
    watcher.end()
    return data, time.monotonic() - began


def absorb(paper: Paper, preset: Settings, fresh: xr.Dataset, seconds: float, store: Store) -> None:
    """Stores further seeds of a run; the caller holds its lock."""
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
