"""Campaigns: whatever the store lacks of some runs, made by a fleet.

Cells that failed are left alone; cells that another process holds are waited for, and it may be the other
way round: two processes with the same campaign share the work.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from descentlab.fleet import Fleet, Here, Processes
from descentlab.paper import Paper
from descentlab.preset import Settings
from descentlab.store import Store, writing
from descentlab.work import Watcher, identify, label, plan

BUSY_SECONDS = 1.0


@dataclass
class Tally:
    """How a sweep stands. `failed` has the error of each cell that raised."""

    cells: int
    stored: int = 0
    done: int = 0
    busy: int = 0
    failed: dict[Settings, str] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> int:
        """The cells still to come."""
        return self.cells - self.stored - self.done - len(self.failed)


class View(Watcher):
    """A watcher of sweeps."""

    def overview(self, tally: Tally) -> None:
        """The sweep stands like this."""


def complete(
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
    tally = Tally(len(presets))

    def lacking(candidates: Iterable[Settings], skip: bool) -> list[Settings]:
        found = [p for p in candidates if store.seeds(names[p]) < seeds]
        for preset in found if skip else ():
            if (error := store.failure(names[preset])) is not None:
                tally.failed[preset] = error
        return [p for p in found if p not in tally.failed]

    todo = lacking(presets, skip=not retry)
    tally.stored = len(presets) - len(todo) - len(tally.failed)
    while todo:
        tasks = plan(paper, todo, seeds, store, _parts(paper, todo[0], fleet))
        who = Here() if len(tasks) == 1 and isinstance(fleet, Processes) else fleet
        tally.busy, before = 0, tally.left
        for results in who.perform(tasks, store, lambda: view.overview(tally)):
            for result in results:
                tally.busy += result.outcome == "busy"
                tally.done += result.outcome == "done"
                if result.outcome == "failed":
                    tally.failed[result.preset] = result.error
                    if store.failure(names[result.preset]) is None:
                        about = {"error": result.error, "settings": result.preset.settings()}
                        store.fail(names[result.preset], about)
                    view.say(f"failed: {label(paper.name, [result.preset])}: {result.error}")
            view.overview(tally)
        held = len(todo)
        todo = lacking(todo, skip=True)
        if todo and tally.left == before and len(todo) == held:
            view.overview(tally)
            time.sleep(BUSY_SECONDS)  # other processes have all that is left
    return tally


def _parts(paper: Paper, preset: Settings, fleet: Fleet) -> int:
    """How many tasks a fleet wants: here, one program uses all cores, unless it is that of a flow."""
    here = isinstance(fleet, Here | Processes) and paper.system.divisible(preset)
    return 1 if here else fleet.size()
