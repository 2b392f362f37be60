"""What the claims of decision_lists measure on trajectories."""

import numpy as np
import xarray as xr
from scipy import optimize

from descentlab.judging import Broken, Estimate, Hull, Point, Unsettled, exact, mean, setting
from descentlab.papers.decision_lists.certificate import Certificate, certify
from descentlab.papers.decision_lists.setting import GAMMAS, Preset, Rule

# ---------------------------------------------------------------- the flow of W


def hitting_times(run: xr.Dataset) -> np.ndarray:
    """The certified time of each seed; +inf where there is none.

    What is right from the first instant on is certified as soon as rounding lets it be.
    """
    hit = run["hit"].values[:, -1]
    return np.where(hit < 0, np.inf, np.maximum(hit, 1e-300)) * setting(run, "eta")


def log_slack(run: xr.Dataset, reading: str) -> float | None:
    """The least log10(bound / certified time) over seeds, for a reading of gamma.

    A seed that is not certified by the end of the run has less than log10(bound / end). None if that says
    nothing.
    """
    bound = run["time_bound"].values[:, GAMMAS.index(reading)]
    end = float(setting(run, "eta")) * float(run["step"].values[-1])
    times = hitting_times(run)
    if np.any(np.isinf(times) & (end < bound)):
        return None
    return float(np.log10(bound / np.minimum(times, end)).min())


def time_slack(run: xr.Dataset) -> Estimate:
    """The least log10(bound / certified time) over seeds; the bound speaks of every one of them.

    With gamma left open, of the tightest bound, and the interval reaches over all readings.
    """
    chosen = setting(run, "gamma")
    readings = GAMMAS if chosen == "any" else (chosen,)
    slacks = [log_slack(run, reading) for reading in readings]
    found = [slack for slack in slacks if slack is not None]
    if not found:
        raise Broken("Not certified by the end of the run, which is before the bound: run for longer.")
    times = hitting_times(run)
    notes = {
        "time": float(times.max()) if np.isfinite(times).all() else -1.0,
        "c": run["c"].mean(),
        **{f"bound_{name}": b for name, b in zip(GAMMAS, run["time_bound"].values.max(axis=0), strict=True)},
    }
    return Estimate(
        min(found), run.sizes["seed"], Hull(tuple(Unsettled() if s is None else Point(s) for s in slacks)),
        {"step": (0.0, float(run["step"].values[-1]))}, {name: float(value) for name, value in notes.items()},
        lacks="a definition of gamma" if len(found) == len(slacks) else "more steps",
    )  # fmt: skip


# ---------------------------------------------------------------- descent on W and V


def first_certified(run: xr.Dataset) -> np.ndarray:
    """The first recorded step of each seed at which all sequences are right; +inf where there is none."""
    sure, steps = run["certified"].values[:, 1:] > 0, run["step"].values[1:].astype(float)
    return np.where(sure.any(axis=1), steps[sure.argmax(axis=1)], np.inf)


def window(run: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """2 m L_0 / (A^2 eta) and epsilon / (2 eta) for each seed, in steps; A is as large as it may be."""
    n, M = setting(run, "n"), setting(run, "M")
    L_0, epsilon, rate = run["loss"].values[:, 0], run["epsilon"].values, run["rate"].values
    A = L_0 - 6 * epsilon / n
    return 2 * M * L_0 / (A**2 * rate), epsilon / (2 * rate)


def window_slack(run: xr.Dataset) -> Estimate:
    """The least log10(begin of the window / first perfect step) over seeds: >= 0 if all are met by then.

    Over the seeds whose own L_0 and epsilon meet the conditions, if there are any.
    """
    n, M = setting(run, "n"), setting(run, "M")
    L_0, epsilon = run["loss"].values[:, 0], run["epsilon"].values
    rooms = np.array([room(e, loss, n, M) for e, loss in zip(epsilon, L_0, strict=True)])
    counted = rooms > 1 if (rooms > 1).any() else np.ones(rooms.size, bool)
    first, (begin, end) = first_certified(run)[counted], (x[counted] for x in window(run))
    last = float(run["step"].values[-1])
    met = np.minimum(first, last)
    notes = {
        "first_certified_step": met.max(),
        "window_begins": np.median(begin),
        "window_ends": np.median(end),
        "c": run["c"].mean(),
        "epsilon": epsilon.mean(),
        "L_0": L_0.mean(),
        "least_room_of_conditions": rooms.min(),
        "seeds_that_meet_conditions": np.sum(rooms > 1),
    }
    if "curvature" in run:
        before = run["step"].values[None, :] <= met[:, None]
        largest = np.where(before, run["curvature"].values[counted], -np.inf).max(axis=1)
        notes["eta_times_largest_eigenvalue"] = (run["rate"].values[counted] * largest).max()
    slack = float(np.log10(begin / met).min())
    known = not np.any(np.isinf(first) & (last < begin))
    return Estimate(
        slack, int(counted.sum()), Point(slack) if known else Unsettled(), {"step": (0.0, last)},
        {name: float(value) for name, value in notes.items()}, lacks="more steps",
    )  # fmt: skip


# ---------------------------------------------------------------- uniform attention


def nearest_permutation(V: np.ndarray) -> np.ndarray:
    """The permutation whose matrix has the largest inner product with V: token t goes to label q[t]."""
    return optimize.linear_sum_assignment(V.T, maximize=True)[1]


def agreement(run: xr.Dataset) -> np.ndarray:
    """The share of tokens on which the permutation nearest to V is pi, at the end, of each seed.

    Where several permutations are equally near, as for V = 0, V points to none of them.
    """
    shares = []
    for V, pi in zip(run["final_V"].values, run["permutation"].values, strict=True):
        near = nearest_permutation(V)
        spread = V.max() - V.min()
        distinct = [np.ptp(V[:, t] - V[:, s]) > 1e-9 * spread for t, s in _neighbours(len(pi))]
        shares.append(np.mean(near == pi) if spread > 0 and all(distinct) else 0.0)
    return np.array(shares)


def _neighbours(L: int) -> list[tuple[int, int]]:
    return [(t, s) for t in range(L) for s in range(t)]


def learned_permutation(**runs: xr.Dataset) -> Estimate:
    """Mean over seeds of the smaller agreement of the two starts."""
    shares = np.minimum(*[agreement(run) for run in runs.values()])
    last = {name: run.isel(step=-1) for name, run in runs.items()}
    notes = {f"cosine_from_{name}": end["cosine"].mean() for name, end in last.items()}
    notes |= {f"columns_decoded_from_{name}": end["decoded"].mean() for name, end in last.items()}
    any_run = next(iter(runs.values()))
    L = any_run.sizes["query"]
    return mean(shares, resolution=1 / L, range={"step": (0, any_run["step"].values[-1])}, notes=notes)


def disagreeing_pairs(run: xr.Dataset) -> Estimate:
    """The least share, over seeds, of pairs of tokens that some sequence labels differently; exact."""
    pairs = run["disagreeing_pairs"].values
    notes = {
        "error_of_trained_V": run["error"].values[:, -1].mean(),
        "certified_records": run["certified"].values.sum(),
    }
    steps = run["step"].values
    return exact(pairs.min(), seeds=pairs.size, range={"step": (0, steps[-1])}, notes=notes)


# ---------------------------------------------------------------- joint training


def rule_of(run: xr.Dataset, seed: int) -> Rule:
    """The rule that a seed of a stored run was trained on."""
    preset = Preset(**{name: setting(run, name) for name in Preset().settings()})
    return Rule(preset, *(run[name].values[seed] for name in ("permutation", "lists", "sizes")))


def certificates(run: xr.Dataset) -> list[Certificate]:
    """The exact certificate of each seed's last W and V."""
    return [
        certify(run["final_W"].values[seed], run["final_V"].values[seed], rule_of(run, seed))
        for seed in range(run.sizes["seed"])
    ]


def joint_success(**runs: xr.Dataset) -> Estimate:
    """Mean over seeds of the share of cells that end perfectly certified."""
    success = np.array([[bool(found) for found in certificates(run)] for run in runs.values()])
    first = np.array([first_certified(run) for run in runs.values()])
    steps = next(iter(runs.values()))["step"].values
    notes = {
        "cells": success.size,
        "failures": success.size - success.sum(),
        "median_first_certified_step": np.median(first) if np.isfinite(np.median(first)) else -1.0,
        "cells_lost_again": np.sum(np.isfinite(first) & ~success),
        "share_of_the_worst_cell": success.mean(axis=1).min(),
    }
    sizes = {name: [setting(run, name) for run in runs.values()] for name in ("L", "n", "M")}
    return mean(
        success.mean(axis=0), resolution=1 / len(runs), notes=notes,
        range={"step": (0, steps[-1])} | {name: (min(v), max(v)) for name, v in sizes.items()},
    )  # fmt: skip


def room(epsilon: float, L_0: float, n: int, m: int) -> float:
    """epsilon (L_0 - 6 epsilon/n)^2 / (4 m L_0): above 1 if some A meets the conditions.

    >>> bool(room(5.67, np.log(30), 30, 2) > 1 > room(5.67, np.log(20), 20, 2))
    True
    """
    A = L_0 - 6 * epsilon / n
    return epsilon * A**2 / (4 * m * L_0) if A > 0 else 0.0
