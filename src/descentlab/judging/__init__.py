"""What a claim says, what data say, and what follows. NumPy, SciPy and xarray only, no JAX."""

# fmt: off
from descentlab.judging._claims import (
    Assumption as Assumption, Claim as Claim, data_mutant as data_mutant, Datasets as Datasets,
    is_one_of as is_one_of, judge as judge, judge_family as judge_family, Mutant as Mutant, mutant as mutant,
    Theorem as Theorem, theorem as theorem,
)
from descentlab.judging._crossings import (
    crossing as crossing, first_crossing as first_crossing, first_step as first_step,
    hitting_time as hitting_time, log_gap as log_gap, log_ratio as log_ratio, read as read,
)
from descentlab.judging._estimates import (
    Broken as Broken, check_finite as check_finite, difference as difference, Estimate as Estimate,
    exact as exact, mean as mean, median as median, share as share, student as student,
    trajectories as trajectories,
)
from descentlab.judging._exponents import (
    exponent as exponent, FEWEST_SIZES as FEWEST_SIZES, size_exponent as size_exponent, slopes as slopes,
)
from descentlab.judging._grids import Grid as Grid, setting as setting, times as times
from descentlab.judging._intervals import (
    around as around, at_least as at_least, at_most as at_most, Bounds as Bounds, Hull as Hull,
    Interval as Interval, Number as Number, Point as Point, Spread as Spread, Student as Student,
    Unsettled as Unsettled,
)
from descentlab.judging._model_choice import (
    preference as preference, rivals as rivals, stretch as stretch, stretches as stretches,
)
from descentlab.judging._recipes import (
    exceeds as exceeds, exponential_decay as exponential_decay, hits_before as hits_before,
    power_law as power_law,
)
from descentlab.judging._verdicts import holm as holm, Outcome as Outcome, Verdict as Verdict
