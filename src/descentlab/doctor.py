"""The doctor: is this installation sound, and is the store whole?"""

from pathlib import Path

import jax

from descentlab import numerics
from descentlab.store import Store, provenance


def examine(store: Path | None) -> tuple[list[str], list[str]]:
    """What there is, a line each, and what is wrong with it."""
    numerics.configure()
    here, wrong = Store(store), numerics.miscompilations()
    problems = [*wrong, *here.problems()]
    facts = {
        **provenance()["versions"],
        "devices": ", ".join(str(device) for device in jax.devices()),
        "cache": str(numerics.cache_dir()),
        "self-test": "WRONG NUMBERS" if wrong else "compiled programs agree with NumPy",
        "store": f"{here.path.resolve()}: {len(here.ids())} runs, {len(problems) - len(wrong)} problems",
    }
    return [f"{name:12s} {value}" for name, value in facts.items()], problems
