"""The claims of decision_lists: two theorems, an observation on uniform attention, and what is left open."""

import functools
import itertools
import math
from typing import Any

import jax
import numpy as np
import xarray as xr
from scipy import optimize

from descentlab.judging import (
    Assumption,
    Broken,
    Estimate,
    Grid,
    Hull,
    Point,
    Unsettled,
    at_least,
    data_mutant,
    exact,
    first_step,
    is_one_of,
    mean,
    mutant,
    setting,
    theorem,
)
from descentlab.papers import Study
from descentlab.papers.decision_lists import PRESETS, Preset, Task, lists, make_task, masses, risk, sequences
from descentlab.papers.decision_lists.certificate import Certificate, certify

# ---------------------------------------------------------------- runs, as overrides of a preset

Overrides = dict[str, Any]

# What only matters elsewhere, so that presets that differ in it share runs.
PLAIN: Overrides = {
    "c": 0.0, "epsilon": 0.0, "noise": 1.0, "delta": "rival", "gamma": "any",
    "reduced": True, "stiff": False, "step": "fixed", "detail": False, "optimizer": "gd",
    "attention": "softmax",
}  # fmt: skip

# Descent on W and V with step 1/lambda_max. It need not reach the theorem's window if it is perfect before.
WINDOW: Overrides = {
    "algorithm": "descent", "optimizer": "gd", "attention": "softmax", "train": "both",
    "start": "permutation", "step": "curvature", "eta": 1.0, "steps": 300,
}  # fmt: skip

# V alone under uniform attention: convex, of curvature below 1/(2L) + 1/(2n) for uniform tokens.
UNIFORM: dict[str, Overrides] = {
    start: PLAIN | {"algorithm": "descent", "train": "value", "start": start, "eta": 10.0, "steps": 20_000}
    for start in ("zero", "random")
}

# Joint training over sizes, laws and starts. From distinct tokens, up to sequences that hold all of them.
SIZES = {
    "distinct": [(6, 3), (6, 5), (6, 6), (10, 3), (10, 5), (10, 10)],
    "iid": [(6, 2), (6, 4), (10, 2), (10, 4)],
}
JOINT: dict[str, dict[str, Overrides]] = {
    start: {
        f"{start}_{law}_L{L}_n{n}_M{M}": PLAIN | {
            "algorithm": "descent", "train": "both", "start": start, "eta": 10.0, "steps": 2000,
            "L": L, "n": n, "M": M, "law": law,
        }
        for law, sizes in SIZES.items()
        for L, n in sizes
        for M in (2, 4)
    }
    for start in ("zero", "random")
}  # fmt: skip

# ---------------------------------------------------------------- what is assumed

LAYER = (is_one_of("optimizer", "gd"), is_one_of("attention", "softmax"))
SETTING = (is_one_of("law", *sequences.LAWS), *LAYER)
ALL = tuple(PRESETS)
ORDER = "The theorem gives an upper bound, so the logarithm of the slack is not negative."

# ---------------------------------------------------------------- training W alone

training_W = theorem(
    "Section C, result 1",
    bound="upper",
    assumes=(
        *SETTING,
        is_one_of("algorithm", "flow"),
        is_one_of("train", "attention"),
        is_one_of("start", "permutation"),
        Assumption("c = 4 n log(L)/delta", lambda p: p.c == 0),
        Assumption("L / M", lambda p: True, lambda p: p.L / p.M, exact=False),
    ),
    presets=ALL,
)


def hitting_times(run: xr.Dataset) -> np.ndarray:
    """The certified time of each seed; +inf where there is none.

    What is right from the first instant on is certified as soon as rounding lets it be.
    """
    hit = run["hit"].values[:, -1]
    return np.where(hit < 0, np.inf, np.maximum(hit, 1e-300)) * setting(run, "eta")


def least_slack(bound: np.ndarray, times: np.ndarray, end: float) -> tuple[float, Point | Unsettled]:
    """The least log10(bound / certified time) over seeds, and how well it is known.

    A seed that is not certified by the end has less than log10(bound / end), which may say nothing.
    """
    slack = float(np.log10(bound / np.minimum(times, end)).min())
    return slack, Unsettled() if np.any(np.isinf(times) & (end < bound)) else Point(slack)


@training_W.claim(
    predicts=at_least(0),
    margin=ORDER,
    mutants=(
        mutant("sequences with repeats asked of a model that saw none", law="distinct", sequences="all"),
    ),
)
def flow_classifies_in_time(run: xr.Dataset) -> Estimate:
    """From W = 0 and V = cP gradient flow of W classifies all sequences by time 4M/(log(L) gamma).

    Measured: the least log10(bound / certified time) over seeds; the bound speaks of every one of them. With
    gamma left open, of the tightest bound, and the interval reaches over all readings.
    """
    chosen, times = setting(run, "gamma"), hitting_times(run)
    end = float(setting(run, "eta")) * float(run["step"].values[-1])
    bounds = dict(zip(masses.GAMMAS, run["time_bound"].values.T, strict=True))
    slacks = [least_slack(bounds[name], times, end) for name in bounds if chosen in (name, "any")]
    found = [slack for slack, known in slacks if isinstance(known, Point)]
    if not found:
        raise Broken("Not certified by the end of the run, which is before the bound: run for longer.")
    reach = Hull(tuple(known for _, known in slacks))
    lacks = "a definition of gamma" if len(found) == len(slacks) else "more steps"
    return Estimate(min(found), run.sizes["seed"], reach, lacks=lacks).noting(
        time=times.max() if np.isfinite(times).all() else -1.0,
        c=run["c"].mean(),
        **{f"bound_{name}": bound.max() for name, bound in bounds.items()},
    )


# ---------------------------------------------------------------- training W and V


@functools.lru_cache(maxsize=32)
def start_of_descent(p: Preset) -> tuple[float, float] | None:
    """epsilon and L_0 of the theorem on W and V, of one instance; None where iteration finds no c.

    Without noise in V_0 all instances agree for distinct tokens; each seed's own are in the verdict's notes.
    """
    if p.law not in sequences.LAWS or p.c > 0:
        return None
    own = p.replace(WINDOW | {"step": "fixed", "noise": 0.0})
    task = jax.jit(make_task, static_argnums=1)(jax.random.key(0), own)
    assert isinstance(task, Task)
    return (float(task.epsilon), float(risk(task.start, task))) if math.isfinite(task.c) else None


def room(epsilon: Any, L_0: Any, n: int, m: int) -> tuple[Any, Any]:
    """L_0 - 6 epsilon/n, the bound on A, and epsilon A^2 / (4 m L_0): above 1 if some A meets the conditions.

    >>> bool(room(5.67, np.log(30), 30, 2)[1] > 1 > room(5.67, np.log(20), 20, 2)[1])
    True
    """
    A = L_0 - 6 * epsilon / n
    return A, np.where(A > 0, epsilon * A**2 / (4 * m * L_0), 0.0)


def own_room(p: Preset) -> tuple[Any, Any]:
    """`room` at the start of descent; minus infinity and 0 where there is no c."""
    found = start_of_descent(p)
    return room(*found, p.n, p.M) if found else (-math.inf, 0.0)


training_W_and_V = theorem(
    "Section C, result 2",
    bound="upper",
    assumes=(
        *SETTING,
        Assumption("the population gradient is exact", lambda p: p.replace(WINDOW).loss == "exact"),
        Assumption("c is not given", lambda p: p.c == 0),
        Assumption("c = 10 n^2 L_0/delta + 4 epsilon n is found by iteration", start_of_descent),
        Assumption("L_0 - 6 epsilon/n > 0", lambda p: own_room(p)[0] > 0),
        Assumption("A^2 > 4 m L_0/epsilon for some A < L_0 - 6 epsilon/n", lambda p: own_room(p)[1] > 1),
        Assumption(
            "epsilon (L_0 - 6 epsilon/n)^2 / (4 m L_0)", lambda p: True, lambda p: own_room(p)[1], exact=False
        ),
        Assumption("|V_0 - cP|_inf over epsilon/2", lambda p: p.noise <= 1, lambda p: p.noise),
    ),
    presets=("quick", "paper", "repeats"),
)


def first_certified(run: xr.Dataset) -> np.ndarray:
    """The first recorded step of each seed after the start at which all sequences are right; +inf if none."""
    return first_step(run["certified"].isel(step=slice(1, None)), above=1)


def window_of(run: xr.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """2 m L_0 / (A^2 eta) and epsilon / (2 eta), in steps, and the room of the conditions, for each seed.

    A is as large as it may be.
    """
    n, M = setting(run, "n"), setting(run, "M")
    L_0, epsilon, rate = run["loss"].values[:, 0], run["epsilon"].values, run["rate"].values
    A, rooms = room(epsilon, L_0, n, M)
    return 2 * M * L_0 / (A**2 * rate), epsilon / (2 * rate), rooms


@training_W_and_V.claim(
    predicts=at_least(0),
    margin=ORDER,
    runs={"run": WINDOW},
    mutants=(mutant("attention held uniform", train="value", steps=20_000),),
)
def descent_classifies_in_window(run: xr.Dataset) -> Estimate:
    """Gradient descent on W and V from near cP with step 1/lambda_max meets a perfect classifier before its
    window begins, at step 2 m L_0/(A^2 eta).

    Measured: the least log10(begin of the window / first perfect step) over seeds, >= 0 if all are met by
    then. Over the seeds whose own L_0 and epsilon meet the conditions, if there are any.
    """
    begin, end, rooms = window_of(run)
    counted = rooms > 1 if (rooms > 1).any() else np.ones(rooms.size, bool)
    first, begin, end = (x[counted] for x in (first_certified(run), begin, end))
    last = float(run["step"].values[-1])
    met = np.minimum(first, last)
    slack, known = least_slack(begin, first, last)
    estimate = Estimate(slack, int(counted.sum()), known, lacks="more steps").noting(
        first_certified_step=met.max(),
        window_begins=np.median(begin),
        window_ends=np.median(end),
        c=run["c"].mean(),
        epsilon=run["epsilon"].mean(),
        L_0=run["loss"].values[:, 0].mean(),
        least_room_of_conditions=rooms.min(),
        seeds_that_meet_conditions=np.sum(rooms > 1),
    )
    if "curvature" not in run:
        return estimate
    before = run["step"].values[None, :] <= met[:, None]
    largest = np.where(before, run["curvature"].values[counted], -np.inf).max(axis=1)
    return estimate.noting(eta_times_largest_eigenvalue=(run["rate"].values[counted] * largest).max())


# ---------------------------------------------------------------- uniform attention

uniform_attention = theorem("Conclusion", kind="experiment", bound="order", assumes=LAYER, presets=ALL)


def agreement(run: xr.Dataset) -> np.ndarray:
    """The share of tokens on which the permutation nearest to V is pi, at the end, of each seed.

    The nearest is that whose matrix has the largest inner product with V. Where several are equally near, as
    for V = 0, V points to none of them.
    """
    shares = []
    for V, pi in zip(run["final_V"].values, run["permutation"].values, strict=True):
        near = optimize.linear_sum_assignment(V.T, maximize=True)[1]
        spread = V.max() - V.min()
        pairs = itertools.combinations(V.T, 2)
        distinct = spread > 0 and all(np.ptp(one - other) > 1e-9 * spread for one, other in pairs)
        shares.append(np.mean(near == pi) if distinct else 0.0)
    return np.array(shares)


@uniform_attention.claim(
    predicts=at_least(0.8),
    margin="Four tokens in five: chance gives one in L, and a share of L tokens is known to 1/L only.",
    runs=UNIFORM,
    mutants=(
        mutant("sequences that hold every token", law="distinct", n=8, L=8),
        data_mutant(
            "another permutation", lambda run: run.assign(permutation=run["permutation"].roll(query=1))
        ),
    ),
)
def uniform_attention_learns_permutation(**runs: xr.Dataset) -> Estimate:
    """Uniform attention (W = 0) pushes V towards P, from zero and from small random values: in the end P is
    the permutation matrix nearest to V.

    Measured: the mean over seeds of the smaller agreement of the two starts.
    """
    shares = np.minimum(*[agreement(run) for run in runs.values()])
    last = {name: run.isel(step=-1) for name, run in runs.items()}
    return mean(shares, resolution=1 / next(iter(runs.values())).sizes["query"]).noting(
        **{f"cosine_from_{name}": end["cosine"].mean() for name, end in last.items()},
        **{f"columns_decoded_from_{name}": end["decoded"].mean() for name, end in last.items()},
    )


need_of_attention = theorem("Introduction; conclusion", kind="remark", bound="existence", presets=ALL)


@need_of_attention.claim(
    predicts=at_least(1e-9),
    margin="One pair of tokens with two labels in a sequence is enough; decided exactly for every seed.",
    runs={"run": UNIFORM["zero"]},
    mutants=(
        mutant(
            "lists that put all tokens in one order", L=4, n=3, M=4, lists="[[0],[0,1],[0,1,2],[0,1,2,3]]"
        ),
    ),
)
def attention_is_needed(run: xr.Dataset) -> Estimate:
    """With W = 0 no V is perfect: some sequence has two labels, and all its positions share one output.

    Measured: the least share, over seeds, of pairs of tokens that some sequence labels differently; exact.
    """
    pairs = run["disagreeing_pairs"].values
    return exact(pairs.min(), seeds=pairs.size).noting(
        error_of_trained_V=run["error"].values[:, -1].mean(),
        certified_records=run["certified"].values.sum(),
    )


# ---------------------------------------------------------------- the open question

open_question = theorem(
    "Conclusion, the open question", kind="ours", bound="existence", assumes=LAYER, presets=ALL
)


def certificates(run: xr.Dataset) -> list[Certificate]:
    """The exact certificate of each seed's last W and V for the rule that it was trained on."""
    preset = Preset(**{name: setting(run, name) for name in Preset().settings()})
    names = ("final_W", "final_V", "permutation", "lists", "sizes")
    seeds = zip(*(run[name].values for name in names), strict=True)
    return [certify(W, V, lists.Rule(preset, *rule)) for W, V, *rule in seeds]


@open_question.claim(
    predicts=at_least(0.9),
    margin="One cell in ten may need more steps than a run of fixed length has.",
    runs=JOINT["random"],
    mutants=(
        data_mutant("attention made uniform again", lambda run: run.assign(final_W=0 * run["final_W"])),
    ),
)
def joint_training_classifies(**runs: xr.Dataset) -> Estimate:
    """Gradient descent on W and V together, from small random values, ends in perfect classification, for
    small L, n and M of both laws.

    Measured: the mean over seeds of the share of cells that end perfectly certified.
    """
    success = np.array([[bool(found) for found in certificates(run)] for run in runs.values()])
    first = np.array([first_certified(run) for run in runs.values()])
    steps = next(iter(runs.values()))["step"].values
    sizes = {name: [setting(run, name) for run in runs.values()] for name in ("L", "n", "M")}
    tested = {"step": (0, steps[-1])} | {name: (min(own), max(own)) for name, own in sizes.items()}
    return mean(success.mean(axis=0), resolution=1 / len(runs), range=tested).noting(
        cells=success.size,
        failures=success.size - success.sum(),
        median_first_certified_step=np.median(first) if np.isfinite(np.median(first)) else -1.0,
        cells_lost_again=np.sum(np.isfinite(first) & ~success),
        share_of_the_worst_cell=success.mean(axis=1).min(),
    )


SUCCESS_MAP = Study(
    "success_map",
    "joint training over sizes, laws of tokens and starts, each end certified exactly",
    PRESETS["quick"],
    {start: (Grid("cell", list(runs.values())),) for start, runs in JOINT.items()},
    claims=("joint_training_classifies",),
    figures=("joint", "joint_failures"),
)
