"""Campaigns: whatever the store lacks of some runs, made by a fleet.

Cells that failed are left alone; cells that another process holds are waited for, and it may be the other
way round: two processes with the same campaign share the work. How it stands is read off the store, so that a
cell counts as soon as it is there, whoever made it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from descentlab.engine import Settings
from descentlab.papers import Paper
from descentlab.running._plan import identify, label, plan
from descentlab.running._pool import Fleet, Here, Processes
from descentlab.running._progress import Watcher
from descentlab.store import Store, writing

BUSY_SECONDS = 1.0
LOOKING = 0.05  # the share of time spent on looking what has come: stores may be large, and their disks slow


@dataclass
class Tally:
    """How a campaign stands. `failed` has the error of each cell that raised, `runs` the names of all."""

    cells: int
    stored: int = 0
    done: int = 0
    failed: dict[Settings, str] = field(default_factory=dict)
    runs: frozenset[str] = frozenset()
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> int:
        """The cells still to come."""
        return self.cells - self.stored - self.done - len(self.failed)


class View(Watcher):
    """A watcher of campaigns."""

    def overview(self, tally: Tally) -> None:
        """The campaign stands like this."""


def work_through(
    paper: Paper,
    presets: Iterable[Settings],
    seeds: int,
    store: Store,
    fleet: Fleet | None = None,
    view: View | None = None,
    retry: bool = False,
) -> Tally:
    """Has a fleet make what the store lacks, until every cell is there or has failed.

    Cells that failed before are left alone unless `retry`.
    """
    presets, fleet, view = list(dict.fromkeys(presets)), fleet or Processes(), view or View()
    names = {preset: identify(paper, preset) for preset in presets}
    with writing(store.path):
        store.path.mkdir(parents=True, exist_ok=True)
    tally = Tally(len(presets), runs=frozenset(names.values()))

    def lacking(candidates: Iterable[Settings]) -> list[Settings]:
        found = [p for p in candidates if store.seeds(names[p]) < seeds]
        errors = {p: store.failure(names[p]) for p in found}
        tally.failed |= {p: error for p, error in errors.items() if error is not None}
        return [p for p in found if p not in tally.failed]

    if retry:
        for preset in presets:
            store.forgive(names[preset])
    todo = lacking(presets)
    tally.stored = len(presets) - len(todo) - len(tally.failed)
    told, next_look = set(tally.failed), 0.0

    def look(at_once: bool = False) -> None:
        nonlocal todo, next_look
        began = time.monotonic()
        if at_once or began > next_look:
            todo = lacking(todo)
            tally.done = tally.cells - tally.stored - len(tally.failed) - len(todo)
            next_look = time.monotonic() + (time.monotonic() - began) / LOOKING
        for preset in [p for p in tally.failed if p not in told]:
            view.say(f"failed: {label(paper.name, [preset])}: {tally.failed[preset]}")
            told.add(preset)
        view.overview(tally)

    view.overview(tally)
    while todo:
        # Workers are not started for cells that other processes hold, as all may be at the end.
        free = [p for p in todo if store.free(names[p])]
        if not free:
            look(at_once=True)
            time.sleep(BUSY_SECONDS)
            continue
        tasks = plan(paper, free, seeds, store, _parts(paper, todo[0], fleet))
        who = Here() if len(tasks) <= 1 and isinstance(fleet, Processes) else fleet
        for results in who.perform(tasks, store, look):
            for result in results:
                # A worker that was lost, or one that does not see the store, has recorded nothing.
                if result.outcome == "failed" and store.failure(names[result.preset]) is None:
                    about = {"error": result.error, "settings": result.preset.settings()}
                    store.fail(names[result.preset], about)
            look()
        look(at_once=True)
    return tally


def _parts(paper: Paper, preset: Settings, fleet: Fleet) -> int:
    """How many tasks a fleet wants: here, one program uses all cores, unless it is that of a flow."""
    here = isinstance(fleet, Here | Processes) and paper.system_of(preset).divisible(preset)
    return 1 if here else fleet.size()
