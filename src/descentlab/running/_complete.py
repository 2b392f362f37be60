"""The one way in which missing runs of a store are made.

Several processes may complete the same runs in one store: each takes cells that no other one holds, and
waits for the rest.
"""

import contextlib
import time
from collections.abc import Iterable

from descentlab.engine import Settings
from descentlab.papers import Paper
from descentlab.running._forecast import announce
from descentlab.running._plan import identify, label, plan
from descentlab.running._pool import Pool, Processes
from descentlab.running._progress import Progress, Tally
from descentlab.store import Store, writing

BUSY_SECONDS = 1.0  # between two looks at cells that other processes hold


def complete(
    paper: Paper,
    presets: Iterable[Settings],
    seeds: int,
    store: Store,
    *,
    pool: Pool | None = None,
    progress: Progress | None = None,
    retry: bool = False,
) -> Tally:
    """Makes the runs that the store lacks, until every cell is there or has failed; returns the tally.

    **Arguments:**

    - `presets`, `seeds`: the runs that are wanted, and the seeds that each shall have at least.
    - `pool`: who computes. By default worker processes on this machine, or this process for a few jobs.
    - `progress`: a display, for instance.
    - `retry`: compute cells again that failed before. By default they count as failed.
    """
    pool, progress = pool or Processes(), progress or Progress()
    names = {preset: identify(paper, preset) for preset in presets}
    tally, todo = Tally(len(names), runs=frozenset(names.values())), dict[Settings, str]()
    with writing(store.path):
        store.path.mkdir(parents=True, exist_ok=True)
    for preset, name in names.items():
        if store.seeds(name) >= seeds:
            tally.stored += 1
            continue
        if retry:
            store.forgive(name)
        if (error := store.failure(name)) is None:
            todo[preset] = name
        else:
            tally.failed[preset] = error

    def settle(preset: Settings, error: str | None = None) -> None:
        """Counts a cell as done, or as failed where there is an error."""
        del todo[preset]
        if error is None:
            tally.done += 1
        else:
            tally.failed[preset] = error
            progress.say(f"failed: {label(paper.name, [preset])}: {error}")
        progress.overview(tally)

    if progress.forecast:
        announce(paper, tally.cells, list(todo), seeds, progress)
    progress.overview(tally)
    waiting = False
    while todo:
        # Workers are not started for cells that other processes hold.
        if free := [preset for preset, name in todo.items() if store.free(name)]:
            # On one machine a program uses all cores, unless it is that of a flow.
            whole = pool.local and paper.system_of(free[0]).divisible(free[0])
            jobs = plan(paper, free, seeds, store, 1 if whole else pool.size())
            with contextlib.closing(pool.perform(jobs, store, progress)) as results:
                for result in results:
                    if result.outcome == "done":
                        settle(result.preset)
                    elif result.outcome == "failed":
                        # A worker that died, or that does not see the store, has recorded nothing.
                        if store.failure(names[result.preset]) is None:
                            about = {"error": result.error, "settings": result.preset.settings()}
                            store.fail(names[result.preset], about)
                        settle(result.preset, result.error)
        elif not waiting:
            waiting = True
            progress.say(f"waiting for another process that works on {next(iter(todo.values()))}")
        for preset, name in list(todo.items()):  # other processes had these
            if store.seeds(name) >= seeds:
                settle(preset)
            elif (error := store.failure(name)) is not None:
                settle(preset, error)
        if todo:
            time.sleep(BUSY_SECONDS)
            progress.tick()
    return tally
