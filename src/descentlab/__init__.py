"""descentlab: the calibrated judge of claims about how networks train, and a laboratory of theory papers.

The public nouns are below; they are imported when they are first used, so that the command line starts
quickly. Where JAX is not installed, `from descentlab import *` gives those that need none.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from descentlab._lazy import lazily

__version__ = "0.1.0"

# fmt: off
if TYPE_CHECKING:
    from descentlab.drawing import band as band, legend as legend, panels as panels, style as style
    from descentlab.engine import (
        Dynamics as Dynamics, Objective as Objective, Probe as Probe, Settings as Settings, Stage as Stage,
        System as System, Training as Training, descent as descent, empirical as empirical, flow as flow,
        log_spaced as log_spaced, online as online, optimizer as optimizer, parameter as parameter,
        population as population, preset as preset, probe as probe, rollout as rollout, staged as staged,
    )
    from descentlab.judging import (
        Assumption as Assumption, Claim as Claim, Estimate as Estimate, Grid as Grid, Interval as Interval,
        Mutant as Mutant, Outcome as Outcome, Theorem as Theorem, Verdict as Verdict, around as around,
        at_least as at_least, at_most as at_most, data_mutant as data_mutant, difference as difference,
        exact as exact, exceeds as exceeds, exponent as exponent, exponential_decay as exponential_decay,
        hits_before as hits_before, hitting_time as hitting_time, is_one_of as is_one_of, judge as judge,
        judge_family as judge_family, mean as mean, median as median, mutant as mutant,
        power_law as power_law, share as share, size_exponent as size_exponent, stretch as stretch,
        theorem as theorem,
    )
    from descentlab.papers import (
        Deviation as Deviation, Experiment as Experiment, Figure as Figure, Paper as Paper, Study as Study,
        Table as Table, figure as figure, load as load, table as table,
    )
    from descentlab.running import Run as Run, run as run
    from descentlab.store import Store as Store
    from descentlab.sweeping import Sweep as Sweep, sweep as sweep
# fmt: on

_LIGHT = {
    "judging": "Assumption Claim Estimate Grid Interval Mutant Outcome Theorem Verdict around at_least "
    "at_most data_mutant difference exact exceeds exponent exponential_decay hits_before hitting_time "
    "is_one_of judge judge_family mean median mutant power_law share size_exponent stretch theorem",
    "store": "Store",
}
_WITH_JAX = {
    "drawing": "band legend panels style",
    "engine": "Dynamics Objective Probe Settings Stage System Training descent empirical flow log_spaced "
    "online optimizer parameter population preset probe rollout staged",
    "papers": "Deviation Experiment Figure Paper Study Table figure load table",
    "running": "Run run",
    "sweeping": "Sweep sweep",
}
HOMES = _LIGHT | (_WITH_JAX if find_spec("jax") else {})
__all__ = sorted(" ".join(HOMES.values()).split())  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    return lazily(__name__, _LIGHT | _WITH_JAX, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
