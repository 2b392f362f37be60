"""The claims of attention_kernels: Theorems 1 and 2, their remarks, and where the kernels part."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.cluster import hierarchy

from descentlab.judging import (
    Assumption,
    Broken,
    Estimate,
    Mutant,
    around,
    at_least,
    at_most,
    check_finite,
    data_mutant,
    is_one_of,
    mean,
    mutant,
    setting,
    theorem,
    trajectories,
)
from descentlab.papers.attention_kernels import GENERIC
from descentlab.papers.attention_kernels.kernels import KERNELS

# ---------------------------------------------------------------- runs, as overrides of a preset

# The preset starts where Theorem 1 works: W^V = 0, so that W^Q and W^K stay until W^V has grown, and W^O of
# length ten, so that it need not grow much. Theorem 2 works from paired heads with values of the same size.

Couple = dict[str, dict[str, Any]]  # a run of each kernel


def each(runs: Couple, **changes: Any) -> Couple:
    """The runs of both kernels with further overrides."""
    return {kernel: run | changes for kernel, run in runs.items()}


def named(**groups: Mapping[str, Any]) -> dict[str, Any]:
    """The runs of both kernels in several groups, as kernel_group."""
    return {f"{kernel}_{name}": run for name, group in groups.items() for kernel, run in group.items()}


# One start and step size, recorded in full.
ONE = each({kernel: {"kernel": kernel} for kernel in KERNELS}, starts=1, rates=1, grid=0, detail=True)
ALL = each(ONE, train="qkv")
# A start of your own stays.
QUERY = each(ONE, train="q", value_scale=1.0, init=lambda init: "paired" if init == "generic" else init)
# The same problem with labels and outputs divided by ten: the step, in units of 1/L, follows.
DIVIDED = {**QUERY["softmax"], "label_scale": lambda s: s / 10, "output_scale": lambda s: s / 10}
GENERIC_ALL, GENERIC_QUERY = each(ALL, **GENERIC), each(QUERY, **GENERIC)

# Kernels compared, each at its best step.
BY_CURVATURE: dict[str, Any] = {"algorithm": "descent", "optimizer": "gd", "step": "curvature"}
TUNED: dict[str, Any] = {**BY_CURVATURE, "eta": 0.25, "rates": 5}
GENERIC_TUNED = each(GENERIC_QUERY, **TUNED)
PAIRED_TUNED = each(GENERIC_TUNED, init="paired")
VALUES_TUNED = each(GENERIC_TUNED, train="qkv")
FEW_HEADS = each(VALUES_TUNED, H=1)
STARTS = each(GENERIC_QUERY, **BY_CURVATURE, eta=1.0, starts=16)

# The construction that separates.
SEPARATING = each(ONE, train="q", init="separating", tokens="biased", output_scale=1.0)
SEPARATING_TUNED = each(SEPARATING, **TUNED)

# ---------------------------------------------------------------- what is assumed

WIDE = Assumption("HD >= Nn", lambda p: p.N * p.n <= p.H * p.D)
HOW_WIDE = Assumption("HD / Nn", lambda p: True, lambda p: p.H * p.D / (p.N * p.n), exact=False)
GD = is_one_of("optimizer", "gd")
SMALL_STEP = Assumption("eta <= 1/L at the start", lambda p: p.step == "fixed" or p.eta <= 1)
DOUBLE = is_one_of("precision", 64)  # rounding errors are told from losses by their size
KERNEL = is_one_of("kernel", *KERNELS)
THEOREM = (WIDE, HOW_WIDE, is_one_of("algorithm", "descent"), KERNEL, GD, SMALL_STEP, DOUBLE)
COUPLES = Assumption("H >= 2, for heads in couples", lambda p: p.H >= 2)
CHOICE = Assumption("n >= 2, for softmax to choose", lambda p: p.n >= 2)
THEOREM_2 = (*THEOREM, COUPLES, CHOICE)
PRESETS = ("tiny", "quick", "paper")

# ---------------------------------------------------------------- mutants of several claims

# Nothing is learned.
FROZEN = data_mutant(
    "frozen attention", lambda run: run.assign(loss=0 * run["loss"] + run["loss"].isel(step=0))
)
# Both kernels do as softmax does.
SAME = Mutant(
    "softmax in place of the Gaussian kernel",
    alter=lambda runs: {name: runs[name.replace("gaussian", "softmax")] for name in runs},
)

# ---------------------------------------------------------------- Theorem 1: all weights

ROUNDING = 1e-20  # a loss below this part of its start is one of rounding errors
SLOWEST = 1e-6  # the pace of a loss that rose: as far from a bound that falls as one likes


def span(run: xr.Dataset) -> dict[str, tuple[float, float]]:
    """The range that a run tests."""
    features, positions = float(setting(run, "H") * setting(run, "D")), setting(run, "N") * setting(run, "n")
    return {"step": (0.0, float(run["step"].values[-1])), "HD/Nn": (features / positions,) * 2}


class Pace(NamedTuple):
    """How a loss falls against (1 - eta constant)^t, by seed; 1 is the bound itself."""

    slowest: np.ndarray  # of all records
    mean: np.ndarray  # at the last
    tail: np.ndarray  # of the last half of the steps
    limit: np.ndarray  # what the slowest comes to if the run goes on as in its last half


def pace(run: xr.Dataset, constant: np.ndarray) -> Pace:
    """log(f_0/f_t) over -t log(1 - eta constant), down to rounding errors of the loss."""
    f = trajectories(run["loss"]).values
    if not (f[:, 0] > 0).all():
        raise Broken(f"The loss at the start must be above 0, got {f[:, 0].tolist()}.")
    steps, shrink = run["step"].values.astype(float), run["rate"].values * constant
    if not ((shrink > 0) & (shrink < 1)).all():
        raise Broken(f"The bound needs 0 < eta times its constant < 1, got {shrink.tolist()}.")
    found = []
    for own, bound in zip(f, -np.log1p(-shrink), strict=True):
        beyond = np.flatnonzero(own <= ROUNDING * own[0])
        last = int(beyond[0]) if beyond.size else len(own) - 1
        middle = min(int(np.searchsorted(steps, steps[last] / 2)), last - 1)
        gone = np.log(own[0] / np.maximum(own, 1e-300)) / bound
        rates = gone[1 : last + 1] / steps[1 : last + 1]
        tail = (gone[last] - gone[middle]) / (steps[last] - steps[middle])
        limit = rates.min() if beyond.size else min(rates.min(), tail)
        found.append((rates.min(), rates[-1], tail, limit))
    return Pace(*np.array(found).T)


def constant(run: xr.Dataset, reading: int | None) -> np.ndarray:
    """beta at the start, safe (0) or as printed (1), or gamma (None), by seed."""
    series = run["gamma"] if reading is None else run["beta"].isel(reading=reading)
    return series.isel(step=0).values


def slowest_pace(run: xr.Dataset, *paces: Pace) -> Estimate:
    """log10 of the slowest pace of several; what it would come to is in the interval as drift."""
    now, then = (
        np.log10(np.maximum(np.min([getattr(own, what) for own in paces], axis=0), SLOWEST))
        for what in ("slowest", "limit")
    )
    estimate = mean(now, drift=(float((now - then).mean()), 0.0), range=span(run))
    return estimate.noting(slowest_of_all_seeds=10 ** now.min())


def bounded(run: xr.Dataset, constant: np.ndarray) -> Estimate:
    """The slowest pace of a run; its mean and tail pace are in the notes."""
    found = pace(run, constant)
    estimate = slowest_pace(run, found)
    return estimate.noting(mean_pace=np.median(found.mean), tail_pace=np.median(found.tail))


def eta_L(run: xr.Dataset) -> float:
    """The step size times the largest curvature of the whole run."""
    return float((run["rate"] * abs(run["curvature"]).max(("step", "end"))).max())


def pace_against(name: str, run: xr.Dataset) -> Estimate:
    """The pace against 1 - eta beta, beta in its safe reading, or against 1 - eta gamma."""
    series = run[name].isel(reading=0, missing_dims="ignore")
    first = series.isel(step=0).values
    notes = {
        f"eta_{name}": np.median(run["rate"].values * first),
        f"least_{name}_over_first": (series.min("step") / first).min(),
    }
    return bounded(run, first).noting(**notes, eta_L=eta_L(run))


PACE = "The theorem gives an upper bound on the loss: the slowest pace over the bound's is at least one."
theorem_1 = theorem("Theorem 1", bound="upper", assumes=THEOREM, presets=PRESETS)


def all_weights_pace(run: xr.Dataset, generic: xr.Dataset) -> Estimate:
    """The pace against 1 - eta beta; that from a generic start is in the notes."""
    found = pace_against("beta", run)
    return found.noting(slowest_pace_from_generic=pace(generic, constant(generic, 0)).slowest.min())


for kernel in KERNELS:
    theorem_1.claim(
        name=f"all_weights_rate_bound_{kernel}",
        statement=f"Training W^Q, W^K, W^V with {kernel} attention from the preset's start, f_t <= (1 - eta "
        "beta)^t f_0 at all records, with beta = min_h |W_h^O|^2 sigma_min^2(B_0), its safe reading (log10 "
        "of the slowest pace, mean over seeds).",
        predicts=at_least(0.0),
        margin=PACE,
        runs={"run": ALL[kernel], "generic": GENERIC_ALL[kernel]},
        mutants=(FROZEN,),
    )(all_weights_pace)


@theorem_1.claim(
    cite="Theorem 1, its constant as printed",
    predicts=at_least(0.0),
    margin=PACE,
    runs=ALL,
    mutants=(FROZEN,),
)
def all_weights_rate_bound_as_printed(softmax: xr.Dataset, gaussian: xr.Dataset) -> Estimate:
    """The same of both kernels with beta as printed, sigma_min^2(W^O) sigma_min^2(B_0): W^O has one column,
    whose squared length is sum_h |W_h^O|^2 (log10 of the slower kernel's slowest pace, mean over seeds).
    """
    found = [pace(run, constant(run, 1)) for run in (softmax, gaussian)]
    tails = [np.median(own.tail) for own in found]
    return slowest_pace(softmax, *found).noting(softmax_tail_pace=tails[0], gaussian_tail_pace=tails[1])


# ---------------------------------------------------------------- Theorem 2: W^Q alone

theorem_2 = theorem("Theorem 2", bound="upper", assumes=THEOREM_2, presets=PRESETS)


for kernel, cite, kind in (
    ("gaussian", "Theorem 2", "theorem"),
    ("softmax", "Theorem 2, its first line asked of softmax", "ours"),
):
    theorem_2.claim(
        name=f"query_only_rate_bound_{kernel}",
        cite=cite,
        kind=kind,
        statement=f"Training W^Q alone with {kernel} attention from paired heads with large values (or a "
        "start of one's own), f_t <= (1 - eta gamma)^t f_0 at all records, with gamma = sigma_min^2(J_Q) at "
        "the start (log10 of the slowest pace, mean over seeds).",
        predicts=at_least(0.0),
        margin=PACE,
        runs={"run": QUERY[kernel]},
        mutants=(FROZEN,),
    )(partial(pace_against, "gamma"))


def coefficients(run: xr.Dataset, sums: str) -> np.ndarray:
    """The largest a with f_t <= f_0 - a sums_t at all records, by seed."""
    f, spent = trajectories(run["loss"]).values, trajectories(run[sums]).values
    if not (spent[:, -1] > 0).all():
        raise Broken(f"{sums} stays 0: there is no gradient.")
    fallen, spent = f[:, :1] - f[:, 1:], spent[:, 1:]
    return np.where(spent > 0, fallen / np.maximum(spent, 1e-300), np.inf).min(1)


def largest_coefficient(run: xr.Dataset, sums: str) -> Estimate:
    """The mean over seeds of the largest coefficient that holds."""
    found = coefficients(run, sums)
    return mean(found, range=span(run)).noting(least_of_all_seeds=found.min(), eta_L=eta_L(run))


@theorem_2.claim(
    predicts=at_least(1.0),
    margin="The printed coefficient is one.",
    runs={"run": QUERY["softmax"]},
    mutants=(mutant("labels and outputs over a hundred", label_scale=0.01, output_scale=0.1), FROZEN),
)
def softmax_descent_as_printed(run: xr.Dataset) -> Estimate:
    """Training W^Q alone with softmax attention, f_t <= f_0 - eta sum_{r<t} |grad f(M_r)|, the norm not
    squared (the largest coefficient of the sum that holds).
    """
    return largest_coefficient(run, "length")


@theorem_2.claim(
    cite="Theorem 2, with labels and outputs divided by ten",
    predicts=at_least(1.0),
    margin="The printed coefficient is one.",
    runs={"run": DIVIDED},
    mutants=(FROZEN,),
)
def softmax_descent_as_printed_in_other_units(run: xr.Dataset) -> Estimate:
    """The same inequality of the same problem with labels and outputs divided by ten, whose path is the same
    and whose losses are a hundredth.
    """
    return largest_coefficient(run, "length")


@theorem_2.claim(
    cite="Theorem 2, as the descent lemma has it",
    predicts=at_least(0.5),
    margin="The descent lemma's coefficient is one half.",
    runs={"run": QUERY["softmax"]},
    mutants=(mutant("a step three times too large", eta=3.0),),
)
def softmax_descent_squared(run: xr.Dataset) -> Estimate:
    """Training W^Q alone with softmax attention and eta <= 1/L, f_t <= f_0 - (eta/2) sum_{r<t} |grad
    f(M_r)|^2 (the largest coefficient of the sum that holds).
    """
    return largest_coefficient(run, "energy")


# ---------------------------------------------------------------- remarks on Theorem 1

remarks_on_1 = theorem("Remark on Theorem 1", kind="remark", bound="upper", assumes=THEOREM, presets=PRESETS)


@remarks_on_1.claim(
    bound="equality",
    predicts=around(0, 0.5),
    margin="Less than one head, since heads are counted.",
    runs=GENERIC_ALL,
    assumes=(WIDE,),
    mutants=(mutant("heads that are all alike", scale=0.0),),
)
def overparameterisation_is_needed(**runs: xr.Dataset) -> Estimate:
    """beta > 0 if and only if HD >= Nn: with generic weights of either kernel, B of the first h heads has
    rank Nn exactly from the first h with hD >= Nn on (heads too many).

    Measured: the fewest heads with which B has rank Nn, less the fewest with hD >= Nn; the largest of all
    runs.
    """
    excess = []
    for run in runs.values():
        positions, heads = setting(run, "N") * setting(run, "n"), int(setting(run, "H"))
        full = run["ranks"].values == positions
        fewest = np.where(full.any(1), full.argmax(1) + 1, heads + 1)
        excess.append(fewest - -(-positions // setting(run, "D")))
    worst = np.take_along_axis(np.array(excess), np.abs(excess).argmax(0)[None], 0)[0]
    return mean(worst, range=span(next(iter(runs.values()))))


SOLVED = 1e-6  # a loss below this part of its start is solved: how far below says how long one trained


def best_step(run: xr.Dataset) -> xr.DataArray:
    """The index of the step size with the least loss in the end, for each seed and cell."""
    return run["losses"].fillna(np.inf).isel(step=-1, drop=True).argmin("multiple")


def best(run: xr.Dataset) -> xr.Dataset:
    """Of a run of many cells, losses and gradients at the best step size, for each seed and cell."""
    return run[["losses", "slopes"]].fillna(np.inf).isel(multiple=best_step(run))


def only(run: xr.Dataset) -> xr.Dataset:
    """The same of a run whose only cells are step sizes."""
    return best(run).isel(start=0, delta=0, scale=0)


def left(run: xr.Dataset) -> xr.DataArray:
    """f_T/f_0 at the best step size, no less than what counts as solved, by seed and cell."""
    losses = best(run)["losses"]
    return (losses.isel(step=-1) / losses.isel(step=0)).clip(min=SOLVED)


def log_left(run: xr.Dataset) -> np.ndarray:
    """log10(f_T/f_0) of the only cell, by seed."""
    return np.log10(left(run).isel(start=0, delta=0, scale=0).values)


def means(found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The mean over seeds of each run, for notes."""
    return {name: values.mean() for name, values in found.items()}


@remarks_on_1.claim(
    cite="Remark on Theorem 1, asked of the loss",
    kind="ours",
    bound="lower",
    predicts=at_least(-2.0),
    margin="A hundredth of the loss is a tenth of the residual.",
    runs=FEW_HEADS,
    assumes=(Assumption("D < Nn", lambda p: p.N * p.n > p.D), GD),
    mutants=(Mutant("many heads", {"H": 8}, {"softmax": {"H": 8}, "gaussian": {"H": 8}}),),
)
def few_heads_do_not_fit(**runs: xr.Dataset) -> Estimate:
    """With one head and D < Nn, training W^Q, W^K, W^V from a generic start at the best step leaves more than
    a hundredth of the loss, with both kernels (log10 of what is left, the smaller).
    """
    left = {kernel: log_left(run) for kernel, run in runs.items()}
    return mean(np.minimum(*left.values()), range=span(runs["softmax"])).noting(**means(left))


def total(blocks: xr.DataArray) -> xr.DataArray:
    """The norm of all blocks together."""
    return (blocks**2).sum("block") ** 0.5


def moved(run: xr.Dataset) -> xr.DataArray:
    """|M_t - M_0|/|M_0|."""
    return total(run["moved"]) / total(run["start_size"])


@remarks_on_1.claim(
    predicts=at_most(0.5),
    margin="Half: the end is nearer to the start than to zero.",
    runs=ALL,
    mutants=(mutant("a small W^O", output_scale=0.1),),
)
def weights_move_a_bit(**runs: xr.Dataset) -> Estimate:
    """In the end |M_T - M_0| is at most half of |M_0|, with both kernels."""
    found = {kernel: moved(run).isel(step=-1).values for kernel, run in runs.items()}
    return mean(np.maximum(*found.values()), range=span(runs["softmax"])).noting(**means(found))


def negative_curvature(run: xr.Dataset) -> xr.DataArray:
    """How negative the least eigenvalue of the Hessian is, over the largest in size, along the run."""
    return (-run["curvature"].isel(end=0)).clip(min=0) / abs(run["curvature"]).max("end")


@remarks_on_1.claim(
    predicts=at_most(0.1),
    margin="Near: a tenth of the curvature that descent sees.",
    runs={**ALL, "generic_softmax": GENERIC_ALL["softmax"], "generic_gaussian": GENERIC_ALL["gaussian"]},
    mutants=(mutant("a generic start and large labels", value_scale=1.0, output_scale=1.0, label_scale=3.0),),
)
def start_is_near_convex(softmax: xr.Dataset, gaussian: xr.Dataset, **generic: xr.Dataset) -> Estimate:
    """From the theorem's start on, the least eigenvalue of the Hessian is above minus a tenth of the largest,
    with both kernels.
    """
    worst = [negative_curvature(run).max("step").values for run in (softmax, gaussian)]
    from_generic = {name: negative_curvature(run).max("step").values for name, run in generic.items()}
    return mean(np.maximum(*worst), range=span(softmax)).noting(**means(from_generic))


# ---------------------------------------------------------------- remarks on Theorem 2: the kernels part

remarks_on_2 = theorem(
    "Remark on Theorem 2", kind="remark", bound="order", assumes=(KERNEL, GD), presets=PRESETS
)
TWICE = float(np.log10(2))
BEATS = "Beats: half of the other's loss."


def advantage(softmax: xr.Dataset, gaussian: xr.Dataset) -> np.ndarray:
    """log10 of the loss that softmax ends with over that of Gaussian attention, by seed; solved is solved."""
    losses = [only(run)["losses"].transpose("step", "seed").values for run in (softmax, gaussian)]
    solved = SOLVED * np.maximum(*(own[0] for own in losses))
    of_softmax, of_gaussian = (np.log10(np.maximum(own[-1], solved)) for own in losses)
    return of_softmax - of_gaussian


def separation(softmax: xr.Dataset, gaussian: xr.Dataset, **others: xr.Dataset) -> Estimate:
    """The advantage of Gaussian attention, each kernel at its best step.

    `others` are couples of runs elsewhere, softmax_... and gaussian_..., for the notes. They also have the
    share of seeds whose best step size is the largest that was tried.
    """
    estimate, notes = mean(advantage(softmax, gaussian), range=span(softmax)), {}
    for kernel, run in (("softmax", softmax), ("gaussian", gaussian)):
        notes[kernel] = log_left(run).mean()
        notes[f"{kernel}_at_largest_step"] = (best_step(run) == run.sizes["multiple"] - 1).mean()
    for name, run in others.items():
        kernel, where = name.split("_", 1)
        if kernel == "softmax":
            notes[f"ratio_{where}"] = advantage(run, others[f"gaussian_{where}"]).mean()
    return estimate.noting(**notes)


@remarks_on_2.claim(
    cite="Remark on Theorem 2; Figure 1",
    predicts=at_least(TWICE),
    margin=BEATS,
    runs={**GENERIC_TUNED, **named(paired=PAIRED_TUNED, with_values=VALUES_TUNED)},
    mutants=(SAME,),
)
def gaussian_beats_softmax_generic(**runs: xr.Dataset) -> Estimate:
    """Training W^Q alone from a generic start, each kernel at its best step, Gaussian attention ends with
    half of softmax's loss or less (log10 of the ratio).
    """
    return separation(**runs)


@remarks_on_2.claim(
    bound="existence",
    predicts=at_least(TWICE),
    margin=BEATS,
    runs=SEPARATING_TUNED,
    assumes=(COUPLES, KERNEL, GD),
    mutants=(SAME,),
)
def gaussian_beats_softmax_constructed(**runs: xr.Dataset) -> Estimate:
    """The same from the construction that separates, at the preset's delta and scale."""
    return separation(**runs)


@remarks_on_2.claim(
    bound="lower",
    predicts=at_most(1e-12),
    margin="Rounding errors of 64-bit numbers.",
    runs={"run": SEPARATING["softmax"]},
    assumes=(COUPLES, DOUBLE),
    mutants=(Mutant("the Gaussian kernel", runs={"run": {"kernel": "gaussian"}}),),
)
def softmax_respects_floor(run: xr.Dataset) -> Estimate:
    """With W^V frozen, f_t of softmax attention never goes below the floor that follows from the hull of the
    values, where that is above 0 (how far it does, over f_0).

    Of the seeds that have a floor: some values reach all labels.
    """
    high = run["floor"].isel(kernel=0) > 0
    if not high.any():
        raise Broken("The floor of softmax is 0 for all seeds: the values reach all labels.")
    run = run.isel(seed=high.values)
    f, lowest = run["loss"], run["floor"].isel(kernel=0)
    first = f.isel(step=0)
    return mean(((lowest - f).clip(min=0) / first).max("step"), range=span(run)).noting(
        floor=(lowest / first).mean(),
        end_over_floor=(f.isel(step=-1) / lowest).median(),
        seeds_without_floor=(~high).sum(),
    )


def steepness(run: xr.Dataset) -> np.ndarray:
    """|grad f|/sqrt(2f) in the end at the best step size, before the loss is one of rounding errors."""
    cell = only(run).transpose("seed", "step")
    f, g = cell["losses"].values, cell["slopes"].values
    last = f.shape[1] - 1 - (f > ROUNDING * f[:, :1])[:, ::-1].argmax(1)[:, None]
    f, g = (np.take_along_axis(x, last, 1)[:, 0] for x in (f, g))
    return np.maximum(g, 1e-16) / np.sqrt(2 * f)


@remarks_on_2.claim(
    predicts=at_least(1.0),
    margin="Vanishing: a tenth of the other kernel's, for the same residual.",
    runs={**GENERIC_TUNED, **named(constructed=SEPARATING_TUNED)},
    mutants=(SAME,),
)
def softmax_gradients_vanish(**runs: xr.Dataset) -> Estimate:
    """Training W^Q alone from a generic start, each kernel at its best step, |grad f|/sqrt(2f) of softmax is
    in the end, or before rounding errors, a tenth of that of Gaussian attention or less (log10 of the ratio).

    The same from the construction is in the notes.
    """
    found = {name: np.log10(steepness(run)) for name, run in runs.items()}
    return mean(found["gaussian"] - found["softmax"], range=span(runs["softmax"]), notes=means(found))


STATIONARY = 1e-2  # |grad f|/sqrt(2f) over that of the start, at a stationary point
APART = 0.05  # end points whose outputs differ by more, in units of |y|, are two


class Ends(NamedTuple):
    """Where starts end: how many different solutions, and the share of starts that are at one, by seed."""

    solutions: np.ndarray
    settled: np.ndarray


def ends(run: xr.Dataset, step: int) -> Ends:
    """The different outputs of starts that are solved or at a stationary point, at a record.

    Two starts end alike if a chain of ends with steps below a twentieth of |y| leads from one to the other.
    """
    chosen = run[["losses", "slopes", "outputs"]].isel(multiple=best_step(run)).isel(delta=0, scale=0)
    steep = chosen["slopes"] / (2 * chosen["losses"]) ** 0.5
    there = chosen.isel(step=step)
    solved = there["losses"] <= SOLVED * chosen["losses"].isel(step=0)
    settled = (solved | (steep.isel(step=step) <= STATIONARY * steep.isel(step=0))).transpose("seed", "start")
    outputs = check_finite(there["outputs"].transpose("seed", "start", "position")).values
    sizes = ((run["labels"] ** 2).sum("position") ** 0.5).values
    count = [_clusters(own[at] / size) for own, at, size in zip(outputs, settled.values, sizes, strict=True)]
    return Ends(np.array(count), settled.mean("start").values)


def _clusters(points: np.ndarray) -> int:
    if len(points) < 2:
        return len(points)
    return int(hierarchy.fclusterdata(points, APART, "distance", method="single").max())


@remarks_on_2.claim(
    predicts=at_least(1.0),
    margin="At least one more on average; ends nearer than a twentieth of |y| are one.",
    runs=STARTS,
    mutants=(SAME,),
)
def softmax_has_more_local_solutions(softmax: xr.Dataset, gaussian: xr.Dataset) -> Estimate:
    """Of 16 generic starts of W^Q on the same data, with the same W^K and W^V and the step 1/L, those of
    softmax end solved or at stationary points with more different outputs than those of Gaussian attention.

    Measured: the difference of these numbers; how it moved since half-way is drift.
    """
    half = int(np.searchsorted(softmax["step"].values, softmax["step"].values[-1] / 2))
    now, before = ([ends(run, i) for run in (softmax, gaussian)] for i in (-1, half))
    more, then = (at[0].solutions - at[1].solutions for at in (now, before))
    change = float((more - then).mean())
    notes = {}
    for kernel, own in zip(KERNELS, now, strict=True):
        notes |= {kernel: own.solutions.mean(), f"{kernel}_settled": own.settled.mean()}
    return mean(more, drift=(max(-change, 0.0), max(change, 0.0)), range=span(softmax), notes=notes)
