"""What the claims of attention_kernels measure on stored runs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.cluster import hierarchy

from descentlab.judging import Broken, Estimate, check_finite, mean, setting, trajectories

ROUNDING = 1e-20  # a loss below this part of its start is one of rounding errors
SOLVED = 1e-6  # and below this part it is solved: how far below says how long one trained
SLOWEST = 1e-6  # the pace of a loss that rose: as far from a bound that falls as one likes
STATIONARY = 1e-2  # |grad f|/sqrt(2f) over that of the start, at a stationary point
APART = 0.05  # end points whose outputs differ by more, in units of |y|, are two


def span(run: xr.Dataset) -> dict[str, tuple[float, float]]:
    """The range that a run tests."""
    features, positions = float(setting(run, "H") * setting(run, "D")), setting(run, "N") * setting(run, "n")
    return {"step": (0.0, float(run["step"].values[-1])), "HD/Nn": (features / positions,) * 2}


def total(blocks: xr.DataArray) -> xr.DataArray:
    """The norm of all blocks together."""
    return (blocks**2).sum("block") ** 0.5


def moved(run: xr.Dataset) -> xr.DataArray:
    """|M_t - M_0|/|M_0|."""
    return total(run["moved"]) / total(run["start_size"])


def logs_over(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """log10(a/b)."""
    return np.log10(a) - np.log10(b)


# ---------------------------------------------------------------- linear rates


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


def slowest_pace(paces: Sequence[Pace], run: xr.Dataset, notes: dict[str, float]) -> Estimate:
    """log10 of the slowest pace of several; what it would come to is in the interval as drift."""
    now, then = (
        np.log10(np.maximum(np.min([getattr(own, what) for own in paces], axis=0), SLOWEST))
        for what in ("slowest", "limit")
    )
    notes = {"slowest_of_all_seeds": 10 ** now.min(), **notes}
    return mean(now, drift=(float((now - then).mean()), 0.0), range=span(run), notes=notes)


def bounded(run: xr.Dataset, constant: np.ndarray, further: dict[str, float]) -> Estimate:
    """The slowest pace of a run; mean and tail pace, and how the constant moved, are in the notes."""
    found = pace(run, constant)
    notes = {"mean_pace": np.median(found.mean), "tail_pace": np.median(found.tail), **further}
    return slowest_pace([found], run, notes)


def all_weights_pace(run: xr.Dataset, generic: xr.Dataset) -> Estimate:
    """The pace against 1 - eta beta, beta in its safe reading."""
    safe = constant(run, 0)
    notes = {
        "eta_beta": np.median(run["rate"].values * safe),
        "least_beta_over_first": (run["beta"].isel(reading=0).min("step") / safe).min(),
        "eta_L": eta_L(run),
        "slowest_pace_from_generic": pace(generic, constant(generic, 0)).slowest.min(),
    }
    return bounded(run, safe, notes)


def printed_pace(softmax: xr.Dataset, gaussian: xr.Dataset) -> Estimate:
    """The pace against 1 - eta beta as printed, the slower of both kernels."""
    runs = {"softmax": softmax, "gaussian": gaussian}
    found = {name: pace(run, constant(run, 1)) for name, run in runs.items()}
    notes = {f"{name}_tail_pace": np.median(own.tail) for name, own in found.items()}
    return slowest_pace(list(found.values()), softmax, notes)


def query_pace(run: xr.Dataset) -> Estimate:
    """The pace against 1 - eta gamma."""
    first = constant(run, None)
    notes = {
        "eta_gamma": np.median(run["rate"].values * first),
        "least_gamma_over_first": (run["gamma"].min("step") / first).min(),
        "eta_L": eta_L(run),
    }
    return bounded(run, first, notes)


def eta_L(run: xr.Dataset) -> float:
    """The step size times the largest curvature of the whole run."""
    return float((run["rate"] * abs(run["curvature"]).max(("step", "end"))).max())


# ---------------------------------------------------------------- descent inequalities


def coefficients(run: xr.Dataset, sums: str) -> np.ndarray:
    """The largest a with f_t <= f_0 - a sums_t at all records, by seed."""
    f, spent = trajectories(run["loss"]).values, trajectories(run[sums]).values
    if not (spent[:, -1] > 0).all():
        raise Broken(f"{sums} stays 0: there is no gradient.")
    fallen, spent = f[:, :1] - f[:, 1:], spent[:, 1:]
    return np.where(spent > 0, fallen / np.maximum(spent, 1e-300), np.inf).min(1)


def printed_descent(run: xr.Dataset) -> Estimate:
    """The largest a with f_t <= f_0 - a eta sum |grad f|."""
    return _descent(run, "length")


def squared_descent(run: xr.Dataset) -> Estimate:
    """The largest a with f_t <= f_0 - a eta sum |grad f|^2."""
    return _descent(run, "energy")


def _descent(run: xr.Dataset, sums: str) -> Estimate:
    found = coefficients(run, sums)
    notes = {"least_of_all_seeds": found.min(), "eta_L": eta_L(run)}
    return mean(found, range=span(run), notes=notes)


# ---------------------------------------------------------------- overparameterisation, movement, convexity


def heads_too_many(**runs: xr.Dataset) -> Estimate:
    """The fewest heads with which B has rank Nn, less the fewest with hD >= Nn; the largest of all runs."""
    excess = []
    for run in runs.values():
        positions, heads = setting(run, "N") * setting(run, "n"), int(setting(run, "H"))
        full = run["ranks"].values == positions
        fewest = np.where(full.any(1), full.argmax(1) + 1, heads + 1)
        excess.append(fewest - -(-positions // setting(run, "D")))
    worst = np.take_along_axis(np.array(excess), np.abs(excess).argmax(0)[None], 0)[0]
    return mean(worst, range=span(next(iter(runs.values()))))


def fit_of_few_heads(softmax: xr.Dataset, gaussian: xr.Dataset) -> Estimate:
    """log10(f_T/f_0) at the best step size, the smaller of both kernels."""
    left = {name: log_left(run) for name, run in (("softmax", softmax), ("gaussian", gaussian))}
    notes = {name: values.mean() for name, values in left.items()}
    return mean(np.minimum(*left.values()), range=span(softmax), notes=notes)


def movement(softmax: xr.Dataset, gaussian: xr.Dataset) -> Estimate:
    """|M_T - M_0|/|M_0|, the larger of both kernels."""
    found = {
        name: moved(run).isel(step=-1).values for name, run in (("softmax", softmax), ("gaussian", gaussian))
    }
    notes = {name: values.mean() for name, values in found.items()}
    return mean(np.maximum(*found.values()), range=span(softmax), notes=notes)


def negative_curvature(run: xr.Dataset) -> xr.DataArray:
    """How negative the least eigenvalue of the Hessian is, over the largest in size, along the run."""
    return (-run["curvature"].isel(end=0)).clip(min=0) / abs(run["curvature"]).max("end")


def concavity(softmax: xr.Dataset, gaussian: xr.Dataset, **generic: xr.Dataset) -> Estimate:
    """The largest negative curvature over the largest positive one along the runs, of both kernels."""
    worst = [negative_curvature(run).max("step").values for run in (softmax, gaussian)]
    notes = {name: negative_curvature(run).max("step").mean() for name, run in generic.items()}
    return mean(np.maximum(*worst), range=span(softmax), notes=notes)


# ---------------------------------------------------------------- kernels compared


def best_step(run: xr.Dataset) -> xr.DataArray:
    """The index of the step size with the least loss in the end, for each seed and cell."""
    return run["losses"].fillna(np.inf).isel(step=-1, drop=True).argmin("multiple")


def best(run: xr.Dataset) -> xr.Dataset:
    """Of a run of many cells, losses and gradients at the best step size, for each seed and cell."""
    return run[["losses", "slopes"]].fillna(np.inf).isel(multiple=best_step(run))


def at_an_end(run: xr.Dataset) -> float:
    """The share of cells whose best step size is the largest that was tried."""
    which = best_step(run)
    return float((which == run.sizes["multiple"] - 1).mean())


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


def advantage(softmax: xr.Dataset, gaussian: xr.Dataset) -> np.ndarray:
    """log10 of the loss that softmax ends with over that of Gaussian attention, by seed; solved is solved."""
    losses = [only(run)["losses"].transpose("step", "seed").values for run in (softmax, gaussian)]
    solved = SOLVED * np.maximum(*(own[0] for own in losses))
    return logs_over(*(np.maximum(own[-1], solved) for own in losses))


def separation(softmax: xr.Dataset, gaussian: xr.Dataset, **others: xr.Dataset) -> Estimate:
    """The advantage of Gaussian attention, each kernel at its best step.

    `others` are couples of runs elsewhere, softmax_... and gaussian_..., for the notes.
    """
    notes = {"softmax": log_left(softmax).mean(), "gaussian": log_left(gaussian).mean()}
    for name, run in others.items():
        kernel, _, where = name.partition("_")
        if kernel == "softmax":
            notes[f"ratio_{where}"] = advantage(run, others[f"gaussian_{where}"]).mean()
    notes |= {
        f"{name}_at_largest_step": at_an_end(run)
        for name, run in (("softmax", softmax), ("gaussian", gaussian))
    }
    return mean(advantage(softmax, gaussian), range=span(softmax), notes=notes)


def steepness(run: xr.Dataset) -> np.ndarray:
    """|grad f|/sqrt(2f) in the end at the best step size, before the loss is one of rounding errors."""
    cell = only(run).transpose("seed", "step")
    f, g = cell["losses"].values, cell["slopes"].values
    last = f.shape[1] - 1 - (f > ROUNDING * f[:, :1])[:, ::-1].argmax(1)[:, None]
    f, g = (np.take_along_axis(x, last, 1)[:, 0] for x in (f, g))
    return np.maximum(g, 1e-16) / np.sqrt(2 * f)


def vanishing(softmax: xr.Dataset, gaussian: xr.Dataset, **constructed: xr.Dataset) -> Estimate:
    """log10 of Gaussian attention's gradient over softmax's in the end, each for the root of its loss.

    `constructed` are the same two runs from the construction, for the notes.
    """
    runs = {"softmax": softmax, "gaussian": gaussian, **constructed}
    found = {name: np.log10(steepness(run)) for name, run in runs.items()}
    notes = {name: values.mean() for name, values in found.items()}
    return mean(found["gaussian"] - found["softmax"], range=span(softmax), notes=notes)


def below_floor(run: xr.Dataset) -> Estimate:
    """How far f_t goes below the floor of softmax at most, over f_0; 0 if it never does.

    Of the seeds that have a floor: some values reach all labels.
    """
    high = run["floor"].isel(kernel=0) > 0
    if not high.any():
        raise Broken("The floor of softmax is 0 for all seeds: the values reach all labels.")
    run = run.isel(seed=high.values)
    f, lowest = run["loss"], run["floor"].isel(kernel=0)
    first = f.isel(step=0)
    notes = {
        "floor": (lowest / first).mean(),
        "end_over_floor": (f.isel(step=-1) / lowest).median(),
        "seeds_without_floor": float((~high).sum()),
    }
    return mean(((lowest - f).clip(min=0) / first).max("step"), range=span(run), notes=notes)


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


def more_solutions(softmax: xr.Dataset, gaussian: xr.Dataset) -> Estimate:
    """Solutions of softmax less those of Gaussian attention; how that moved since half-way is drift."""
    half = int(np.searchsorted(softmax["step"].values, softmax["step"].values[-1] / 2))
    now, before = ({"softmax": ends(softmax, i), "gaussian": ends(gaussian, i)} for i in (-1, half))
    more, then = (at["softmax"].solutions - at["gaussian"].solutions for at in (now, before))
    change = float((more - then).mean())
    notes = {name: own.solutions.mean() for name, own in now.items()}
    notes |= {f"{name}_settled": own.settled.mean() for name, own in now.items()}
    return mean(more, drift=(max(-change, 0.0), max(change, 0.0)), range=span(softmax), notes=notes)
