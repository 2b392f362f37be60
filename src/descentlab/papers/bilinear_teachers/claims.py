"""The claims of bilinear_teachers: Theorems 3.1 and 3.2, Lemma D.2, and the experiments."""

from functools import partial

import numpy as np
import xarray as xr

from descentlab.judging import Assumption, Claim, Interval, Mutant, is_one_of, setting
from descentlab.papers.bilinear_teachers import measures
from descentlab.papers.bilinear_teachers.runs import ALL_WEIGHTS, FULL, GRIDS

claim = partial(Claim, presets=("tiny", "quick", "paper"))

# ---------------------------------------------------------------- what is assumed


SETTING = (
    is_one_of("inputs", "gaussian"),
    is_one_of("start", "zero"),
    is_one_of("encoding", "orthogonal", "cosine", "identity"),
    is_one_of("train", "both"),
    is_one_of("optimizer", "gd"),
    is_one_of("attention", "softmax"),
)
POSITION_ONLY = is_one_of("student", "position_only")
EXACT = is_one_of("algorithm", "population", "flow")
IN_O = (
    Assumption("eta M D^{5/2}", lambda p: True, lambda p: p.eta / p.largest_eta, exact=False),
    Assumption("D / K", lambda p: True, lambda p: p.D / p.K, exact=False),
)
THEOREM = (*SETTING, POSITION_ONLY, EXACT, *IN_O)
EXPERIMENTS = (*SETTING, POSITION_ONLY, *IN_O)

# ---------------------------------------------------------------- mutants

# Mutants have no shortcut to two numbers, so they are short.
FROZEN_ATTENTION = Mutant("frozen attention", {"train": "value", "steps": 20_000})


def plant(name: str, power: float) -> Mutant:
    """The recorded quantity replaced by a power of T."""

    def planted(run: xr.Dataset) -> xr.Dataset:
        law = np.maximum(run["step"].astype(float), 1.0) ** power
        return run.assign({name: xr.ones_like(run[name]) * law})

    return Mutant(f"{name} like T^{power:g}", alter=lambda runs: {k: planted(v) for k, v in runs.items()})


def size_of(run: xr.Dataset, over: str) -> xr.DataArray:
    """The size of a run, by seed."""
    one = xr.ones_like(run["teacher_norm"])
    return run["teacher_norm"] if over == "V" else one * float(setting(run, over))


def less_by_a_power(over: str) -> Mutant:
    """The data of a world in which every error has one power of the size less."""

    def planted(run: xr.Dataset) -> xr.Dataset:
        return run.assign({name: run[name] / size_of(run, over) for name in measures.RATES})

    return Mutant("one power of the size less", alter=lambda runs: {k: planted(v) for k, v in runs.items()})


def other_times(over: str, power: int) -> Mutant:
    """The data of a world in which everything comes later by a power of the size."""

    def planted(run: xr.Dataset) -> xr.Dataset:
        stretch = float(size_of(run, over).mean()) ** power
        late = run.assign_coords(step=run["step"] * stretch)
        return late.assign(final_hit=late["final_hit"] * stretch) if "final_hit" in late else late

    return Mutant("times by another power", alter=lambda runs: {k: planted(v) for k, v in runs.items()})


# ---------------------------------------------------------------- one run

ONE_RUN = (
    claim(
        "attention_recovers_in_T",
        "Theorem 3.1(1)",
        "|S - S*|_F goes like T^{-1/2} after T*.",
        measures.rate("attention_error"),
        Interval.around(-0.5, 0.05),
        assumes=THEOREM,
        mutants=(plant("attention_error", -1.0),),
        margin="A tenth of the exponent: T^{-1/2} against T^{-1/3} or T^{-1} leaves room for more.",
    ),
    claim(
        "value_recovers_in_T",
        "Theorem 3.1(2)",
        "|W_V - V*|_F goes like T^{-1/2} after T*.",
        measures.rate("value_error"),
        Interval.around(-0.5, 0.05),
        assumes=THEOREM,
        mutants=(plant("value_error", -1.0),),
        margin="A tenth of the exponent, as for attention.",
    ),
    claim(
        "excess_loss_in_T",
        "Theorem 3.1(3); experiments, item 1",
        "The excess loss L - L_opt goes like 1/T after T*.",
        measures.rate("excess_loss"),
        Interval.around(-1.0, 0.1),
        assumes=EXPERIMENTS,
        mutants=(plant("excess_loss", -0.5),),
        margin="A tenth of the exponent.",
    ),
    claim(
        "ood_excess_in_T",
        "experiments, item 1",
        "The excess OOD loss, labels from the teacher, goes like T^{-1/2}.",
        measures.ood_rate,
        Interval.around(-0.5, 0.1),
        assumes=EXPERIMENTS,
        mutants=(plant("ood_excess", -1.0),),
        margin="The paper says approximately; a fifth of the exponent, far from -1.",
    ),
    claim(
        "ood_bound_holds",
        "Theorem 3.2",
        "For any labels, the worst ones included, the excess OOD loss falls at least like T^{-1/2}, as "
        "T_eps = O(K D^6 xi^2 |V*|^2 / (eta eps^2)) says.",
        measures.ood_bound,
        Interval(high=-0.45),
        assumes=THEOREM,
        mutants=(plant("ood_excess", -0.5),),
        margin="An upper bound on the excess, up to a twentieth in its exponent.",
    ),
    claim(
        "value_direction_recovers",
        "experiments, item 2",
        "The cosine of W_V and V* is at least 0.95 from T*/10 on.",
        measures.direction,
        Interval(low=0.95),
        assumes=EXPERIMENTS,
        mutants=(
            Mutant(
                "random value weights, frozen", {"start": "gaussian", "train": "attention", "steps": 20_000}
            ),
        ),
        margin="Near 1 and early: a twentieth below, a tenth of the time that attention needs.",
    ),
    claim(
        "heatmap_matches_teacher",
        "experiments, item 3",
        "At the end |S - S*|_F is below a tenth of |S*|_F.",
        measures.heatmap,
        Interval(high=0.1),
        assumes=EXPERIMENTS,
        mutants=(FROZEN_ATTENTION,),
        margin="A tenth of the entries' size is below what one sees in a heatmap.",
    ),
    claim(
        "parameters_stay_on_the_line",
        "Lemma D.2",
        "To rounding, W_V = C_1 V*, P'W_KQ P = C_2 on the support of S* and -C_3 off it, and "
        "K C_2 = (D - K) C_3.",
        measures.distance_from_line,
        Interval(high=1e-9),
        runs={"run": ALL_WEIGHTS},
        assumes=(*THEOREM, is_one_of("precision", 64)),
        mutants=(
            Mutant("a random start", {"start": "gaussian"}),
            Mutant("fresh batches", {"algorithm": "online", "steps": 1000}),
        ),
        margin="Rounding errors of 64-bit numbers accumulate far below 1e-9 over the run.",
    ),
    claim(
        "other_blocks_stay_negligible",
        "Figure 1",
        "Of the full student's W_V and W_KQ at most a tenth of the norm lies outside the blocks that the "
        "position-only student keeps.",
        measures.other_blocks,
        Interval(high=0.1),
        runs={"run": FULL},
        assumes=SETTING,
        mutants=(Mutant("a random start", {"start": "gaussian", "sigma_0": 0.3}),),
        margin="A tenth of the norm is a hundredth of its square.",
    ),
)

# ---------------------------------------------------------------- over sizes

FACTORS = {"D": "D", "K": "K", "V": "|V*|_F", "eta": "eta"}
# Theorem 3.1's exponents. Zero: the theorem does not have the factor.
PRINTED = {
    "attention_recovery": {"D": 2.5, "K": 0.0, "V": -1.0, "eta": -0.5},
    "value_recovery": {"D": 2.0, "K": 0.5, "V": 0.0, "eta": -0.5},
    "excess_loss": {"D": 4.0, "K": 1.0, "V": 0.0, "eta": -1.0},
    "hitting_time": {"D": 2.0, "K": 1.0, "V": -2.0, "eta": -1.0},
}
WORDS = {
    "attention_recovery": ("Theorem 3.1(1)", "sqrt(eta T) |S - S*|_F", "attention_error"),
    "value_recovery": ("Theorem 3.1(2)", "sqrt(eta T) |W_V - V*|_F", "value_error"),
    "excess_loss": ("Theorem 3.1(3)", "eta T (L - L_opt)", "excess_loss"),
    "hitting_time": ("Theorem 3.1, T*", "eta T*", ""),
}
MARGIN = 0.1


def over_sizes(quantity: str, factor: str, power: float) -> Claim:
    """The claim that a prefactor, or T*, goes like a power of a size."""
    cite, symbol, name = WORDS[quantity]
    if factor == "eta":
        symbol = symbol.replace("(eta T)", "(T)").replace("eta T", "T")
    power_law = f"goes like {FACTORS[factor]}^{power:g}" if power else f"does not depend on {FACTORS[factor]}"
    when = "" if quantity == "hitting_time" else f", read at {measures.LATE} T*,"
    measure = measures.in_size(name, factor) if name else measures.hitting_in_size(factor)
    return claim(
        f"{quantity}_in_{factor}",
        cite,
        f"{symbol}{when} {power_law}.",
        measure,
        Interval.around(power, MARGIN),
        runs=GRIDS[factor].runs,
        assumes=THEOREM,
        mutants=(less_by_a_power(factor) if name else other_times(factor, -1 if factor == "K" else 1),),
        margin="A tenth, a fifth of the smallest difference between exponents that the theorem could print.",
    )


OVER_SIZES = tuple(
    over_sizes(quantity, factor, power)
    for quantity, powers in PRINTED.items()
    for factor, power in powers.items()
)

START = claim(
    "printed_bounds_fit_the_start",
    "Theorem 3.1(1) to (3) at T = T*",
    "The printed right-hand sides at T = T* stay, as D grows, within a constant of what any S and the loss "
    "and value error at the start allow.",
    measures.start_exponents,
    Interval(high=MARGIN),
    runs=GRIDS["D"].runs,
    assumes=THEOREM,
    mutants=(other_times("D", -1),),
    margin="Bounded as D grows: no positive power of D, up to a tenth.",
)

CLAIMS = (*ONE_RUN, *OVER_SIZES, START)
