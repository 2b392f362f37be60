"""The claims of attention_kernels: Theorems 1 and 2, their remarks, and where the kernels part."""

from functools import partial

import numpy as np

from descentlab.judging import Assumption, Claim, Datasets, Interval, Mutant, is_one_of
from descentlab.papers.attention_kernels import measures
from descentlab.papers.attention_kernels.model import KERNELS
from descentlab.papers.attention_kernels.runs import (
    ALL,
    DIVIDED,
    FEW_HEADS,
    GENERIC_ALL,
    GENERIC_TUNED,
    PAIRED_TUNED,
    QUERY,
    SEPARATING,
    SEPARATING_TUNED,
    STARTS,
    VALUES_TUNED,
    named,
)

claim = partial(Claim, presets=("tiny", "quick", "paper"))

# ---------------------------------------------------------------- what is assumed

WIDE = Assumption("HD >= Nn", lambda p: p.N * p.n <= p.H * p.D)
HOW_WIDE = Assumption("HD / Nn", lambda p: True, lambda p: p.H * p.D / (p.N * p.n), exact=False)
DESCENT = is_one_of("algorithm", "descent")
GD = is_one_of("optimizer", "gd")
SMALL_STEP = Assumption("eta <= 1/L at the start", lambda p: p.step == "fixed" or p.eta <= 1)
DOUBLE = is_one_of("precision", 64)  # rounding errors are told from losses by their size
KERNEL = is_one_of("kernel", *KERNELS)
THEOREM = (WIDE, HOW_WIDE, DESCENT, KERNEL, GD, SMALL_STEP, DOUBLE)
COUPLES = Assumption("H >= 2, for heads in couples", lambda p: p.H >= 2)
CHOICE = Assumption("n >= 2, for softmax to choose", lambda p: p.n >= 2)
THEOREM_2 = (*THEOREM, COUPLES, CHOICE)

# ---------------------------------------------------------------- mutants


def frozen(runs: Datasets) -> Datasets:
    """The data of a world in which nothing is learned."""
    return {name: run.assign(loss=0 * run["loss"] + run["loss"].isel(step=0)) for name, run in runs.items()}


FROZEN = Mutant("frozen attention", alter=frozen)


def same_kernel(runs: Datasets) -> Datasets:
    """The data of a world in which both kernels do as softmax does."""
    return {name: runs[name.replace("gaussian", "softmax")] for name in runs}


SAME = Mutant("softmax in place of the Gaussian kernel", alter=same_kernel)

# ---------------------------------------------------------------- Theorem 1

PACE = "The theorem gives an upper bound on the loss: the slowest pace over the bound's is at least one."

ALL_WEIGHTS = tuple(
    claim(
        f"all_weights_rate_bound_{kernel}",
        "Theorem 1",
        f"Training W^Q, W^K, W^V with {kernel} attention from the preset's start, f_t <= (1 - eta beta)^t "
        "f_0 at all records, with beta = min_h |W_h^O|^2 sigma_min^2(B_0), its safe reading (log10 of the "
        "slowest pace, mean over seeds).",
        measures.all_weights_pace,
        Interval(low=0.0),
        runs={"run": ALL[kernel], "generic": GENERIC_ALL[kernel]},
        assumes=THEOREM,
        mutants=(FROZEN,),
        margin=PACE,
    )
    for kernel in KERNELS
)

ALL_WEIGHTS_AS_PRINTED = claim(
    "all_weights_rate_bound_as_printed",
    "Theorem 1, its constant as printed",
    "The same of both kernels with beta as printed, sigma_min^2(W^O) sigma_min^2(B_0): W^O has one column, "
    "whose squared length is sum_h |W_h^O|^2 (log10 of the slower kernel's slowest pace, mean over seeds).",
    measures.printed_pace,
    Interval(low=0.0),
    runs=ALL,
    assumes=THEOREM,
    mutants=(FROZEN,),
    margin=PACE,
)

# ---------------------------------------------------------------- Theorem 2


def query_claim(kernel: str, cite: str) -> Claim:
    """The rate bound of training W^Q alone."""
    return claim(
        f"query_only_rate_bound_{kernel}",
        cite,
        f"Training W^Q alone with {kernel} attention from paired heads with large values (or a start of "
        "one's own), f_t <= (1 - eta gamma)^t f_0 at all records, with gamma = sigma_min^2(J_Q) at the start "
        "(log10 of the slowest pace, mean over seeds).",
        measures.query_pace,
        Interval(low=0.0),
        runs={"run": QUERY[kernel]},
        assumes=THEOREM_2,
        mutants=(FROZEN,),
        margin=PACE,
    )


QUERY_ONLY = (
    query_claim("gaussian", "Theorem 2"),
    query_claim("softmax", "Theorem 2, its first line asked of softmax"),
    claim(
        "softmax_descent_as_printed",
        "Theorem 2",
        "Training W^Q alone with softmax attention, f_t <= f_0 - eta sum_{r<t} |grad f(M_r)|, the norm not "
        "squared (the largest coefficient of the sum that holds).",
        measures.printed_descent,
        Interval(low=1.0),
        runs={"run": QUERY["softmax"]},
        assumes=THEOREM_2,
        mutants=(
            Mutant("labels and outputs over a hundred", {"label_scale": 0.01, "output_scale": 0.1}), FROZEN,
        ),
        margin="The printed coefficient is one.",
    ),
    claim(
        "softmax_descent_as_printed_in_other_units",
        "Theorem 2, with labels and outputs divided by ten",
        "The same inequality of the same problem with labels and outputs divided by ten, whose path is the "
        "same and whose losses are a hundredth.",
        measures.printed_descent,
        Interval(low=1.0),
        runs={"run": DIVIDED},
        assumes=THEOREM_2,
        mutants=(FROZEN,),
        margin="The printed coefficient is one.",
    ),
    claim(
        "softmax_descent_squared",
        "Theorem 2, as the descent lemma has it",
        "Training W^Q alone with softmax attention and eta <= 1/L, f_t <= f_0 - (eta/2) sum_{r<t} "
        "|grad f(M_r)|^2 (the largest coefficient of the sum that holds).",
        measures.squared_descent,
        Interval(low=0.5),
        runs={"run": QUERY["softmax"]},
        assumes=THEOREM_2,
        mutants=(Mutant("a step three times too large", {"eta": 3.0}),),
        margin="The descent lemma's coefficient is one half.",
    ),
)  # fmt: skip

# ---------------------------------------------------------------- remarks on Theorem 1

REMARKS = (
    claim(
        "overparameterisation_is_needed",
        "Remark on Theorem 1",
        "beta > 0 if and only if HD >= Nn: with generic weights of either kernel, B of the first h heads has "
        "rank Nn exactly from the first h with hD >= Nn on (heads too many).",
        measures.heads_too_many,
        Interval.around(0, 0.5),
        runs=GENERIC_ALL,
        assumes=(WIDE,),
        mutants=(Mutant("heads that are all alike", {"scale": 0.0}),),
        margin="Less than one head, since heads are counted.",
    ),
    claim(
        "few_heads_do_not_fit",
        "Remark on Theorem 1, asked of the loss",
        "With one head and D < Nn, training W^Q, W^K, W^V from a generic start at the best step leaves more "
        "than a hundredth of the loss, with both kernels (log10 of what is left, the smaller).",
        measures.fit_of_few_heads,
        Interval(low=-2.0),
        runs=FEW_HEADS,
        assumes=(Assumption("D < Nn", lambda p: p.N * p.n > p.D), GD),
        mutants=(Mutant("many heads", {"H": 8}, {"softmax": {"H": 8}, "gaussian": {"H": 8}}),),
        margin="A hundredth of the loss is a tenth of the residual.",
    ),
    claim(
        "weights_move_a_bit",
        "Remark on Theorem 1",
        "In the end |M_T - M_0| is at most half of |M_0|, with both kernels.",
        measures.movement,
        Interval(high=0.5),
        runs=ALL,
        assumes=THEOREM,
        mutants=(Mutant("a small W^O", {"output_scale": 0.1}),),
        margin="Half: the end is nearer to the start than to zero.",
    ),
    claim(
        "start_is_near_convex",
        "Remark on Theorem 1",
        "From the theorem's start on, the least eigenvalue of the Hessian is above minus a tenth of the "
        "largest, with both kernels.",
        measures.concavity,
        Interval(high=0.1),
        runs={**ALL, "generic_softmax": GENERIC_ALL["softmax"], "generic_gaussian": GENERIC_ALL["gaussian"]},
        assumes=THEOREM,
        mutants=(
            Mutant(
                "a generic start and large labels",
                {"value_scale": 1.0, "output_scale": 1.0, "label_scale": 3.0},
            ),
        ),
        margin="Near: a tenth of the curvature that descent sees.",
    ),
)

# ---------------------------------------------------------------- where the kernels part

TWICE = float(np.log10(2))
BEATS = "Beats: half of the other's loss."

KERNELS_COMPARED = (
    claim(
        "gaussian_beats_softmax_generic",
        "Remark on Theorem 2; Figure 1",
        "Training W^Q alone from a generic start, each kernel at its best step, Gaussian attention ends with "
        "half of softmax's loss or less (log10 of the ratio).",
        measures.separation,
        Interval(low=TWICE),
        runs={
            **GENERIC_TUNED,
            **named(paired=PAIRED_TUNED, with_values=VALUES_TUNED),
        },
        assumes=(KERNEL, GD),
        mutants=(SAME,),
        margin=BEATS,
    ),
    claim(
        "gaussian_beats_softmax_constructed",
        "Remark on Theorem 2",
        "The same from the construction that separates, at the preset's delta and scale.",
        measures.separation,
        Interval(low=TWICE),
        runs=SEPARATING_TUNED,
        assumes=(COUPLES, KERNEL, GD),
        mutants=(SAME,),
        margin=BEATS,
    ),
    claim(
        "softmax_respects_floor",
        "Remark on Theorem 2",
        "With W^V frozen, f_t of softmax attention never goes below the floor that follows from the hull of "
        "the values, where that is above 0 (how far it does, over f_0).",
        measures.below_floor,
        Interval(high=1e-12),
        runs={"run": SEPARATING["softmax"]},
        assumes=(COUPLES, DOUBLE),
        mutants=(Mutant("the Gaussian kernel", runs={"run": {"kernel": "gaussian"}}),),
        margin="Rounding errors of 64-bit numbers.",
    ),
    claim(
        "softmax_gradients_vanish",
        "Remark on Theorem 2",
        "Training W^Q alone from a generic start, each kernel at its best step, |grad f|/sqrt(2f) of softmax "
        "is in the end, or before rounding errors, a tenth of that of Gaussian attention or less (log10 of "
        "the ratio).",
        measures.vanishing,
        Interval(low=1.0),
        runs={**GENERIC_TUNED, **named(constructed=SEPARATING_TUNED)},
        assumes=(KERNEL, GD),
        mutants=(SAME,),
        margin="Vanishing: a tenth of the other kernel's, for the same residual.",
    ),
    claim(
        "softmax_has_more_local_solutions",
        "Remark on Theorem 2",
        "Of 16 generic starts of W^Q on the same data, with the same W^K and W^V and the step 1/L, those of "
        "softmax end solved or at stationary points with more different outputs than those of Gaussian "
        "attention.",
        measures.more_solutions,
        Interval(low=1.0),
        runs=STARTS,
        assumes=(KERNEL, GD),
        mutants=(SAME,),
        margin="At least one more on average; ends nearer than a twentieth of |y| are one.",
    ),
)

CLAIMS = (*ALL_WEIGHTS, ALL_WEIGHTS_AS_PRINTED, *QUERY_ONLY, *REMARKS, *KERNELS_COMPARED)
