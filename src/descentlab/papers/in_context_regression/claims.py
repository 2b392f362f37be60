"""The claims of in_context_regression: Theorems 4.1 and 4.2, the shifts of Section 4.2, and some of ours."""

from collections.abc import Callable
from functools import partial

import numpy as np
import xarray as xr

from descentlab.judging import Assumption, Claim, Interval, Mutant, is_one_of, setting
from descentlab.papers.in_context_regression import measures
from descentlab.papers.in_context_regression.measures import SHIFTS
from descentlab.papers.in_context_regression.runs import ANYWHERE, DRAWN, LARGE, SCALES
from descentlab.papers.in_context_regression.runs import LENGTHS as GRID
from descentlab.papers.in_context_regression.setting import LENGTHS

claim = partial(Claim, presets=("tiny", "quick", "paper"))

# ---------------------------------------------------------------- what is assumed

SMALL = Assumption(
    "s^2 |Gamma| sqrt(d) < 2", lambda p: p.start_over_bound < 1, lambda p: 2 * p.start_over_bound
)
SETTING = (is_one_of("algorithm", "flow"), is_one_of("start", "theorem"), is_one_of("balance", 1.0))
NOISELESS = is_one_of("noise", 0.0)
THEOREM = (*SETTING, NOISELESS, SMALL)

# ---------------------------------------------------------------- mutants

STOPPED = Mutant("stopped on the plateau", {"steps": 20})
UNBALANCED = Mutant("a heavier W_KQ at the start", {"balance": 10.0})


def altered(name: str, change: Callable[[xr.Dataset], xr.Dataset]) -> Mutant:
    """The data of a world in which every run is changed."""
    return Mutant(name, alter=lambda runs: {k: change(run) for k, run in runs.items()})


def slow_decay(run: xr.Dataset) -> xr.Dataset:
    """An excess loss that falls like t^-12: as far, in the end, but by a power law."""
    law = np.maximum(run["step"].astype(float), 1.0) ** -12.0
    return run.assign(excess_loss=xr.ones_like(run["excess_loss"]) * law)


def slow_in_M(run: xr.Dataset) -> xr.Dataset:
    """A test error whose part above its floor falls like M^-1/2."""
    floor = run["error"].isel(length=-1)
    law = xr.DataArray([*(M**-0.5 for M in LENGTHS), 0.0], dims="length")
    return run.assign(error=floor + law)


def slow_in_N(run: xr.Dataset) -> xr.Dataset:
    """A test error with one power of N less."""
    return run.assign(error=run["error"] * setting(run, "N"))


def swapped(run: xr.Dataset, shift: str, other: str) -> xr.Dataset:
    """The errors under one shift in the place of those under another."""
    own = run["relative_error"].copy()
    own[{"shift": SHIFTS.index(shift)}] = own.isel(shift=SHIFTS.index(other))
    return run.assign(relative_error=own)


def slow_decay_rate(run: xr.Dataset) -> xr.Dataset:
    """A limit that is half as curved."""
    return run.assign(rate=run["rate"] / 2)


# ---------------------------------------------------------------- training

TRAINING = (
    claim(
        "flow_converges_to_the_limit",
        "Theorem 4.1",
        "W_PV and W_KQ end within 1e-6 of tr(Gamma^-2)^(1/4) [0 0; 0' 1] and tr(Gamma^-2)^(-1/4) "
        "[Gamma^-1 0; 0' 0].",
        measures.last_distance,
        Interval(high=1e-6),
        assumes=THEOREM,
        mutants=(STOPPED, UNBALANCED),
        margin="Far below 1/N^2, which another Gamma would show, and above the solver's error.",
    ),
    claim(
        "loss_reaches_its_minimum",
        "Theorem 4.1",
        "The loss ends within 1e-9 of (tr Lambda - tr Lambda^2 Gamma^-1) / 2, the least of all weights.",
        measures.last_loss,
        Interval.around(0.0, 1e-9),
        assumes=THEOREM,
        mutants=(STOPPED, altered("a loss 0.1 % higher", lambda run: run.assign(loss=1.001 * run["loss"]))),
        margin="The square of the distance, with room for rounding.",
    ),
    claim(
        "no_weights_do_better",
        "Theorem 4.1, global minimum",
        "From Gaussian weights in all blocks, the loss of no seed ever falls below that least value.",
        measures.lowest_loss,
        Interval(low=-1e-9),
        runs={"run": ANYWHERE},
        assumes=(is_one_of("algorithm", "flow"),),
        mutants=(
            altered("a minimum 1 % higher", lambda run: run.assign(least_loss=1.01 * run["least_loss"])),
        ),
        margin="A bound, up to rounding; one seed below it would refute it.",
    ),
    claim(
        "every_start_reaches_the_minimum",
        "ours: beyond Assumption 3.3",
        "From Gaussian weights in all blocks the flow still comes within 1e-6 of the least loss.",
        measures.share_at_the_minimum,
        Interval(low=0.95),
        runs={"run": ANYWHERE},
        assumes=(is_one_of("algorithm", "flow"),),
        mutants=(STOPPED,),
        margin="A share of seeds: one in twenty may be late.",
    ),
    claim(
        "parameters_stay_in_block_form",
        "Lemma 5.2",
        "All entries but u, the last of W_PV, and the first d x d of W_KQ stay at zero.",
        measures.largest("outside"),
        Interval(high=1e-9),
        assumes=SETTING,
        mutants=(
            Mutant("Gaussian weights in all blocks", {"start": "anywhere"}),
            Mutant("fresh prompts", {"algorithm": "online", "steps": 100}),
        ),
        margin="Zero, up to rounding that may add up along a run.",
    ),
    claim(
        "balance_is_kept",
        "Theorem 4.1, its proof: u^2 = tr(U'U)",
        "u^2 and |U|_F^2 stay equal, to one in a million.",
        measures.largest("imbalance"),
        Interval(high=1e-6),
        assumes=SETTING,
        mutants=(UNBALANCED, Mutant("long steps", {"algorithm": "descent", "eta": 0.1, "steps": 200})),
        margin="Equal for the flow; the solver's tolerance is 1e-10 a step.",
    ),
    claim(
        "convergence_is_exponential",
        "Lemma 5.4 (PL inequality)",
        "Near the limit the excess loss falls like exp(-c t^p) with p = 1.",
        measures.decay,
        Interval.around(1.0, 0.1),
        assumes=THEOREM,
        mutants=(altered("a power of t", slow_decay),),
        margin="A tenth: p = 0 is a power law, and other modes fade on the way.",
    ),
    claim(
        "rate_is_the_least_curvature",
        "ours: the Hessian at Theorem 4.1's limit",
        "c is twice the least positive eigenvalue of the Hessian at the limit.",
        measures.decay_rate,
        Interval.around(1.0, 0.05),
        assumes=SETTING,
        mutants=(altered("half the curvature", slow_decay_rate),),
        margin="A twentieth: the next eigenvalue is further away than that in all presets.",
    ),
    claim(
        "plateau_lasts_log_1_over_s",
        "ours: Lemma 5.2 linearised at zero",
        "The time until u is half its limit grows like log(1/s) / |Lambda^2|_F.",
        measures.plateau,
        Interval.around(1.0, 0.02),
        runs=SCALES.runs,
        assumes=SETTING,
        mutants=(altered("twice the growth", lambda run: run.assign(growth=2 * run["growth"])),),
        margin="Exact as s goes to zero; a fiftieth for what is left of a finite start.",
    ),
    claim(
        "large_start_converges_too",
        "ours: beyond Theorem 4.1's bound on s",
        "From a hundred times the preset's s, beyond the bound s^2 |Gamma| sqrt(d) < 2, the flow ends within "
        "1e-6 of the same limit.",
        measures.last_distance,
        Interval(high=1e-6),
        runs={"run": LARGE},
        assumes=SETTING,
        mutants=(Mutant("stopped at once", {"steps": 1}),),
        margin="As for the small start.",
    ),
)

# ---------------------------------------------------------------- test prompts

TESTING = (
    claim(
        "error_against_test_length",
        "Theorem 4.2",
        f"On drawn test prompts of {LENGTHS[0]} to {LENGTHS[-1]} points the squared error is "
        "(1/M) tr(Sigma Gamma^-2 Lambda) plus the part of order 1/N^2.",
        measures.drawn_error,
        Interval.around(1.0, 0.1),
        runs={"run": DRAWN},
        assumes=THEOREM,
        mutants=(STOPPED,),
        margin="A tenth: what the drawn prompts of some seeds can tell.",
    ),
    claim(
        "error_falls_like_1_over_M",
        "Theorem 4.2",
        "The exact test error above that of infinite prompts goes like 1/M.",
        measures.test_length,
        Interval.around(-1.0, 0.05),
        assumes=THEOREM,
        mutants=(altered("like M^-1/2", slow_in_M),),
        margin="A tenth of the distance to 1/sqrt(M).",
    ),
    claim(
        "floor_falls_like_1_over_N2",
        "Theorem 4.2",
        "The error on infinite test prompts goes like 1/N^2 in the length of training prompts.",
        measures.in_N(measures.floor),
        Interval.around(-2.0, 0.1),
        runs=GRID.runs,
        assumes=THEOREM,
        mutants=(altered("like 1/N", slow_in_N),),
        margin="A tenth of the distance to 1/N.",
    ),
    claim(
        "task_shift_is_harmless",
        "Section 4.2, task shifts",
        "With all w in the direction of the least variance, the relative error still goes like 1/M for "
        "M = N points.",
        measures.in_N(measures.error_under("task")),
        Interval.around(-1.0, 0.1),
        runs=GRID.runs,
        assumes=THEOREM,
        mutants=(altered("covariates shifted too", partial(swapped, shift="task", other="covariate")),),
        margin="A tenth of the exponent; a shift that harms leaves 0.",
    ),
    claim(
        "query_shift_is_harmless",
        "Section 4.2, query shifts",
        "With the query's variances in reverse order and four times as large, the relative error still goes "
        "like 1/M for M = N points.",
        measures.in_N(measures.error_under("query")),
        Interval.around(-1.0, 0.1),
        runs=GRID.runs,
        assumes=THEOREM,
        mutants=(altered("covariates shifted too", partial(swapped, shift="query", other="covariate")),),
        margin="A tenth of the exponent; a shift that harms leaves 0.",
    ),
    claim(
        "covariate_shift_fails",
        "Section 4.2, covariate shifts",
        "With inputs c times as large the answer is c^2 times the label, however long the prompts: the "
        "relative error goes to (c^2 - 1)^2.",
        measures.covariate_error,
        Interval.around(1.0, 0.02),
        runs=GRID.runs,
        assumes=(*THEOREM, Assumption("c is not 1", lambda p: p.c != 1.0)),
        mutants=(altered("no shift", partial(swapped, shift="covariate", other="none")),),
        margin="A fiftieth, for prompts that are finite.",
    ),
)

CLAIMS = (*TRAINING, *TESTING)
