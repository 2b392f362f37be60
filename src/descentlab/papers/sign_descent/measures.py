"""What the claims of sign_descent measure on recorded runs, in the order of the slides."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import xarray as xr

from descentlab.judging import (
    Broken,
    Estimate,
    Hull,
    difference,
    exponent,
    first_step,
    log_gap,
    log_ratio,
    mean,
    preference,
    stretches,
    student,
)
from descentlab.papers.sign_descent.runs import LONGER
from descentlab.papers.sign_descent.stages import SLIDES, softmax, stage_times


def at(run: xr.Dataset, name: str, step: int) -> xr.DataArray:
    """A probe at a step that must have been recorded."""
    if step not in run["step"]:
        raise Broken(f"{name} was not recorded at step {step}; the last record is {int(run['step'][-1])}.")
    return run[name].sel(step=step)


def upto(run: xr.Dataset, last: int | None = None) -> dict[str, tuple[float, float]]:
    """The range of steps behind an estimate: from the start to `last`, or to the end."""
    return {"step": (0.0, float(run["step"][-1] if last is None else last))}


# ---------------------------------------------------------------- stage I


def value_noise_growth(run: xr.Dataset) -> Estimate:
    """The exponent of the gain of mean value noise in t, from the end of stage I on."""
    noise = run["value_noise"].mean("sample")
    gain = noise - noise.isel(step=0)
    return exponent(gain.rename("gain of value noise"), window=(SLIDES["T1"], float(run["step"][-1])))


def largest_move(run: xr.Dataset) -> Estimate:
    """How far query and key products move in stage I over their size at the start, the largest of four.

    Of the value signal the slides say that it becomes negligible, not that it stays: see the notes.
    """
    end = SLIDES["T1"]

    def moved(name: str) -> np.ndarray:
        start = at(run, name, 0).astype(float)
        own = [d for d in start.dims if d != "seed"]
        move = at(run, name, end).astype(float) - start
        return np.sqrt(((move**2).mean(own) / (start**2).mean(own)).values)

    names = ("query_noise", "key_noise", "query_signal", "key_signal")
    ratios = np.stack([moved(name) for name in names])
    notes = {name: float(r.mean()) for name, r in zip(names, ratios, strict=True)}
    notes["value_noise"] = float(moved("value_noise").mean())
    share = abs(at(run, "value_signal", end)) / at(run, "value_noise", end).mean("sample")
    notes["value_signal_over_value_noise"] = float(share.mean())
    return mean(ratios.max(axis=0), range=upto(run, last=end), notes=notes)


# ---------------------------------------------------------------- stage II


def share_at(name: str, step: int, of: tuple[str, ...]) -> Callable[[xr.Dataset], Estimate]:
    """A recorded share of neurons, or of neurons and samples, at a step."""

    def measure(run: xr.Dataset) -> Estimate:
        count = np.prod([run.sizes[d] for d in of])
        return mean(at(run, name, step).values, resolution=1 / count, range={"step": (step, step)})

    return measure


def imbalance(run: xr.Dataset) -> Estimate:
    """How far the share of positive query noise is from one half at the end of stage II, in each run."""
    share = at(run, "positive_share", SLIDES["T2"]).values
    return mean(
        np.abs(share - 0.5), range=upto(run, last=SLIDES["T2"]), notes={"positive_share": share.mean()}
    )


# ---------------------------------------------------------------- stage III


def votes_followed(run: xr.Dataset, vote: Callable[[xr.DataArray], xr.DataArray]) -> Estimate:
    """The share of steps of stage III in which query and key signals move as the vote says.

    A query signal should step with the vote of the key noise, a key signal against that of the query noise.
    """
    begin, end = SLIDES["T2"], SLIDES["T3"]
    at(run, "query_signal", end)
    stage = run.sel(step=slice(begin, end))

    def moves(name: str) -> xr.DataArray:
        return stage[name].diff("step", label="lower")

    follows = moves("query_signal") * vote(stage["key_noise"]) > 0
    opposes = moves("key_signal") * vote(stage["query_noise"]) < 0

    def per_seed(agree: xr.DataArray) -> np.ndarray:
        return agree.mean([d for d in agree.dims if d != "seed"]).values

    notes = {"query": float(per_seed(follows).mean()), "key": float(per_seed(opposes).mean())}
    shares = (per_seed(follows) + per_seed(opposes)) / 2
    return mean(shares, resolution=1 / run.sizes["neuron"], range={"step": (begin, end)}, notes=notes)


# ---------------------------------------------------------------- stage IV


def distance_from_half(run: xr.Dataset) -> Estimate:
    """The largest |s - 1/2| over samples and queries when stage III is over by the run's own clock, at T3."""
    end = stage_times(run)["T3"]
    if not np.isfinite(end).all():
        raise Broken(f"stage III is not over in {int(run['step'][-1])} steps in every seed.")
    far = {}
    for which in ("11", "21"):
        there = softmax(run, which).transpose("seed", "step", "sample").values
        row = np.searchsorted(run["step"].values, end)
        far[which] = abs(there[np.arange(end.size), row] - 0.5).max(axis=1)
    notes = {f"s_{which}": float(v.mean()) for which, v in far.items()} | {"T3": float(np.median(end))}
    return mean(np.maximum(far["11"], far["21"]), range={"step": (end.min(), end.max())}, notes=notes)


def leaves_half(run: xr.Dataset, which: str, by: float = 0.1) -> np.ndarray:
    """The first step at which the mean softmax output has left 1/2 by so much."""
    return first_step(abs(softmax(run, which).mean("sample") - 0.5), above=by)


def noise_leaves_first(run: xr.Dataset) -> Estimate:
    """log of (time at which s_11 leaves 1/2) / (time at which s_21 does)."""
    later, earlier, steps = leaves_half(run, "11"), leaves_half(run, "21"), run["step"].values.astype(float)
    return log_ratio(later, earlier, steps[-1], log_gap(np.concatenate([later, earlier]), steps))


def decay_of_s21(run: xr.Dataset) -> Estimate:
    """exp(-ct) against exp(-ct^2) for each s_{i,21}, from 0.4 down to 0.1, to 0.01 and to 0.001.

    Both are fitted to the odds s/(1 - s), which are s itself once it is small, and do not bend near 1/2.
    Which law fits better may depend on where one stops looking: the interval holds all three windows.
    """
    log_s = run["log_softmax_21"].transpose("seed", "sample", "step")
    seeds, samples = log_s.sizes["seed"], log_s.sizes["sample"]
    each = log_s.values.reshape(seeds * samples, -1)
    steps = {"step": run["step"]}
    series = xr.DataArray(each, steps, ("seed", "step"), "log s_21")
    with np.errstate(divide="ignore"):
        log_odds = xr.DataArray(each - np.log1p(-np.exp(each)), steps, ("seed", "step"), "log odds of s_21")
    begin = first_step(series, below=np.log(0.4))
    scores = {}
    for level in (0.1, 0.01, 0.001):
        end = first_step(series, below=np.log(level))
        if not np.isfinite(end).all() or (begin >= end).any():
            raise Broken(f"s_21 does not fall from 0.4 to {level} over several records in every sample.")
        favour = preference(log_odds, "exponential", "gaussian", window=(begin, end), log=True)
        scores[level] = favour.reshape(seeds, samples).mean(axis=1)
    return Estimate(
        value=float(scores[0.01].mean()),
        seeds=seeds,
        spread=Hull(tuple(student(s) for s in scores.values())),
        range={"step": (float(begin.min()), float(end.max()))},
        notes={f"until_{level}": float(s.mean()) for level, s in scores.items()},
    )


# ---------------------------------------------------------------- the theorem


def test_loss_growth(run: xr.Dataset) -> Estimate:
    """The exponent of the test loss in log(1/L_S), once L_S is below 0.1: 0 if it is constant."""
    depth = -run["log_training_loss"].rename("log(1/L_S)")
    late = first_step(depth, above=np.log(10))
    if not np.isfinite(late).all():
        raise Broken(f"the training loss does not reach 0.1 in {int(run['step'][-1])} steps in every seed.")
    window = (float(late.max()), float(run["step"][-1]))
    estimate = exponent(run["test_loss"], against=depth.where(depth > 0, 1.0), window=window)
    horizon = run.sel(step=run["step"][-1] // LONGER, method="nearest")
    notes = {"test_loss_at_slides_horizon": float(horizon["test_loss"].mean())}
    notes |= {"test_loss_at_end": float(run["test_loss"].isel(step=-1).mean())}
    return replace(estimate, notes={**estimate.notes, **notes})


def attention_left(run: xr.Dataset) -> Estimate:
    """The larger of the mean s_11 and the mean s_21 at the end."""
    last = {w: softmax(run, w).isel(step=-1).mean("sample").values for w in ("11", "21")}
    notes = {f"s_{w}": float(v.mean()) for w, v in last.items()}
    return mean(np.maximum(last["11"], last["21"]), range=upto(run), notes=notes)


def value_ratio(run: xr.Dataset) -> Estimate:
    """<v, mu> over the mean <v, y_i xi_i> at the end, in size."""
    signal, noise = run["value_signal"].isel(step=-1), run["value_noise"].isel(step=-1)
    notes = {"value_signal": float(signal.mean()), "least_value_noise": float(noise.min("sample").mean())}
    return mean(abs(signal / noise.mean("sample")).values, range=upto(run), notes=notes)


# ---------------------------------------------------------------- Adam and GD


def largest_stage_gap(sign: xr.Dataset, near_zero: xr.Dataset, default: xr.Dataset) -> Estimate:
    """The largest |log(T_Adam / T_SignGD)| over T2, T3, T4 and T_key and over both choices of beta.

    A stage that Adam does not reach counts from the horizon: the gap is at least that.
    """
    reference, horizon = stage_times(sign), float(sign["step"][-1])
    gaps, open_end = [], False
    for adam in (near_zero, default):
        for name, time in stage_times(adam).items():
            if name not in ("T2", "T3", "T4", "T_key"):
                continue
            if not np.isfinite(reference[name]).all():
                raise Broken(f"SignGD does not reach {name} in {horizon:.0f} steps in every seed.")
            open_end |= not np.isfinite(time).all()
            # What holds at the start already counts as reached by the first step.
            gaps.append(np.abs(np.log(np.clip(time, 1, horizon) / np.maximum(reference[name], 1))))
    drift = (0.0, np.inf if open_end else 0.0)
    notes = {"median_gap": float(np.median(gaps))}
    return mean(np.max(gaps, axis=0), drift=drift, range=upto(sign), notes=notes)


def negative_query_share(adam: xr.Dataset) -> Estimate:
    """The share of (s, i) whose query noise never took the sign of the query signal."""
    return mean(1 - adam["query_turned"].isel(step=-1).values, range=upto(adam))


def loss_curve_gap(sign: xr.Dataset, adam: xr.Dataset) -> Estimate:
    """|log of (log L_S of Adam / log L_S of SignGD)| at the end: by what factor their rates differ."""
    ours, theirs = (run["log_training_loss"].isel(step=-1).values for run in (sign, adam))
    if max(ours.max(), theirs.max()) >= np.log(0.5):
        raise Broken("the training loss does not fall below 0.5 in every seed.")
    return mean(abs(np.log(theirs / ours)), range=upto(sign))


def fitting(gd: dict[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """The runs of GD that reach training loss 0.1 and do not diverge, in every seed."""
    reach = {name: first_step(run["log_training_loss"], below=np.log(0.1)) for name, run in gd.items()}
    sound = {name: run for name, run in gd.items() if np.isfinite(reach[name]).all()}
    if not sound:
        raise Broken("GD does not reach training loss 0.1 with any of its steps in every seed.")
    return sound


def law_lead(sign: xr.Dataset, **gd: xr.Dataset) -> Estimate:
    """p of SignGD's training loss exp(-c t^p) minus that of GD's, at the step where GD's is largest.

    A larger step alone makes either faster at a fixed time; p does not depend on it. Each run is looked at
    from where its loss is 0.1: before that any law resembles any other.
    """

    def late_law(run: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
        begin = float(first_step(run["log_training_loss"], below=np.log(0.1)).max())
        late, whole, _ = stretches(
            run["log_training_loss"], (max(begin, 1.0), float(run["step"][-1])), log=True
        )
        return late, 2 * late - whole

    def reached(run: xr.Dataset, level: float) -> float:
        return float(np.median(first_step(run["log_training_loss"], below=np.log(level))))

    ours = late_law(fitting({"sign": sign})["sign"])
    fits = {name: late_law(run) for name, run in fitting(gd).items()}
    fits = {name: fit for name, fit in fits.items() if np.isfinite(fit).all()}
    if not fits or not np.isfinite(ours).all():
        raise Broken("a training loss does not fall once it is 0.1.")
    best = [np.max([fit[k] for fit in fits.values()], axis=0) for k in (0, 1)]
    notes = {"p_sign": float(ours[0].mean())} | {f"p_{k}": float(v[0].mean()) for k, v in fits.items()}
    for name, run in {"sign": sign, **gd}.items():
        notes |= {f"steps_to_0.1_{name}": reached(run, 0.1), f"steps_to_0.001_{name}": reached(run, 1e-3)}
    spread = Hull(tuple(student(a - b) for a, b in zip(ours, best, strict=True)))
    return Estimate(float((ours[0] - best[0]).mean()), ours[0].size, spread, upto(sign), notes)


def test_lead(sign: xr.Dataset, **gd: xr.Dataset) -> Estimate:
    """SignGD's test loss minus GD's where the training loss is 0.1, at the step where GD's is largest."""

    def test_loss(run: xr.Dataset) -> np.ndarray:
        depth, test = -run["log_training_loss"].values, run["test_loss"].values
        # The loss falls, but for a rare step: np.interp wants it monotone.
        return np.array(
            [np.interp(np.log(10), np.maximum.accumulate(x), y) for x, y in zip(depth, test, strict=True)]
        )

    ours = test_loss(fitting({"sign": sign})["sign"])
    theirs = {name: test_loss(run) for name, run in fitting(gd).items()}
    notes = {"sign": float(ours.mean())} | {name: float(v.mean()) for name, v in theirs.items()}
    return difference(ours, np.max(list(theirs.values()), axis=0), range=upto(sign), notes=notes)
