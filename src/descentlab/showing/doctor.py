"""The doctor: is this installation sound, and are the data and the store whole?"""

from pathlib import Path

import jax

from descentlab.data import DATASETS, look
from descentlab.engine import cache_dir, miscompilations
from descentlab.store import Store, provenance


def examine(store: Path | None) -> tuple[list[str], list[str]]:
    """What there is, a line each, and what is wrong with it."""
    here, wrong = Store(store), miscompilations()
    data = [look(name) for name in DATASETS]
    damaged = [one.problem for one in data if one.problem]
    ill = here.problems()
    facts = {
        **provenance()["versions"],
        "devices": ", ".join(str(device) for device in jax.devices()),
        "cache": str(cache_dir()),
        "self-test": "WRONG NUMBERS" if wrong else "compiled programs agree with NumPy",
        "data found": "; ".join(
            f"{one.dataset.name} {one.status}" + (f" in {one.places}" if one.status == "found" else "")
            for one in data
        ),
        "store": f"{here.path.resolve()}: {len(here.ids())} runs, {len(ill)} problems",
    }
    return [f"{name:12s} {value}" for name, value in facts.items()], [*wrong, *damaged, *ill]
