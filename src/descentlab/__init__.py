"""descentlab: a laboratory for the training dynamics of transformers.

The public nouns are below; they are imported when first used, so that the command line
starts quickly.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from descentlab import numerics

numerics.refuse_wrong_jax()

__version__ = "0.1.0"

if TYPE_CHECKING:
    from descentlab.claim import Assumption as Assumption
    from descentlab.claim import Claim as Claim
    from descentlab.claim import Mutant as Mutant
    from descentlab.claim import Outcome as Outcome
    from descentlab.claim import Verdict as Verdict
    from descentlab.claim import judge as judge
    from descentlab.dynamics import Dynamics as Dynamics
    from descentlab.dynamics import descent as descent
    from descentlab.estimate import Estimate as Estimate
    from descentlab.estimate import Interval as Interval
    from descentlab.objective import Objective as Objective
    from descentlab.objective import empirical as empirical
    from descentlab.paper import Paper as Paper
    from descentlab.paper import load as load
    from descentlab.probe import Probe as Probe
    from descentlab.probe import log_spaced as log_spaced
    from descentlab.rollout import rollout as rollout
    from descentlab.staged import Stage as Stage
    from descentlab.staged import staged as staged
    from descentlab.store import Store as Store
    from descentlab.system import System as System

_HOME = {
    "Assumption": "claim",
    "Claim": "claim",
    "Mutant": "claim",
    "Outcome": "claim",
    "Verdict": "claim",
    "judge": "claim",
    "Dynamics": "dynamics",
    "descent": "dynamics",
    "Estimate": "estimate",
    "Interval": "estimate",
    "Objective": "objective",
    "empirical": "objective",
    "Paper": "paper",
    "load": "paper",
    "Probe": "probe",
    "log_spaced": "probe",
    "System": "system",
    "rollout": "rollout",
    "Stage": "staged",
    "staged": "staged",
    "Store": "store",
}


class _Package(ModuleType):
    """The package. Two nouns, rollout and staged, are also names of modules; the noun is what one gets."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'descentlab' has no attribute {name!r}")
    return getattr(importlib.import_module(f"descentlab.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOME, "__version__"])
