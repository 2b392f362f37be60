"""The doctor: is this installation sound, and are the data and the store whole?"""

from pathlib import Path

import jax

from descentlab import numerics
from descentlab.data import DATASETS, look
from descentlab.provenance import provenance
from descentlab.store import Store


def examine(store: Path | None) -> tuple[list[str], list[str]]:
    """What there is, a line each, and what is wrong with it."""
    numerics.configure()
    here, wrong = Store(store), numerics.miscompilations()
    data = [look(name) for name in DATASETS]
    damaged = [one.problem for one in data if one.problem]
    ill = here.problems()
    facts = {
        **provenance()["versions"],
        "devices": ", ".join(str(device) for device in jax.devices()),
        "cache": str(numerics.cache_dir()),
        "self-test": "WRONG NUMBERS" if wrong else "compiled programs agree with NumPy",
        "data found": "; ".join(
            f"{one.dataset.name} {one.status}" + (f" in {one.places}" if one.status == "found" else "")
            for one in data
        ),
        "store": f"{here.path.resolve()}: {len(here.ids())} runs, {len(ill)} problems",
    }
    return [f"{name:12s} {value}" for name, value in facts.items()], [*wrong, *damaged, *ill]
