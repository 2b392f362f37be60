"""The claims of sparse_bigrams: Theorems 3.1 and 4.1, and the figures."""

from collections.abc import Callable
from functools import partial

import numpy as np
import xarray as xr

from descentlab.judging import Assumption, Claim, Datasets, Interval, Mutant, is_one_of, setting
from descentlab.papers.sparse_bigrams import measures
from descentlab.papers.sparse_bigrams.runs import (
    ACCURACY,
    ALL_WEIGHTS,
    AT_SCALE,
    CHEAPEST_IN_T,
    LINEAR,
    POPULATION,
    PROXIMAL,
    REAL_AT_SCALE,
    SAME_SIMULATED,
    SCRATCH_AND_TUNED,
    SGD,
    SGD_ROUNDED,
    SIMULATED,
    SMALL_STEP,
    SOFTMAX,
    STAGE_ONE_IN_T,
    STAGE_TWO_IN_N,
    STAGE_TWO_IN_Q,
    STAGE_TWO_IN_T,
)

claim = partial(Claim, presets=("tiny", "quick", "paper"))
EVERYWHERE = ("tiny", "quick", "paper", "scale")

# ---------------------------------------------------------------- what is assumed

LINEAR_ATTENTION = is_one_of("attention", "linear")
FROM_SCRATCH = is_one_of("start", "scratch")
GD = is_one_of("optimizer", "gd")
IN_O = (
    Assumption("batch / (T eta_1)", lambda p: True, lambda p: p.batch / (p.T * p.eta_1), exact=False),
    Assumption("lam / (level K_P/Q)", lambda p: True, lambda p: p.lam * p.Q / (p.level * p.K_P), exact=False),
)
THEOREM = (LINEAR_ATTENTION, FROM_SCRATCH, GD, *IN_O)

# ---------------------------------------------------------------- mutants

# Exact gradients recover everything, with any step.
EXACT = {"algorithm": "population", "reduced": False}
DEAD = Mutant("lambda kills A", {"lam": 1.0})


def later(over: str, law: Callable[[float], float], only: str = "") -> Callable[[Datasets], Datasets]:
    """The data of a world in which runs (of this kind only) take longer by a function of the size."""

    def delayed(run: xr.Dataset) -> xr.Dataset:
        return run.assign_coords(step=run["step"] * law(float(setting(run, over))))

    return lambda runs: {k: delayed(v) if k.startswith(only) else v for k, v in runs.items()}


def stretched(over: str, law: Callable[[float], float], only: str = "") -> Mutant:
    """The mutant whose times grow with a size."""
    return Mutant(f"times grow with {over}", alter=later(over, law, only))


def noise_of_the_batch(runs: Datasets) -> Datasets:
    """The data of a world in which noise over signal in A depends on the batch alone, not on T."""

    def planted(run: xr.Dataset) -> xr.Dataset:
        ratio = 8 / np.sqrt(measures.samples_a_step(run))
        return run.assign(Delta_A=ratio * run["a_A"] * run["attention_size"])

    return {k: planted(v) for k, v in runs.items()}


def as_for_small_batches(runs: Datasets) -> Datasets:
    """The data of a world in which larger batches do not help."""
    return {
        k: v.assign(value_error=v["value_error"] * np.sqrt(measures.samples_a_step(v)))
        for k, v in runs.items()
    }


# ---------------------------------------------------------------- one task

ONE_TASK = (
    claim(
        "population_stays_on_the_line",
        "Lemma B.7; section 3",
        "To rounding, population descent is the process of two numbers, V = mu1' + a_V (P - mu1') and "
        "A = 11'/T + a_A (Q - 11'/T).",
        measures.distance_from_line,
        Interval(high=1e-9),
        runs={"full": ALL_WEIGHTS, "line": POPULATION},
        assumes=(*THEOREM, is_one_of("precision", 64)),
        mutants=(Mutant("fresh batches", runs={"full": {"algorithm": "sgd"}}),),
        margin="Rounding errors of 64-bit numbers accumulate far below 1e-9 over the run.",
    ),
    claim(
        "stage_one_ends",
        "Theorem 3.1",
        "For at least half of the seeds stage 1 ends: a signal reaches Theta(1/(QN)), and not its mirror "
        "image.",
        measures.stage_one_share,
        Interval(low=0.5),
        runs={"run": PROXIMAL},
        assumes=THEOREM,
        mutants=(Mutant("a step too small to get there", {"eta_1": 1e-6}),),
        margin="The theorem speaks of high probability with enough samples; one half is what chance gives.",
    ),
    claim(
        "value_noise_stays_small",
        "Figure 3",
        "Where stage 1 ends, |Delta_V| stays below a fifth of |P - mu1'| all along the proximal run.",
        measures.value_noise,
        Interval(high=0.2),
        runs={"run": PROXIMAL},
        assumes=THEOREM,
        mutants=(Mutant("batches of one", {"batch": 1, "start": "line"}),),
        margin="Small: a fifth of what is to be learned.",
    ),
    claim(
        "proximal_recovers",
        "Figure 1; Theorem 3.1",
        "Where stage 1 ends, both |A - Q|/|Q| and |V - P|/|P - mu1'| are below a tenth after rounding and "
        "the last stage.",
        measures.recovery,
        Interval(high=0.1),
        runs={"run": PROXIMAL},
        assumes=THEOREM,
        mutants=(DEAD,),
        margin="Recovered: a tenth of the truth's size, which no eye tells from none in a heatmap.",
    ),
    claim(
        "sgd_fails_with_large_step",
        "Figure 1",
        "Where stage 1 ends, SGD with the step of the proximal run ends with |A - Q| above half of |Q|.",
        measures.failure,
        Interval(low=0.5),
        runs={"sgd": SGD},
        assumes=THEOREM,
        mutants=(Mutant("exact gradients", EXACT),),
        margin="Failed: wrong by half of the truth's size, five times what counts as recovered.",
    ),
    claim(
        "sgd_is_slow_with_small_step",
        "Figure 1",
        "Where stage 1 ends: when the proximal run has brought both signals to one half and its rounded A "
        "to a tenth, SGD with a tenth of the step still has |A - Q| above half of |Q|.",
        measures.slowness,
        Interval(low=0.5),
        runs={"sgd": SMALL_STEP, "proximal": PROXIMAL},
        assumes=THEOREM,
        mutants=(
            Mutant("exact gradients, the large step", runs={"sgd": {**EXACT, "eta_2": lambda eta: 10 * eta}}),
        ),
        margin="Wrong by half of the truth's size, as for the large step.",
    ),
    claim(
        "sgd_fails_even_after_rounding",
        "Figure 1, with the rounding step given to SGD as well",
        "Where stage 1 ends, SGD with the step of the proximal run, its A thresholded and normalised and V "
        "trained alone like the proximal run's, ends with a relative error of A or V above a tenth.",
        measures.recovery,
        Interval(low=0.1),
        runs={"run": SGD_ROUNDED},
        assumes=THEOREM,
        mutants=(Mutant("exact gradients", EXACT),),
        margin="Not recovered, by the measure of the proximal claim.",
    ),
    claim(
        "normalisation_helps",
        "Figure 4",
        "Where stage 1 ends, thresholding and normalising A at the end of stage 2 at least halves the "
        "proximal run's |A - Q|.",
        measures.normalisation,
        Interval(high=0.5),
        runs={"run": PROXIMAL},
        assumes=THEOREM,
        mutants=(DEAD,),
        margin="A help that one sees: by half.",
    ),
    claim(
        "proximal_beats_sgd",
        "Figure 4",
        "Where stage 1 ends, |A - Q| of the proximal run is below that of SGD with the same step at the end "
        "of stage 2, both before and after thresholding and normalising.",
        measures.advantage,
        Interval(low=0.0),
        runs={"sgd": SGD_ROUNDED, "proximal": PROXIMAL},
        assumes=THEOREM,
        mutants=(Mutant("lambda kills A", runs={"proximal": {"lam": 1.0}}),),
        margin="An order, of logarithms: the smaller of the two differences is not negative.",
    ),
    claim(
        "sgd_leaves_population",
        "Figure 3",
        "Where stage 1 ends, |Delta_A| exceeds the signal's part of A at the end of SGD with the large step.",
        measures.noise_to_signal,
        Interval(low=1.0),
        runs={"run": SGD},
        assumes=THEOREM,
        mutants=(Mutant("exact gradients", EXACT),),
        margin="The caption says that it dominates the signal: more than as large.",
    ),
    claim(
        "proximal_stays_near_population",
        "Figure 3",
        "Where stage 1 ends, |Delta_A| is below half of the signal's part of A at the end of the proximal "
        "run's stage 2.",
        measures.noise_to_signal,
        Interval(high=0.5),
        runs={"run": PROXIMAL},
        assumes=THEOREM,
        mutants=(Mutant("no threshold, batches of eight", {"lam": 0.0, "batch": 8, "start": "line"}),),
        margin="Near: the signal is at least twice as large.",
    ),
    claim(
        "softmax_matches_linear",
        "Figure 2",
        "At T = 50, N = 10, Q = 2 softmax and linear attention learn A and V with cosines above 0.9.",
        measures.likeness,
        Interval(low=0.9),
        runs={"softmax": SOFTMAX, "linear": LINEAR},
        assumes=(GD,),
        mutants=(Mutant("one step of softmax", runs={"softmax": {"steps": 1}}),),
        margin="Very similar: an angle of at most 26 degrees.",
    ),
    claim(
        "simulation_matches_minibatches",
        "Figure 5",
        "On average over stage 2, signals and distances from the line of simulated batches are those of real "
        "ones, within a tenth.",
        measures.simulation(*measures.SIGNALS, "Delta_V"),
        Interval(high=0.1),
        runs={"real": PROXIMAL, "simulated": SIMULATED},
        assumes=(LINEAR_ATTENTION, GD),
        mutants=(Mutant("four times the variance", runs={"simulated": {"noise": 4.0}}),),
        margin="A tenth is far below the differences that the figure shows.",
    ),
    claim(
        "simulation_matches_at_scale",
        "Figure 5",
        "On average over the first twenty steps of stage 2 with T = T_scale, N = N_scale and batches of 256, "
        "signals and |Delta_A| of simulated batches are those of real ones, within a tenth.",
        measures.simulation(*measures.SIGNALS),
        Interval(high=0.1),
        runs={"real": REAL_AT_SCALE, "simulated": SAME_SIMULATED},
        assumes=(LINEAR_ATTENTION, GD),
        mutants=(Mutant("four times the variance", runs={"simulated": {"noise": 4.0}}),),
        presets=EVERYWHERE,
        margin="A tenth is far below the differences that the figure shows.",
    ),
    claim(
        "proximal_recovers_at_scale",
        "Figure 5",
        "Where stage 1 ends, the simulated proximal run with T = T_scale and N = N_scale recovers V and A, "
        "up to a tenth.",
        measures.recovery,
        Interval(high=0.1),
        runs={"run": AT_SCALE},
        assumes=(LINEAR_ATTENTION, FROM_SCRATCH, GD),
        mutants=(DEAD,),
        presets=EVERYWHERE,
        margin="As for the small sizes.",
    ),
)  # fmt: skip

# ---------------------------------------------------------------- over sizes

POLYNOMIAL = 4.0
NO_DEGREE = (
    "The theorem says poly and names no degree. Growth by a factor e with each unit of size would show as an "
    "exponent of ten and more at the largest sizes, so that the fourth power tells the two apart."
)

OVER_SIZES = (
    claim(
        "stage_one_samples_in_T",
        "Theorem 3.1",
        "The samples of stage 1, with the batch at which noise and signal in A are as large at its end, grow "
        "like a power of T, at least T^{1/2}.",
        measures.exponent("T", measures.first_stage_samples),
        Interval(low=0.5),
        runs=STAGE_ONE_IN_T.runs,
        assumes=THEOREM,
        mutants=(Mutant("noise that does not grow with T", alter=noise_of_the_batch),),
        margin="poly(T), against log T and its square, which look like T^{0.15} and T^{0.3} at these sizes.",
    ),
    claim(
        "stage_two_samples_in_T",
        "Theorem 3.1",
        "With a batch at which the noise of a step is below lambda, the samples that bring both signals from "
        "Theta(1/(QN)) to one half, and the rounded A to a tenth, grow like log T and not like a power of T.",
        measures.second_stage_in_T,
        Interval(high=0.25),
        runs=STAGE_TWO_IN_T.runs,
        assumes=THEOREM,
        mutants=(stretched("T", lambda T: T),),
        margin="log T itself looks like T^{0.15} at these sizes.",
    ),
    claim(
        "cheapest_stage_two_in_T",
        "Theorem 3.1, read for the cheapest batch",
        "Also at the cheapest batch that serves all seeds, whatever its noise, the samples that bring both "
        "signals to one half, and the rounded A to a tenth, grow like log T and not like a power of T.",
        measures.second_stage_in_T,
        Interval(high=0.25),
        runs=CHEAPEST_IN_T.runs,
        assumes=THEOREM,
        mutants=(stretched("T", lambda T: T**4),),
        margin="log T itself looks like T^{0.15} at these sizes.",
    ),
    claim(
        "stage_two_samples_in_N",
        "Theorem 3.1",
        "The samples that bring both signals to one half, and the rounded A to a tenth, at the cheapest "
        "batch that serves all seeds, are polynomial in N.",
        measures.exponent("N", measures.least_samples),
        Interval(high=POLYNOMIAL),
        runs=STAGE_TWO_IN_N.runs,
        assumes=THEOREM,
        mutants=(stretched("N", lambda N: np.exp(N / 2)),),
        margin=NO_DEGREE,
    ),
    claim(
        "stage_two_samples_in_Q",
        "Theorem 3.1",
        "The samples that bring both signals to one half, and the rounded A to a tenth, at the cheapest "
        "batch that serves all seeds, are polynomial in Q.",
        measures.exponent("Q", measures.least_samples),
        Interval(high=POLYNOMIAL),
        runs=STAGE_TWO_IN_Q.runs,
        assumes=THEOREM,
        mutants=(stretched("Q", np.exp),),
        margin=NO_DEGREE,
    ),
    claim(
        "stage_two_samples_in_accuracy",
        "Theorem 3.1",
        "The samples from the end of stage 1 to relative errors of epsilon are polynomial in 1/epsilon: the "
        "error that the whole algorithm leaves falls at least like samples^{-1/4}.",
        measures.error_in_samples,
        Interval(high=-1 / POLYNOMIAL),
        runs=ACCURACY.runs,
        assumes=THEOREM,
        mutants=(Mutant("errors that do not fall with the batch", alter=as_for_small_batches),),
        margin=NO_DEGREE,
    ),
    claim(
        "transfer_skips_stage_one",
        "Theorem 4.1",
        "From a correlated pre-trained V all samples of fine-tuning grow with T more slowly than those of "
        "stage 1 from scratch, by at least T^{1/4}.",
        measures.saved_exponent,
        Interval(low=0.25),
        runs=SCRATCH_AND_TUNED,
        assumes=(LINEAR_ATTENTION, GD, *IN_O),
        mutants=(stretched("T", lambda T: T**4, only="tuned"),),
        margin="A saving that is a power of T; log T looks like T^{0.15} at these sizes.",
    ),
)  # fmt: skip

CLAIMS = (*ONE_TASK, *OVER_SIZES)
