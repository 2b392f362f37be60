"""The claims of sign_descent: what the slides say of each stage, of the theorem, of Adam and of GD.

The statements are those of the slides of the authors' talk on the paper, and so are their steps; the sizes
behind those are not known, so each claim on a step says how it is read. Claims are in the slides' order;
those that range over sizes follow, in `sizes`.

The claims are about SignGD, so another optimiser is out of their regime. The other switches of the preset
(start, label noise, trained blocks) do not gate: one drops them to see what breaks.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from descentlab.judging import (
    Assumption,
    Broken,
    Estimate,
    Hull,
    Mutant,
    around,
    at_least,
    at_most,
    data_mutant,
    difference,
    exponent,
    first_step,
    is_one_of,
    log_gap,
    log_ratio,
    mean,
    mutant,
    preference,
    stretch,
    stretches,
    student,
    theorem,
)
from descentlab.papers.sign_descent.stages import SLIDES, softmax, stage_times

# ---------------------------------------------------------------- runs, as overrides of a preset

Overrides = dict[str, Any]

# The preset's own run: SignGD, unless a user sets another optimiser to see what breaks.
BASE: Overrides = {"detail": True}
SIGN: Overrides = {"optimizer": "sign", "detail": True}
ADAM: Overrides = {"optimizer": "adam", "beta1": 0.9, "beta2": 0.999, "detail": True}
ADAM_NEAR_ZERO: Overrides = {"optimizer": "adam", "beta1": 0.1, "beta2": 0.1, "detail": True}

# What theorems say of late times needs a horizon at which exponents have settled.
LONGER = 10
LONG: Overrides = {"steps": lambda steps: min(LONGER * steps, 10**8), "detail": False}

# GD's best step is not known beforehand, so the whole grid is run.
GD: dict[str, Overrides] = {
    name: {"optimizer": "gd", "eta": eta, "detail": False}
    for name, eta in {"gd_0_1": 0.1, "gd_1": 1.0, "gd_10": 10.0, "gd_100": 100.0}.items()
}

# ---------------------------------------------------------------- what is assumed

PRESETS = ("tiny", "quick", "paper")
SIGN_ONLY = (is_one_of("optimizer", "sign"), is_one_of("attention", "softmax"))


def regime(steps: int) -> tuple[Assumption, ...]:
    """What every claim assumes: SignGD, softmax, and a run that reaches the step that the claim looks at."""
    return (
        *SIGN_ONLY,
        Assumption(f"steps >= {steps}", lambda p: p.steps >= steps),
        Assumption("low signal-noise ratio", lambda p: p.snr < 1, lambda p: p.snr, exact=False),
    )


# ---------------------------------------------------------------- mutants of several claims

GRADIENT_DESCENT = mutant("gradient descent", **GD["gd_1"])
STRONG_SIGNAL = mutant("gradient descent on a strong signal", optimizer="gd", eta=0.1, signal=3.0)
FROZEN_ATTENTION = mutant("query and key frozen", train="v")

stage_one = theorem("Stage I", kind="lemma", presets=PRESETS)


@stage_one.claim(
    cite="Stage I, item 1",
    predicts=around(1.0, 0.05),
    margin="5 % of the exponent: the gain over a decade of time is then right to 12 %.",
    runs={"run": LONG},
    assumes=regime(30),
    mutants=(GRADIENT_DESCENT,),
)
def value_noise_grows_linearly(run: xr.Dataset) -> Estimate:
    """Mean value noise <v, y_i xi_i> stabilises into a linear relationship with t: exponent 1 from t = 2
    on.
    """
    noise = run["value_noise"].mean("sample")
    gain = noise - noise.isel(step=0)
    return exponent(gain.rename("gain of value noise"), window=(SLIDES["T1"], float(run["step"][-1])))


def at(run: xr.Dataset, name: str, step: int) -> xr.DataArray:
    """A probe at a step that must have been recorded."""
    if step not in run["step"]:
        raise Broken(f"{name} was not recorded at step {step}; the last record is {int(run['step'][-1])}.")
    return run[name].sel(step=step)


@stage_one.claim(
    cite="Stage I, item 2",
    predicts=at_most(0.5),
    margin="Below one half, more of a product is start than movement.",
    bound="upper",
    runs={"run": BASE},
    assumes=regime(2),
    mutants=(mutant("ten times the step", eta=1e-3),),
)
def other_products_stay_near_start(run: xr.Dataset) -> Estimate:
    """At t = 2 query and key products have moved by less than half of their size at the start.

    Measured: how far they move in stage I over their size at the start, the largest of four. Of the value
    signal the slides say that it becomes negligible, not that it stays: see the notes.
    """
    end = SLIDES["T1"]

    def moved(name: str) -> np.ndarray:
        start = at(run, name, 0).astype(float)
        own = [d for d in start.dims if d != "seed"]
        move = at(run, name, end).astype(float) - start
        return np.sqrt(((move**2).mean(own) / (start**2).mean(own)).values)

    ratios = {name: moved(name) for name in ("query_noise", "key_noise", "query_signal", "key_signal")}
    share = abs(at(run, "value_signal", end)) / at(run, "value_noise", end).mean("sample")
    estimate = mean(np.max(list(ratios.values()), axis=0), range={"step": (0, end)})
    return estimate.noting(
        **{name: ratio.mean() for name, ratio in ratios.items()},
        value_noise=moved("value_noise").mean(),
        value_signal_over_value_noise=share.mean(),
    )


stage_two = theorem("Stage II", kind="lemma", assumes=regime(10), presets=PRESETS)


def share_at(run: xr.Dataset, name: str, step: int, *of: str) -> Estimate:
    """A recorded share of neurons, or of neurons and samples, at a step."""
    count = np.prod([run.sizes[d] for d in of])
    return mean(at(run, name, step).values, resolution=1 / count, range={"step": (step, step)})


@stage_two.claim(
    cite="Stage II, item 1 and Table 1",
    predicts=at_least(0.95),
    margin="At least 95 %, where chance gives 50 %.",
    bound="lower",
    runs={"run": BASE},
    mutants=(FROZEN_ATTENTION,),
)
def query_key_noise_align(run: xr.Dataset) -> Estimate:
    """At t = 10 query and key noise agree in sign for nearly all neurons and samples (slides: 1967 of
    2000).
    """
    return share_at(run, "noise_alignment", SLIDES["T2"], "neuron", "sample")


@stage_two.claim(
    cite="Stage II, item 2",
    predicts=at_most(0.05),
    margin="2000 independent signs would stay within 3 points of one half.",
    runs={"run": BASE},
    mutants=(mutant("a start that knows the noise", start="aligned"),),
)
def alignment_is_balanced(run: xr.Dataset) -> Estimate:
    """At t = 10 positive and negative query noise are about equal in number: on average over runs, the share
    of positive ones is within 5 points of one half.
    """
    share = at(run, "positive_share", SLIDES["T2"]).values
    estimate = mean(np.abs(share - 0.5), range={"step": (0, SLIDES["T2"])})
    return estimate.noting(positive_share=share.mean())


stage_three = theorem("Stage III", kind="lemma", bound="equality", assumes=regime(40), presets=PRESETS)


def votes_followed(run: xr.Dataset, over: str) -> Estimate:
    """The share of steps of stage III in which signals move as a vote over samples, or over neurons, says.

    A query signal should step with the vote of the key noise, a key signal against that of the query noise.
    """
    begin, end = SLIDES["T2"], SLIDES["T3"]
    at(run, "query_signal", end)
    stage = run.sel(step=slice(begin, end))

    def agreement(signal: str, noise: str, sign: int) -> np.ndarray:
        agree = sign * stage[signal].diff("step", label="lower") * stage[noise].sum(over) > 0
        return agree.mean([d for d in agree.dims if d != "seed"]).values

    query, key = agreement("query_signal", "key_noise", 1), agreement("key_signal", "query_noise", -1)
    estimate = mean((query + key) / 2, resolution=1 / run.sizes["neuron"], range={"step": (begin, end)})
    return estimate.noting(query=query.mean(), key=key.mean())


def other_votes(run: xr.Dataset) -> xr.Dataset:
    """The run with each neuron's noise in the place of the next one's."""
    return run.assign({name: run[name].roll(neuron=1) for name in ("key_noise", "query_noise")})


@stage_three.claim(
    cite="Stage III, items 1 and 2, read as the gradient has it",
    predicts=at_least(0.9),
    margin="Nine steps in ten, where chance gives one in two; close votes may flip.",
    runs={"run": BASE},
    mutants=(data_mutant("the votes of another neuron", other_votes), FROZEN_ATTENTION),
)
def majority_vote_sets_signal_signs(run: xr.Dataset) -> Estimate:
    """In stage III each neuron's query signal moves with the sign of its key noise summed over samples; its
    key signal moves against the sign of its query noise summed over samples.
    """
    return votes_followed(run, "sample")


@stage_three.claim(
    cite="Stage III, items 1 and 2, as printed",
    predicts=at_least(0.9),
    margin="As for the other reading.",
    runs={"run": BASE},
    mutants=(FROZEN_ATTENTION,),
)
def majority_vote_as_printed(run: xr.Dataset) -> Estimate:
    """In stage III each neuron's query signal moves with the sign of sum_s <w_{K,s}, y_i xi_i>, a vote over
    neurons for any i; its key signal moves against the vote of the query noise.
    """
    return votes_followed(run, "neuron")


@stage_three.claim(
    cite="Stage III, item 2",
    predicts=at_least(0.9),
    margin="Nine neurons in ten, where chance gives one in two.",
    runs={"run": BASE},
    mutants=(FROZEN_ATTENTION,),
)
def query_and_key_signals_oppose(run: xr.Dataset) -> Estimate:
    """At t = 40 query and key signal of a neuron have opposite signs."""
    return share_at(run, "signals_oppose", SLIDES["T3"], "neuron")


stage_four = theorem("Stage IV", kind="lemma", assumes=regime(1), presets=PRESETS)


@stage_four.claim(
    cite="Stage IV (softmax), item 1",
    predicts=at_most(0.1),
    margin="Between 0.4 and 0.6.",
    runs={"run": BASE},
    mutants=(mutant("twice the noise", sigma_p=3.0),),
)
def softmax_stays_half_before_stage_four(run: xr.Dataset) -> Estimate:
    """When stage III is over (95 % of query and key signals opposed) all softmax outputs are within 0.1 of
    1/2.

    Measured: the largest |s - 1/2| over samples and queries at T3, by the run's own clock.
    """
    end = stage_times(run)["T3"]
    if not np.isfinite(end).all():
        raise Broken(f"stage III is not over in {int(run['step'][-1])} steps in every seed.")
    there = run.isel(step=xr.DataArray(np.searchsorted(run["step"].values, end), dims="seed"))
    s_11, s_21 = (abs(softmax(there, which) - 0.5).max("sample").values for which in ("11", "21"))
    estimate = mean(np.maximum(s_11, s_21), range={"step": (end.min(), end.max())})
    return estimate.noting(s_11=s_11.mean(), s_21=s_21.mean(), T3=np.median(end))


@stage_four.claim(
    cite="Stage IV (softmax), items 2 and 3",
    predicts=at_least(0.0),
    margin="An order.",
    bound="order",
    runs={"run": BASE},
    mutants=(STRONG_SIGNAL,),
)
def noise_softmax_leaves_first(run: xr.Dataset) -> Estimate:
    """s_21 leaves 1/2 (by 0.1) before s_11 does.

    Measured: log of (time at which the mean s_11 leaves 1/2) / (time at which the mean s_21 does).
    """
    later, earlier = (
        first_step(abs(softmax(run, which).mean("sample") - 0.5), above=0.1) for which in ("11", "21")
    )
    steps = run["step"].values.astype(float)
    return log_ratio(later, earlier, steps[-1], log_gap(np.concatenate([later, earlier]), steps))


def with_decay(run: xr.Dataset, power: int) -> xr.Dataset:
    """The run with the log odds of s_21 replaced by -(t/60)^power: exp(-ct) for 1, exp(-ct^2) for 2."""
    log_s = -np.logaddexp(0.0, (run["step"].values / 60.0) ** power)
    planted = xr.DataArray(log_s, {"step": run["step"]}, ("step",))
    return run.assign(log_softmax_21=xr.zeros_like(run["log_softmax_21"]) + planted)


@stage_four.claim(
    cite="Stage IV (softmax), item 2",
    predicts=at_least(0.0),
    margin="Model selection: the log-likelihood gained per record.",
    runs={"run": BASE},
    mutants=(data_mutant("a Gaussian decay", partial(with_decay, power=2)),),
)
def noise_softmax_decays_exponentially(run: xr.Dataset) -> Estimate:
    """Each s_{i,21} falls like exp(-ct) rather than like exp(-ct^2), from 0.4 on, wherever one stops
    looking.

    Both laws are fitted to the odds s/(1 - s), which are s itself once it is small, and do not bend near
    1/2, down to 0.1, to 0.01 and to 0.001. Which law fits better may depend on where one stops looking: the
    interval holds all three windows.
    """
    log_s = run["log_softmax_21"].transpose("seed", "sample", "step")
    seeds, samples, steps = log_s.shape
    each = log_s.values.reshape(seeds * samples, steps)
    series = xr.DataArray(each, {"step": run["step"]}, ("seed", "step"), "log s_21")
    with np.errstate(divide="ignore"):
        log_odds = (series - np.log1p(-np.exp(series))).rename("log odds of s_21")
    begin = first_step(series, below=np.log(0.4))
    scores = {}
    for level in (0.1, 0.01, 0.001):
        end = first_step(series, below=np.log(level))
        if not np.isfinite(end).all() or (begin >= end).any():
            raise Broken(f"s_21 does not fall from 0.4 to {level} over several records in every sample.")
        favour = preference(log_odds, "exponential", "gaussian", window=(begin, end), log=True)
        scores[level] = favour.reshape(seeds, samples).mean(axis=1)
    estimate = Estimate(
        value=float(scores[0.01].mean()),
        seeds=seeds,
        spread=Hull(tuple(student(s) for s in scores.values())),
        range={"step": (float(begin.min()), float(end.max()))},
    )
    return estimate.noting(**{f"until_{level}": s.mean() for level, s in scores.items()})


def exchanged(run: xr.Dataset) -> xr.Dataset:
    """The turns of query noise in the place of those of key noise, and the other way round."""
    return run.rename(key_turned="query_turned", query_turned="key_turned")


@stage_four.claim(
    cite="Stage IV (alignment), items 2 to 4",
    predicts=at_least(0.0),
    margin="An order.",
    bound="order",
    runs={"run": BASE},
    mutants=(data_mutant("query and key exchanged", exchanged),),
)
def key_noise_turns_before_query_noise(run: xr.Dataset) -> Estimate:
    """Negative key noise has turned to the sign of the query signal before negative query noise has (log of
    the ratio of times; slides: log 2).
    """
    found, steps = stage_times(run), run["step"].values.astype(float)
    earlier, later = found["T_key"], found["T_query"]
    return log_ratio(later, earlier, steps[-1], log_gap(np.concatenate([earlier, later]), steps))


training = theorem("Theorem", bound="upper", assumes=regime(500), presets=PRESETS)


@training.claim(
    cite="Theorem, training loss",
    predicts=around(1.0, 0.1),
    margin="One tenth, a third of the way to the next plausible law.",
    runs={"run": LONG},
    mutants=(GRADIENT_DESCENT,),
)
def training_loss_decays_exponentially(run: xr.Dataset) -> Estimate:
    """The training loss is exp(-c t^p) with p = 1, so that T = O(log 1/eps)."""
    return stretch(run["log_training_loss"], log=True)


@training.claim(
    cite="Theorem, test loss",
    predicts=around(0.0, 0.1),
    margin="A tenth: log(1/L_S) over a decade then changes L_D by at most a quarter.",
    bound="two-sided",
    runs={"run": LONG},
    mutants=(STRONG_SIGNAL,),
)
def test_loss_stays_constant(run: xr.Dataset) -> Estimate:
    """For any eps: the test loss is of constant order however small the training loss gets,
    L_D ~ (log 1/L_S)^p with p = 0, followed to ten times the slides' horizon.

    Measured: the exponent of the test loss in log(1/L_S), once L_S is below 0.1.
    """
    depth = -run["log_training_loss"].rename("log(1/L_S)")
    late = first_step(depth, above=np.log(10))
    if not np.isfinite(late).all():
        raise Broken(f"the training loss does not reach 0.1 in {int(run['step'][-1])} steps in every seed.")
    window = (float(late.max()), float(run["step"][-1]))
    estimate = exponent(run["test_loss"], against=depth.where(depth > 0, 1.0), window=window)
    horizon = run.sel(step=run["step"][-1] // LONGER, method="nearest")
    return estimate.noting(
        test_loss_at_slides_horizon=horizon["test_loss"].mean(),
        test_loss_at_end=run["test_loss"].isel(step=-1).mean(),
    )


@training.claim(
    cite="Theorem, noise memorisation of value",
    predicts=at_most(0.1),
    margin="A tenth; both grow at the same rate, so the ratio is what o(1) can mean at fixed size.",
    runs={"run": BASE},
    mutants=(mutant("a signal above the noise", signal=10.0),),
)
def value_memorises_noise(run: xr.Dataset) -> Estimate:
    """At the end the value signal is small against the value noise: |<v, mu>| / mean_i <v, y_i xi_i>."""
    signal, noise = run["value_signal"].isel(step=-1), run["value_noise"].isel(step=-1)
    estimate = mean(abs(signal / noise.mean("sample")).values)
    return estimate.noting(value_signal=signal.mean(), least_value_noise=noise.min("sample").mean())


@training.claim(
    cite="Theorem, noise memorisation of query and key",
    predicts=at_most(0.05),
    margin="A tenth of the start, 1/2.",
    runs={"run": BASE},
    mutants=(FROZEN_ATTENTION,),
)
def attention_goes_to_noise(run: xr.Dataset) -> Estimate:
    """At the end both queries attend to the noise patch: s_11 and s_21 are o(1).

    Measured: the larger of their means over samples.
    """
    s_11, s_21 = (softmax(run, which).isel(step=-1).mean("sample").values for which in ("11", "21"))
    return mean(np.maximum(s_11, s_21)).noting(s_11=s_11.mean(), s_21=s_21.mean())


adam_against_sign = theorem("Adam vs SignGD", kind="experiment", assumes=regime(1000), presets=PRESETS)


@adam_against_sign.claim(
    cite="Adam vs SignGD, similarity",
    predicts=at_most(float(np.log(2))),
    margin="A factor of two where the stages themselves lie factors of two to four apart.",
    runs={"sign": SIGN, "near_zero": ADAM_NEAR_ZERO, "default": ADAM},
    mutants=(Mutant("Adam with a tenth of the step", runs={"default": {"eta": 1e-5}}),),
)
def adam_matches_sign_descent(sign: xr.Dataset, near_zero: xr.Dataset, default: xr.Dataset) -> Estimate:
    """Adam, with betas near 0 and by default, passes the stages within a factor of two of SignGD's times.

    Measured: the largest |log(T_Adam / T_SignGD)| over T2, T3, T4 and T_key and over both choices of beta. A
    stage that Adam does not reach counts from the horizon: the gap is at least that.
    """
    reference, horizon = stage_times(sign), float(sign["step"][-1])
    gaps, open_end = [], False
    for adam in (near_zero, default):
        found = stage_times(adam)
        for name in ("T2", "T3", "T4", "T_key"):
            if not np.isfinite(reference[name]).all():
                raise Broken(f"SignGD does not reach {name} in {horizon:.0f} steps in every seed.")
            open_end |= not np.isfinite(found[name]).all()
            # What holds at the start already counts as reached by the first step.
            gaps.append(np.abs(np.log(np.clip(found[name], 1, horizon) / np.maximum(reference[name], 1))))
    drift = (0.0, np.inf if open_end else 0.0)
    return mean(np.max(gaps, axis=0), drift=drift).noting(median_gap=np.median(gaps))


@adam_against_sign.claim(
    cite="Adam vs SignGD, disparity",
    predicts=at_least(0.1),
    margin="Half of it has that sign when stage II ends; under SignGD none at the end.",
    bound="existence",
    runs={"adam": ADAM},
    mutants=(mutant("SignGD instead of Adam", optimizer="sign"),),
)
def adam_query_noise_stays_negative(adam: xr.Dataset) -> Estimate:
    """Under Adam at least a tenth of the query noise keeps the sign opposite to the query signal to the
    end.
    """
    return mean(1 - adam["query_turned"].isel(step=-1).values)


@adam_against_sign.claim(
    cite="Adam vs SignGD, disparity",
    predicts=at_least(float(np.log(1.25))),
    margin="A quarter; with betas near 0 the rates agree within a few per cent.",
    bound="existence",
    runs={"sign": SIGN, "adam": ADAM},
    mutants=(Mutant("Adam in its sign limit", runs={"adam": ADAM_NEAR_ZERO}),),
)
def adam_loss_curve_differs(sign: xr.Dataset, adam: xr.Dataset) -> Estimate:
    """At the end the rates -log L_S / T of Adam and SignGD differ by more than a quarter.

    Measured: |log of (log L_S of Adam / log L_S of SignGD)|.
    """
    ours, theirs = (run["log_training_loss"].isel(step=-1).values for run in (sign, adam))
    if max(ours.max(), theirs.max()) >= np.log(0.5):
        raise Broken("the training loss does not fall below 0.5 in every seed.")
    return mean(abs(np.log(theirs / ours)))


gd_against_sign = theorem(
    "GD vs SignGD", kind="experiment", bound="order", assumes=regime(500), presets=PRESETS
)

AS_SIGN: Overrides = {"optimizer": "sign", "eta": 1e-4}
EXCHANGED = Mutant("roles exchanged", runs={"sign": GD["gd_1"], **dict.fromkeys(GD, AS_SIGN)})


def fits_at(run: xr.Dataset, level: float = 0.1) -> np.ndarray:
    """The first step at which each seed's training loss is at most a level."""
    return first_step(run["log_training_loss"], below=np.log(level))


def fitting(gd: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """The runs of GD that reach training loss 0.1 and do not diverge, in every seed."""
    sound = {name: run for name, run in gd.items() if np.isfinite(fits_at(run)).all()}
    if not sound:
        raise Broken("GD does not reach training loss 0.1 with any of its steps in every seed.")
    return sound


@gd_against_sign.claim(
    predicts=at_least(0.0),
    margin="An order.",
    runs={"sign": SIGN | LONG} | {name: overrides | LONG for name, overrides in GD.items()},
    mutants=(EXCHANGED,),
)
def sign_descent_trains_faster(sign: xr.Dataset, **gd: xr.Dataset) -> Estimate:
    """SignGD trains by a faster law: once below 0.1, its training loss exp(-c t^p) has a larger p than GD's,
    whatever GD's step (0.1 to 100).

    Measured: SignGD's p minus GD's at the step where GD's is largest. A larger step alone makes either faster
    at a fixed time; p does not depend on it. Each run is looked at from where its loss is 0.1: before that
    any law resembles any other.
    """

    def late_law(run: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
        window = (max(float(fits_at(run).max()), 1.0), float(run["step"][-1]))
        late, whole, _ = stretches(run["log_training_loss"], window, log=True)
        return late, 2 * late - whole

    ours = late_law(fitting({"sign": sign})["sign"])
    fits = {name: late_law(run) for name, run in fitting(gd).items()}
    fits = {name: fit for name, fit in fits.items() if np.isfinite(fit).all()}
    if not fits or not np.isfinite(ours).all():
        raise Broken("a training loss does not fall once it is 0.1.")
    best = [np.max([fit[k] for fit in fits.values()], axis=0) for k in (0, 1)]
    spread = Hull(tuple(student(a - b) for a, b in zip(ours, best, strict=True)))
    notes = {f"p_{name}": fit[0].mean() for name, fit in {"sign": ours, **fits}.items()}
    for name, run in {"sign": sign, **gd}.items():
        notes |= {f"steps_to_{level}_{name}": np.median(fits_at(run, level)) for level in (0.1, 0.001)}
    return Estimate(float((ours[0] - best[0]).mean()), ours[0].size, spread).noting(**notes)


@gd_against_sign.claim(
    predicts=at_least(0.0),
    margin="An order.",
    runs={"sign": SIGN, **GD},
    mutants=(EXCHANGED,),
)
def gd_generalises_better(sign: xr.Dataset, **gd: xr.Dataset) -> Estimate:
    """At the same signal-noise ratio and training loss (0.1) GD's test loss is below SignGD's, whatever GD's
    step.

    Measured: SignGD's test loss minus GD's, at the step where GD's is largest.
    """

    def test_loss(run: xr.Dataset) -> np.ndarray:
        depth, test = -run["log_training_loss"].values, run["test_loss"].values
        # The loss falls, but for a rare step: np.interp wants it monotone.
        return np.array(
            [np.interp(np.log(10), np.maximum.accumulate(x), y) for x, y in zip(depth, test, strict=True)]
        )

    ours = test_loss(fitting({"sign": sign})["sign"])
    theirs = {name: test_loss(run) for name, run in fitting(gd).items()}
    estimate = difference(ours, np.max(list(theirs.values()), axis=0))
    return estimate.noting(sign=ours.mean(), **{name: loss.mean() for name, loss in theirs.items()})
