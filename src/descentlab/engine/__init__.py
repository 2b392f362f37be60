"""Trajectories: settings, objectives, dynamics, probes, and the compiled programs that roll them out."""

from descentlab.engine import _platform

# Before anything is compiled: JAX must be a sound one, and be set up.
_platform.refuse_wrong_jax()
_platform.configure()

# fmt: off
from descentlab.engine._curvature import (
    extreme_eigenvalues as extreme_eigenvalues, Extremes as Extremes,
    extremes_with_vector as extremes_with_vector, PRODUCTS as PRODUCTS,
)
from descentlab.engine._dynamics import Descent as Descent, descent as descent, Dynamics as Dynamics
from descentlab.engine._flow import flow as flow
from descentlab.engine._objectives import (
    empirical as empirical, Objective as Objective, online as online, population as population,
)
from descentlab.engine._optimizers import (
    BY_SIGN as BY_SIGN, optimizer as optimizer, OPTIMIZERS as OPTIMIZERS, shrunk as shrunk,
)
from descentlab.engine._platform import (
    cache_dir as cache_dir, configure as configure, cores as cores, float_dtype as float_dtype,
    largest_divisor as largest_divisor, make_room as make_room,
    OneThread as OneThread,
)
from descentlab.engine._plugin import chosen as chosen, fingerprint as fingerprint
from descentlab.engine._probes import log_spaced as log_spaced, Probe as Probe, probe as probe
from descentlab.engine._program import Loaded as Loaded, System as System
from descentlab.engine._random import bits as bits, normal as normal, thinning as thinning, words as words
from descentlab.engine._rollout import (
    PIECE_SECONDS as PIECE_SECONDS,
    begun as begun, Checkpoint as Checkpoint, rollout as rollout, rollouts as rollouts,
)
from descentlab.engine._settings import (
    parameter as parameter, preset as preset, Settings as Settings,
    Training as Training, TRUE as TRUE,
)
from descentlab.engine._stages import Stage as Stage, Staged as Staged, staged as staged
