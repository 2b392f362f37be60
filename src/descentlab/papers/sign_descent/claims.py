"""The claims of sign_descent: what the slides say of each stage, as statements a machine judges.

Steps in statements are the slides' own; the sizes behind them are not known, so each claim on
a step says how it is read. `CLAIMS` is in the order of the slides.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import xarray as xr

from descentlab.claim import Assumption, Claim, Mutant
from descentlab.estimate import (
    Broken,
    Estimate,
    Interval,
    difference,
    first_step,
    log_gap,
    log_ratio,
    mean,
    student,
)
from descentlab.law import exponent, stretch, stretches
from descentlab.papers.sign_descent.runs import ADAM, ADAM_NEAR_ZERO, GD, LONG, SIGN, numbered
from descentlab.papers.sign_descent.stages import SLIDES, log_turning_ratio, softmax, stage_times
from descentlab.rival import preference
from descentlab.spread import Hull

STRONG_SIGNAL = Mutant("gradient descent on a strong signal", {"optimizer": "gd", "eta": 0.1, "signal": 3.0})
FROZEN_ATTENTION = Mutant("query and key frozen", {"train": "v"})


def lasts(steps: int) -> Assumption:
    """The run must reach the step that a claim looks at."""
    return Assumption(f"steps >= {steps}", lambda p: p.steps >= steps)


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
    """How far query and key products move in stage I over their size at the start, the largest of four."""
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
    return mean(ratios.max(axis=0), range=upto(run, last=end), notes=notes)


# ---------------------------------------------------------------- stage II


def share_at(name: str, step: int) -> Callable[[xr.Dataset], Estimate]:
    """A recorded share at a step."""
    return lambda run: mean(at(run, name, step).values, range={"step": (step, step)})


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
    return mean((per_seed(follows) + per_seed(opposes)) / 2, range={"step": (begin, end)}, notes=notes)


# ---------------------------------------------------------------- stage IV


def distance_from_half(run: xr.Dataset) -> Estimate:
    """The largest |s - 1/2| over samples and queries at the end of stage III."""
    end = SLIDES["T3"]
    far = {w: abs(np.exp(at(run, f"log_softmax_{w}", end).values) - 0.5).max(axis=1) for w in ("11", "21")}
    notes = {f"s_{w}": float(v.mean()) for w, v in far.items()}
    return mean(np.maximum(far["11"], far["21"]), range=upto(run, last=end), notes=notes)


def leaves_half(run: xr.Dataset, which: str, by: float = 0.1) -> np.ndarray:
    """The first step at which the mean softmax output has left 1/2 by so much."""
    return first_step(abs(softmax(run, which).mean("sample") - 0.5), above=by)


def noise_leaves_first(run: xr.Dataset) -> Estimate:
    """log of (time at which s_11 leaves 1/2) / (time at which s_21 does)."""
    later, earlier, steps = leaves_half(run, "11"), leaves_half(run, "21"), run["step"].values.astype(float)
    return log_ratio(later, earlier, steps[-1], log_gap(np.concatenate([later, earlier]), steps))


def decay_of_s21(run: xr.Dataset) -> Estimate:
    """exp(-ct) against exp(-ct^2) for each s_{i,21}, from 0.4 down to 0.1, to 0.01 and to 0.001.

    Which law fits better may depend on where one stops looking: the interval holds all three windows.
    """
    log_s = run["log_softmax_21"].transpose("seed", "sample", "step")
    seeds, samples = log_s.sizes["seed"], log_s.sizes["sample"]
    each = xr.DataArray(
        log_s.values.reshape(seeds * samples, -1), {"step": run["step"]}, ("seed", "step"), "log s_21"
    )
    begin = first_step(each, below=np.log(0.4))
    scores = {}
    for level in (0.1, 0.01, 0.001):
        end = first_step(each, below=np.log(level))
        if not np.isfinite(end).all():
            raise Broken(f"s_21 does not fall to {level} in {int(run['step'][-1])} steps in every sample.")
        favour = preference(each, "exponential", "gaussian", window=(begin, end), log=True)
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
    late = first_step(run["training_loss"], below=0.1)
    if not np.isfinite(late).all():
        raise Broken(f"the training loss does not reach 0.1 in {int(run['step'][-1])} steps in every seed.")
    depth = xr.DataArray(-np.log(run["training_loss"]), name="log(1/L_S)")
    window = (float(late.max()), float(run["step"][-1]))
    return exponent(run["test_loss"], against=depth.where(depth > 0, 1.0), window=window)


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
    """The largest gap between the two training losses along the run, in decades."""
    gap = abs(np.log10(adam["training_loss"].values) - np.log10(sign["training_loss"].values))
    return mean(gap.max(axis=1), range=upto(sign))


def law_lead(sign: xr.Dataset, **gd: xr.Dataset) -> Estimate:
    """p of SignGD's training loss exp(-c t^p) minus that of GD's, at the step where GD's is largest.

    A larger step alone makes either faster at a fixed time; p does not depend on it.
    """
    late, whole, _ = stretches(sign["training_loss"])
    fits = [stretches(run["training_loss"]) for run in gd.values()]
    best_late = np.max([fit[0] for fit in fits], axis=0)
    best_next = np.max([2 * fit[0] - fit[1] for fit in fits], axis=0)
    notes = {"sign": float(late.mean()), "gd": float(best_late.mean())}
    spread = Hull((student(late - best_late), student(2 * late - whole - best_next)))
    return Estimate(float((late - best_late).mean()), late.size, spread, upto(sign), notes)


def test_lead(sign: xr.Dataset, **gd: xr.Dataset) -> Estimate:
    """SignGD's test loss minus GD's where the training loss first is 0.1, at the step where GD's is largest.

    Steps of GD too small to get there are left out.
    """

    def test_loss(run: xr.Dataset) -> np.ndarray:
        there = first_step(run["training_loss"], below=0.1)
        if not np.isfinite(there).all():
            return np.full(there.size, np.nan)
        return np.diag(run["test_loss"].sel(step=there).values)

    ours, theirs = test_loss(sign), np.stack([test_loss(run) for run in gd.values()])
    if np.isnan(theirs).any(axis=1).all():
        raise Broken("GD does not reach training loss 0.1 with any step in every seed.")
    worst = np.nanmax(theirs, axis=0)
    return difference(ours, worst, range=upto(sign), notes={"sign": ours.mean(), "gd": worst.mean()})


GD_RUNS = numbered("gd", GD)
# Base runs with another optimiser in their place.
AS_SIGN = {"optimizer": "sign", "eta": 1e-4}
claim = partial(Claim, runs={"run": SIGN}, presets=("tiny", "quick", "paper"))

CLAIMS = (
    claim(
        "value_noise_grows_linearly",
        "Stage I, item 1",
        "Mean value noise <v, y_i xi_i> stabilises into a linear relationship with t: exponent 1 from t = 2 "
        "on.",
        value_noise_growth,
        Interval.around(1.0, 0.05),
        runs={"run": LONG},
        assumes=(lasts(30),),
        mutants=(Mutant("gradient descent", GD[1.0]),),
        margin="5 % of the exponent: the gain over a decade of time is then right to 12 %.",
    ),
    claim(
        "other_products_stay_near_start",
        "Stage I, item 2",
        "At t = 2 query and key products have moved by less than half of their size at the start.",
        largest_move,
        Interval(high=0.5),
        assumes=(lasts(2),),
        mutants=(Mutant("ten times the step", {"eta": 1e-3}),),
        margin="Below one half, more of a product is start than movement.",
    ),
    claim(
        "query_key_noise_align",
        "Stage II, item 1 and Table 1",
        "At t = 10 query and key noise agree in sign for nearly all neurons and samples (slides: 1967 of "
        "2000).",
        share_at("noise_alignment", SLIDES["T2"]),
        Interval(low=0.95),
        assumes=(lasts(10),),
        mutants=(FROZEN_ATTENTION,),
        margin="At least 95 %, where chance gives 50 %.",
    ),
    claim(
        "alignment_is_balanced",
        "Stage II, item 2",
        "At t = 10 positive and negative query noise are about equal in number in every run.",
        imbalance,
        Interval(high=0.05),
        assumes=(lasts(10),),
        mutants=(Mutant("a start that knows the noise", {"start": "aligned"}),),
        margin="Within 5 points of one half; 2000 independent signs would stay within 3.",
    ),
    claim(
        "majority_vote_sets_signal_signs",
        "Stage III, items 1 and 2, read as the gradient has it",
        "In stage III each neuron's query signal moves with the sign of its key noise summed over samples; "
        "its key signal moves against the sign of its query noise summed over samples.",
        lambda run: votes_followed(run, lambda noise: noise.sum("sample")),
        Interval(low=0.9),
        assumes=(lasts(40),),
        mutants=(FROZEN_ATTENTION,),
        margin="Nine steps in ten, where chance gives one in two; close votes may flip.",
    ),
    claim(
        "majority_vote_as_printed",
        "Stage III, items 1 and 2, as printed",
        "In stage III each neuron's query signal moves with the sign of sum_s <w_{K,s}, y_i xi_i>, a vote "
        "over neurons for any i; its key signal moves against the vote of the query noise.",
        lambda run: votes_followed(run, lambda noise: noise.sum("neuron")),
        Interval(low=0.9),
        assumes=(lasts(40),),
        mutants=(FROZEN_ATTENTION,),
        margin="As for the other reading.",
    ),
    claim(
        "query_and_key_signals_oppose",
        "Stage III, item 2",
        "At t = 40 query and key signal of a neuron have opposite signs.",
        share_at("signals_oppose", SLIDES["T3"]),
        Interval(low=0.9),
        assumes=(lasts(40),),
        mutants=(FROZEN_ATTENTION,),
        margin="Nine neurons in ten, where chance gives one in two.",
    ),
    claim(
        "softmax_stays_half_before_stage_four",
        "Stage IV (softmax), item 1",
        "At t = 40 all softmax outputs are still concentrated at 1/2.",
        distance_from_half,
        Interval(high=0.1),
        assumes=(lasts(40),),
        mutants=(Mutant("ten times the step", {"eta": 1e-3}),),
        margin="Between 0.4 and 0.6.",
    ),
    claim(
        "noise_softmax_leaves_first",
        "Stage IV (softmax), items 2 and 3",
        "s_21 leaves 1/2 (by 0.1) before s_11 does.",
        noise_leaves_first,
        Interval(low=0.0),
        mutants=(STRONG_SIGNAL,),
        margin="An order.",
    ),
    claim(
        "noise_softmax_decays_exponentially",
        "Stage IV (softmax), item 2",
        "Each s_{i,21} falls like exp(-ct) rather than like exp(-ct^2), from 0.4 on, wherever one stops "
        "looking.",
        decay_of_s21,
        Interval(low=0.0),
        mutants=(
            Mutant(
                "a Gaussian decay",
                alter=lambda runs: {k: _gaussian_decay(v) for k, v in runs.items()},
            ),
        ),
        margin="Model selection: the log-likelihood gained per record.",
    ),
    claim(
        "key_noise_turns_before_query_noise",
        "Stage IV (alignment), items 2 to 4",
        "Negative key noise has turned to the sign of the query signal before negative query noise has "
        "(log of the ratio of times; slides: log 2).",
        log_turning_ratio,
        Interval(low=0.0),
        mutants=(
            Mutant(
                "query and key exchanged",
                alter=lambda runs: {
                    k: v.rename(key_turned="query_turned", query_turned="key_turned") for k, v in runs.items()
                },
            ),
        ),
        margin="An order.",
    ),
    claim(
        "training_loss_decays_exponentially",
        "Theorem, training loss",
        "The training loss is exp(-c t^p) with p = 1, so that T = O(log 1/eps).",
        lambda run: stretch(run["training_loss"]),
        Interval.around(1.0, 0.1),
        runs={"run": LONG},
        assumes=(lasts(500),),
        mutants=(Mutant("gradient descent", GD[1.0]),),
        margin="One tenth, a third of the way to the next plausible law.",
    ),
    claim(
        "test_loss_stays_constant",
        "Theorem, test loss",
        "The test loss is of constant order however small the training loss gets: L_D ~ (log 1/L_S)^p with "
        "p = 0.",
        test_loss_growth,
        Interval.around(0.0, 0.1),
        runs={"run": LONG},
        assumes=(lasts(500),),
        mutants=(STRONG_SIGNAL,),
        margin="A tenth: log(1/L_S) over a decade then changes L_D by at most a quarter.",
    ),
    claim(
        "value_memorises_noise",
        "Theorem, noise memorisation of value",
        "At the end the value signal is small against the value noise: |<v, mu>| / mean_i <v, y_i xi_i>.",
        value_ratio,
        Interval(high=0.1),
        assumes=(lasts(500),),
        mutants=(Mutant("a signal above the noise", {"signal": 10.0}),),
        margin="A tenth; both grow at the same rate, so the ratio is what o(1) can mean at fixed size.",
    ),
    claim(
        "attention_goes_to_noise",
        "Theorem, noise memorisation of query and key",
        "At the end both queries attend to the noise patch: s_11 and s_21 are o(1).",
        attention_left,
        Interval(high=0.05),
        assumes=(lasts(500),),
        mutants=(FROZEN_ATTENTION,),
        margin="A tenth of the start, 1/2.",
    ),
    claim(
        "adam_matches_sign_descent",
        "Adam vs SignGD, similarity",
        "Adam, with betas near 0 and by default, passes the stages within a factor of two of SignGD's times.",
        largest_stage_gap,
        Interval(high=float(np.log(2))),
        runs={"sign": SIGN, "near_zero": ADAM_NEAR_ZERO, "default": ADAM},
        assumes=(lasts(1000),),
        mutants=(Mutant("Adam with a tenth of the step", runs={"default": {"eta": 1e-5}}),),
        margin="A factor of two where the stages themselves lie factors of two to four apart.",
    ),
    claim(
        "adam_query_noise_stays_negative",
        "Adam vs SignGD, disparity",
        "Under Adam at least a tenth of the query noise keeps the sign opposite to the query signal to the "
        "end.",
        negative_query_share,
        Interval(low=0.1),
        runs={"adam": ADAM},
        assumes=(lasts(1000),),
        mutants=(Mutant("SignGD instead of Adam", {"optimizer": "sign"}),),
        margin="Half of it has that sign when stage II ends; under SignGD none at the end.",
    ),
    claim(
        "adam_loss_curve_differs",
        "Adam vs SignGD, disparity",
        "The training losses of Adam and SignGD come to differ by more than a factor of ten.",
        loss_curve_gap,
        Interval(low=1.0),
        runs={"sign": SIGN, "adam": ADAM},
        assumes=(lasts(1000),),
        mutants=(Mutant("Adam in its sign limit", runs={"adam": ADAM_NEAR_ZERO}),),
        margin="One decade.",
    ),
    claim(
        "sign_descent_trains_faster",
        "GD vs SignGD",
        "SignGD's training loss exp(-c t^p) has a larger p than GD's, whatever GD's step (0.1 to 100).",
        law_lead,
        Interval(low=0.0),
        runs={"sign": SIGN, **GD_RUNS},
        assumes=(lasts(500),),
        mutants=(Mutant("roles exchanged", runs={"sign": GD[1.0], **dict.fromkeys(GD_RUNS, AS_SIGN)}),),
        margin="An order.",
    ),
    claim(
        "gd_generalises_better",
        "GD vs SignGD",
        "At the same signal-noise ratio and training loss (0.1) GD's test loss is below SignGD's, whatever "
        "GD's step.",
        test_lead,
        Interval(low=0.0),
        runs={"sign": SIGN, **GD_RUNS},
        assumes=(lasts(500),),
        mutants=(Mutant("roles exchanged", runs={"sign": GD[1.0], **dict.fromkeys(GD_RUNS, AS_SIGN)}),),
        margin="An order.",
    ),
)


def _gaussian_decay(run: xr.Dataset) -> xr.Dataset:
    """The run with s_21 replaced by a decay exp(-(t/60)^2) from one half."""
    log_s = np.log(0.5) - (run["step"] / 60.0) ** 2
    return run.assign(log_softmax_21=xr.zeros_like(run["log_softmax_21"]) + log_s)
