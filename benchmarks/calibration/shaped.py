"""The families that rules are shaped on. Look at their results as much as you like.

An experiment draws the law's constants, the horizon (2.5 to 5 decades), the records (60 to 200), the seeds
(1 to 16) and the noise (0 to 30 % a record), and a claim, true or false, with margin 0.1 or 0.05. The truth
is the limit of the local slope d log y / d log t, also where the records end before the limit is in sight.
Where the law bends only after the last record, the truth is the slope at the last record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from scipy import special

from calibration.planting import (
    Experiment,
    Law,
    Plant,
    Rng,
    Series,
    Shocks,
    Streams,
    about,
    ar1,
    exponent,
    hits,
    hitting_time,
    log_ratio,
    mean_sample,
    median_sample,
    normal,
    of_mean,
    of_power,
    of_sizes,
    of_stretch,
    only,
    plain_ratios,
    plain_samples,
    plain_slopes,
    plain_times,
    reach_of_mean,
    samples,
    share_sample,
    streams_of,
    with_common,
)
from descentlab.judging import Estimate, Interval, around, at_least, at_most, rivals

# The times of log-periodic laws and stairs that the late records must hold for a mean slope to show.
FEWEST_PERIODS = 3.0
NOISES = (0.0, 0.01, 0.03, 0.1)


def series(rng: Rng, log_law: Law, each: Shocks | None = None, **fixed: Any) -> Series:
    """Trajectories around exp(log_law(t)) with a prefactor per seed and noise per record."""
    setting = {
        "decades": rng.uniform(2.5, 5),
        "records": rng.integers(60, 200),
        "seeds": rng.choice([1, 2, 3, 4, 8, 16]),
        "noise": rng.choice([0.0, 0.01, 0.03, 0.1, 0.3]),
        "memory": 0.0,
        "tail": np.inf,
        "common": 0.0,
        "prefactor": 0.3,
    } | fixed
    steps = np.unique(np.geomspace(1, 10 ** setting["decades"], int(setting["records"])).round())
    shocks: Shocks = ar1(setting["memory"]) if setting["memory"] > 0 else normal
    if np.isfinite(setting["tail"]):
        shocks = students(setting["tail"])
    if setting["common"] > 0:
        shocks = with_common(shocks, setting["common"])
    streams, seeds, noise = Streams.of(rng), int(setting["seeds"]), float(setting["noise"])
    return Series(steps, log_law(steps), seeds, noise, streams, shocks, each, float(setting["prefactor"]))


def students(tail: float) -> Shocks:
    """Noise with Student's tails."""
    return lambda streams, seeds, steps: streams("shocks").standard_t(tail, (seeds, steps.size))


def power(rng: Rng, correction: Law = np.zeros_like, **fixed: Any) -> Experiment:
    """A power law, perhaps with a correction to log y."""
    a = rng.uniform(0.2, 2)
    return of_power(rng, series(rng, lambda t: -a * np.log(t) + correction(t), **fixed), -a)


def textbook(rng: Rng) -> Experiment:
    """A pure law, four decades, 10 % noise, eight seeds, claimed exactly: this must be decided."""
    course = series(rng, lambda t: -np.log(t), decades=4, records=100, seeds=8, noise=0.1)
    return of_power(rng, course, -1.0, around(rng.choice([-1.0, -0.7, -1.3]), 0.1))


def one_sided(rng: Rng) -> Experiment:
    """At least, or at most, so fast."""
    whole = power(rng)
    return replace(whole, predicts=about(rng, whole.truth, sides=1))


def shared(rng: Rng) -> Experiment:
    """All seeds share a shock at each record: the same batches, or the same test set."""
    return power(rng, common=rng.uniform(0.1, 0.9), noise=rng.choice([0.01, 0.03, 0.1]))


def gamma_noise(rng: Rng) -> Experiment:
    """Noise of a loss that is a mean of squares."""
    squares = rng.choice([4.0, 16.0, 64.0])

    def shocks(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
        return np.log(streams("shocks").standard_gamma(squares, (seeds, steps.size)) / squares)

    a = rng.uniform(0.2, 2)
    course = replace(series(rng, lambda t: -a * np.log(t)), noise=1.0, shocks=shocks)
    return of_power(rng, course, -a)


def correction(rng: Rng) -> Experiment:
    c, b = rng.uniform(-0.8, 8), rng.uniform(0.2, 1.5)
    return power(rng, lambda t: np.log1p(c * t**-b))


def slow_correction(rng: Rng) -> Experiment:
    """The slope is off the limit by b c t^-b/(1 + c t^-b), which hardly changes over the records."""
    c, b = rng.uniform(-0.8, 8), rng.uniform(0.1, 0.25)
    return power(rng, lambda t: np.log1p(c * t**-b))


def logarithm(rng: Rng) -> Experiment:
    q = rng.choice([-1.0, 1.0, 2.0])
    return power(rng, lambda t: q * np.log(np.log(t + 1)))


def iterated_logarithm(rng: Rng) -> Experiment:
    q = rng.choice([-2.0, -1.0, 1.0, 2.0])
    return power(rng, lambda t: q * np.log(np.log(np.log(t + 16))))


def periodic(rng: Rng) -> Experiment:
    height, period = rng.uniform(0.05, 0.5), rng.uniform(0.5, 4)
    return power(rng, lambda t: height * np.sin(2 * np.pi * np.log(t) / period))


def often_periodic(rng: Rng) -> Experiment:
    """The late records hold several periods, so that the mean slope can be read."""
    decades = rng.uniform(2.5, 5)
    periods = rng.uniform(FEWEST_PERIODS, 10)
    period, height = 0.75 * decades * math.log(10) / periods, rng.uniform(0.02, 0.3)
    return power(rng, lambda t: height * np.sin(2 * np.pi * np.log(t) / period), decades=decades)


def stairs(rng: Rng) -> Experiment:
    """Flat treads and drops, of equal length in log t: features are learnt one after the other."""
    decades, sharp = rng.uniform(2.5, 5), rng.uniform(0.3, 0.9)
    period = 0.75 * decades * math.log(10) / rng.uniform(FEWEST_PERIODS, 10)
    a, turn = rng.uniform(0.2, 2), 2 * np.pi / period

    def log_law(t: np.ndarray) -> np.ndarray:
        phase = turn * np.log(t)
        # The argument of exp(i phase) as seen from off the centre runs slowly, then fast.
        return -a / turn * (phase + 2 * np.arctan2(sharp * np.sin(phase), 1 - sharp * np.cos(phase)))

    return of_power(rng, series(rng, log_law, decades=decades), -a)


def bend(rng: Rng, earliest: float, latest: float, within: bool) -> Experiment:
    """From slope -a to slope -b at t = T^place, as sharply as `sharp` says."""
    a, b = rng.uniform(0, 2, size=2) * rng.choice([0, 1], p=[0.1, 0.9], size=2)
    sharp, decades, place = rng.uniform(0.5, 4), rng.uniform(2.5, 5), rng.uniform(earliest, latest)
    turn = place * decades * np.log(10)

    def log_law(t: np.ndarray) -> np.ndarray:
        return -a * np.log(t) + (a - b) / sharp * np.logaddexp(0, sharp * (np.log(t) - turn))

    end = 1 / (1 + np.exp(-sharp * (decades * np.log(10) - turn)))
    truth = -b if within else -a + (a - b) * end
    course = series(rng, log_law, decades=decades)
    # The claim that the bend makes false, and that one would like to believe.
    return of_power(rng, course, float(truth), around(-a, 0.1) if rng.random() < 0.25 else None)


def plateau(rng: Rng) -> Experiment:
    """Nothing happens until t = T^place, then a power."""
    a, decades, sharp = rng.uniform(0.2, 2), rng.uniform(2.5, 5), rng.uniform(1, 6)
    start = rng.uniform(0.2, 0.6) * decades * math.log(10)

    def law(t: np.ndarray) -> np.ndarray:
        return -a / sharp * np.logaddexp(0, sharp * (np.log(t) - start))

    return of_power(rng, series(rng, law, decades=decades), -a)


def floor(rng: Rng, earliest: float, latest: float) -> Experiment:
    """t^-a + f with t^-a = f at t = T^place: the limit is 0, and one would like to believe -a."""
    a, decades, place = rng.uniform(0.3, 2), rng.uniform(2.5, 5), rng.uniform(earliest, latest)
    height = -a * place * decades * math.log(10)
    course = series(rng, lambda t: np.logaddexp(-a * np.log(t), height), decades=decades)
    return of_power(rng, course, 0.0, around(-a, 0.1) if rng.random() < 0.25 else None)


def scattered(rng: Rng) -> Experiment:
    """Every seed has its own exponent; the claim is about their mean."""
    a = rng.uniform(0.5, 2)
    own = own_exponents(lambda streams, seeds: 0.1 * streams("own").standard_normal((seeds, 1)))
    course = series(rng, lambda t: -a * np.log(t), own, seeds=rng.choice([2, 3, 4, 8, 16]))
    return of_power(rng, course, -a)


def own_exponents(deviations: Callable[[Streams, int], np.ndarray]) -> Shocks:
    """What every seed adds to the exponent."""
    return lambda streams, seeds, steps: deviations(streams, seeds) * np.log(steps)


def two_slopes(rng: Rng) -> Experiment:
    """Two populations of seeds, each with its exponent; the claim is about the mean."""
    a, gap, weight = rng.uniform(0.5, 1.5), rng.uniform(0.1, 0.5), rng.uniform(0.35, 0.65)
    own = own_exponents(lambda streams, seeds: -gap * (streams("own").random((seeds, 1)) < weight))
    course = series(rng, lambda t: -a * np.log(t), own, seeds=rng.choice([8, 12, 16]))
    unit = reach_of_mean(gap * math.sqrt(weight * (1 - weight)), course.seeds)
    truth = -a - gap * weight
    return of_power(rng, course, truth, about(rng, truth, unit * rng.uniform(0.8, 2.5), 3 * unit))


def faster(rng: Rng) -> Experiment:
    """Exponential decay has no exponent: a claim of one must not be SUPPORTED."""
    decades, folds = rng.uniform(2.5, 4), rng.uniform(0.5, 20)
    course = series(rng, lambda t: -folds * t / 10**decades, decades=decades)
    return Experiment(
        course, course.seeds, exponent, around(-rng.uniform(0, 2), 0.1), -math.inf, plain_slopes
    )


def stretched(rng: Rng) -> Experiment:
    """exp(-c t^p), sometimes after a power-law transient, claims on p."""
    p, folds, decades = rng.choice([0.5, 1.0, 2.0]), rng.uniform(2, 30), rng.uniform(2.5, 4)
    transient = rng.choice([0.0, 1.0]) * rng.uniform(-1, 1)
    course = series(
        rng, lambda t: -folds * (t / 10**decades) ** p + transient * np.log1p(1 / np.sqrt(t)), decades=decades
    )
    return of_stretch(rng, course, float(p))


def stretched_power(rng: Rng, most_folds: float = 40, noises: tuple[float, ...] = NOISES) -> Experiment:
    """t^-g exp(-c t^p): the power rules first, the exponential in the end."""
    p, folds, decades = rng.uniform(0.4, 2), rng.uniform(4, most_folds), rng.uniform(2.5, 4)
    g = rng.uniform(-1, 2)
    noise = rng.choice(noises)

    def law(t: np.ndarray) -> np.ndarray:
        return -g * np.log(t) - folds * (t / 10**decades) ** p

    return of_stretch(rng, series(rng, law, decades=decades, noise=noise), p)


def mixture(rng: Rng) -> Experiment:
    """Two exponentials: the slow one rules in the end."""
    decades, folds, share = rng.uniform(2.5, 4), rng.uniform(2, 20), rng.uniform(0.1, 0.9)
    fast = folds * rng.uniform(3, 30)

    def log_law(t: np.ndarray) -> np.ndarray:
        u = t / 10**decades
        return np.logaddexp(np.log(share) - folds * u, np.log(1 - share) - fast * u)

    return of_stretch(rng, series(rng, log_law, decades=decades), 1.0)


def rival(rng: Rng) -> Experiment:
    """Which of two laws; the claim may name the wrong one."""
    pairs: dict[tuple[str, str], tuple[Law, Law]] = {
        ("power", "log_power"): (lambda t: -np.log(t), lambda t: np.log(np.log(t + 1e-9)) - np.log(t)),
        ("exponential", "gaussian"): (lambda t: -8 * t / t[-1], lambda t: -8 * (t / t[-1]) ** 2),
    }
    names = list(pairs)[rng.integers(2)]
    planted, claimed = int(rng.integers(2)), int(rng.integers(2))
    with np.errstate(divide="ignore"):  # of log log t at t = 1, a record that is left out
        course = series(rng, pairs[names][planted])
    course = replace(course, steps=course.steps[1:], law=course.law[1:])

    def measure(run: xr.Dataset) -> Estimate:
        return rivals(run["loss"], names[claimed], names[1 - claimed])

    truth = math.inf if planted == claimed else -math.inf
    return Experiment(course, course.seeds, measure, Interval(0), truth)


def numbers(rng: Rng) -> Experiment:
    """Means, shares, medians and orders of per-seed numbers, claims near the truth."""
    seeds, kind = int(rng.choice([1, 2, 3, 4, 8, 16, 64])), rng.choice(["mean", "share", "median"])
    truth = rng.uniform(0.1, 0.9)
    deviation = rng.choice([0.01, 0.1, 1.0])
    if kind == "share":
        draw = samples(rng, lambda rng, seeds: rng.random(seeds) < truth)
    else:
        draw = samples(rng, lambda rng, seeds: rng.normal(truth, deviation, seeds))
    measure = {"mean": mean_sample, "share": share_sample, "median": median_sample}[str(kind)]
    centre = np.median if kind == "median" else np.mean
    return Experiment(draw, seeds, measure, about(rng, truth), truth, plain_samples, centre=centre)


def damaged(rng: Rng) -> Experiment:
    """A NaN, an infinity or a divergence somewhere: only BROKEN is right."""
    whole = power(rng)
    kind = rng.choice(["nan", "inf", "diverged"])
    seed, step = rng.random(2)

    def draw(seeds: int) -> xr.Dataset:
        data = whole.draw(seeds)
        at = int(seed * min(seeds, whole.seeds)), int(step * data.sizes["step"])
        if kind == "diverged":
            diverged = np.full(seeds, -1)
            diverged[at[0]] = int(data["step"][at[1]])
            data["diverged_at"] = ("seed", diverged)
        else:
            data["loss"][at] = float(kind)
        return data

    return replace(whole, draw=draw, truth=math.nan)


# --- sizes ---


def sizes(rng: Rng, corrected: bool, fewest: int = 7, most: int = 9) -> Experiment:
    """N^p at sizes N = 16, 32, ..., a number for each seed and size."""
    count = int(rng.integers(fewest, most + 1))
    p, c, b = rng.uniform(-2, 2), rng.uniform(-0.8, 4), rng.uniform(0.3, 1)

    def law(n: np.ndarray) -> np.ndarray:
        return p * np.log(n) + corrected * np.log1p(c * n**-b)

    seeds, noise = int(rng.choice([2, 4, 8, 16])), float(rng.choice([0.01, 0.03, 0.1]))
    return of_sizes(rng, 16.0 * 2 ** np.arange(count), law, p, seeds, noise)


# --- times ---


def hitting(rng: Rng, most_censored: float) -> Experiment:
    """The median of lognormal times, of which a share lies after the last record."""
    seeds, deviation = int(rng.choice([8, 12, 16, 32])), rng.uniform(0.1, 0.6)
    truth, censored = 10 ** rng.uniform(1.5, 3.5), rng.uniform(0, most_censored)
    # The share `censored` of lognormal times exceeds the horizon.
    horizon = (
        truth * math.exp(deviation * float(special.ndtri(1 - censored))) if most_censored else truth * 50
    )
    steps = np.unique(np.geomspace(1, horizon, int(rng.integers(60, 200))).round())

    def times(streams: Streams, seeds: int) -> np.ndarray:
        return truth * np.exp(deviation * streams("times").standard_normal(seeds))

    draw = hits(rng, steps, times, rng.uniform(1, 5))
    unit = truth * max(2 * deviation / math.sqrt(seeds), 0.1)
    predicts = about(rng, truth, unit * rng.uniform(0.8, 2), 3 * unit, 0.05 * unit)
    return Experiment(draw, seeds, hitting_time, predicts, truth, plain_times, centre=np.median)


def ratio(rng: Rng, censored: bool) -> Experiment:
    """The mean of log(second / first) of paired times; the second may come after the last record."""
    seeds, deviation = int(rng.choice([4, 8, 16])), rng.uniform(0.2, 0.8)
    first, gap = 10 ** rng.uniform(1.5, 3), rng.uniform(0.3, 2) if censored else rng.uniform(-0.5, 1)
    # First times spread by 0.15, so that they are always within the horizon.
    horizon = first * math.exp(max(gap + deviation * rng.uniform(0, 1.5) if censored else 8.0, 0.8))
    steps = np.unique(np.geomspace(1, horizon, int(rng.integers(100, 300))).round())

    def times(streams: Streams, seeds: int) -> np.ndarray:
        own, other = 0.15 * streams("first").standard_normal(seeds), streams("second").standard_normal(seeds)
        return first * np.exp(np.stack([own, own + gap + deviation * other], axis=1))

    unit = reach_of_mean(deviation, seeds) + 0.05
    predicts = about(rng, gap, unit * rng.uniform(0.8, 2), 3 * unit, 0.05 * unit)
    if rng.random() < 0.5:
        predicts = at_least(0) if rng.random() < 0.5 else at_most(0)
    draw = hits(rng, steps, times, rng.uniform(1, 5))
    return Experiment(draw, seeds, log_ratio, predicts, gap, plain_ratios)


# --- means ---


def mean_of(rng: Rng, kind: str, sides: int = 2) -> Experiment:
    """The mean of 6 to 16 samples of this distribution, of either sign."""
    sampler, truth, deviation = distribution(rng, kind)
    sign, scale = rng.choice([-1.0, 1.0]), 10 ** rng.uniform(-2, 2)
    unit = sign * scale
    return of_mean(
        rng,
        lambda rng, seeds: unit * sampler(rng, seeds),
        unit * truth,
        scale * deviation,
        int(rng.integers(6, 17)),
        sides,
    )


def distribution(rng: Rng, kind: str) -> tuple[Callable[[Rng, int], np.ndarray], float, float]:
    """A sampler, its mean and its standard deviation."""
    if kind == "normal":
        return lambda rng, seeds: 1 + rng.standard_normal(seeds), 1.0, 1.0
    if kind == "lognormal":
        s = rng.uniform(0.3, 1.2)
        mean = math.exp(s**2 / 2)
        return lambda rng, seeds: rng.lognormal(0, s, seeds), mean, mean * math.sqrt(math.expm1(s**2))
    if kind == "exponential":
        return lambda rng, seeds: rng.exponential(1, seeds), 1.0, 1.0
    if kind == "gamma":
        shape = rng.uniform(0.5, 3)
        return lambda rng, seeds: rng.gamma(shape, 1, seeds), shape, math.sqrt(shape)
    if kind == "uniform":
        return lambda rng, seeds: rng.random(seeds), 0.5, math.sqrt(1 / 12)
    return lambda rng, seeds: rng.standard_t(3, seeds), 0.0, math.sqrt(3)


def share(rng: Rng) -> Experiment:
    """The share of 8 to 64 seeds that succeed."""
    truth, seeds = rng.uniform(0.05, 0.95), int(rng.choice([8, 16, 32, 64]))
    unit = reach_of_mean(math.sqrt(truth * (1 - truth)), seeds)
    draw = samples(rng, lambda rng, seeds: rng.random(seeds) < truth)
    predicts = about(rng, truth, unit * rng.uniform(0.8, 2), 2 * unit, 0.05 * unit)
    return Experiment(draw, seeds, share_sample, predicts, truth, plain_samples)


def skewed_median(rng: Rng) -> Experiment:
    """The median of lognormal samples."""
    s, seeds = rng.uniform(0.3, 1.5), int(rng.choice([8, 12, 16, 32]))
    unit = 1.25 * reach_of_mean(s, seeds)
    predicts = about(rng, 1.0, unit * rng.uniform(0.8, 2), 3 * unit, 0.05 * unit)
    draw = samples(rng, lambda rng, seeds: rng.lognormal(0, s, seeds))
    return Experiment(draw, seeds, median_sample, predicts, 1.0, plain_samples, centre=np.median)


def failing(rng: Rng, fewest: float, most: float, sure: bool = False) -> Experiment:
    """A share of the seeds fails, 3 to 20 deviations away. Hidden if no seed of the sample fails.

    `sure` asks for so many seeds that one of them fails in 95 % of the samples.
    """
    p, distance, seeds = rng.uniform(fewest, most), rng.uniform(3, 20), int(rng.integers(6, 17))
    if sure:
        seeds = max(seeds, math.ceil(math.log(0.05) / math.log(1 - p)))
    distance *= rng.choice([-1.0, 1.0])

    def sampler(rng: Rng, seeds: int) -> np.ndarray:
        drawn = rng.random((seeds, 2))
        return distance * (drawn[:, 0] < p) + special.ndtri(drawn[:, 1])

    deviation = math.sqrt(1 + distance**2 * p * (1 - p))
    found = of_mean(rng, sampler, distance * p, deviation, seeds)
    fails = streams_of(found)("sample").random((seeds, 2))[:, 0] < p
    return replace(found, hidden=not sure and not bool(fails.any()))


def populations(rng: Rng) -> Experiment:
    """Two populations of seeds, 1 to 10 deviations apart."""
    weight, distance, seeds = rng.uniform(0.35, 0.65), rng.uniform(1, 10), int(rng.integers(8, 17))

    def sampler(rng: Rng, seeds: int) -> np.ndarray:
        drawn = rng.random((seeds, 2))
        return distance * (drawn[:, 0] < weight) + special.ndtri(drawn[:, 1])

    deviation = math.sqrt(1 + distance**2 * weight * (1 - weight))
    return of_mean(rng, sampler, distance * weight, deviation, seeds)


# Planted as they are, these hold draws whose truth no data analyst could find. They are counted apart.
UNDECIDABLE: dict[str, str] = {
    "t^-a (1 + c t^-b), b < 0.25, hidden": "The drift of the slope over the late records is below four "
    "standard errors of the best test, yet the limit is more than 0.025 off: a straight line fits as well.",
    "t^-a, log-periodic": "In part: a period as long as the late records looks like a drift. The twin "
    "with three periods or more is counted.",
    "bend at the end of the records": "In part: a bend that has hardly begun is below the noise. The twin "
    "with visible bends is counted.",
    "bend at the end, hidden": "A straight line fits the late records as well.",
    "floor at the end, hidden": "A straight line fits the late records as well.",
    "t^-g exp(-c t^p), hidden": "A pure exp(-c t^p) with another p fits the late records as well.",
    "failing seed, none in the sample": "Eight seeds hold no failing one of 5 % in two samples of three, "
    "and the mean over all seeds is then elsewhere.",
}

FAMILIES: dict[str, Plant] = {
    "textbook: 1/t, 4 decades, 10 % noise, 8 seeds": textbook,
    "t^-a": power,
    "t^-a, one-sided": one_sided,
    "t^-a, correlated noise": lambda rng: power(rng, memory=0.9),
    "t^-a, heavy-tailed noise": lambda rng: power(rng, tail=2),
    "t^-a, gamma noise": gamma_noise,
    "t^-a, shared shocks": shared,
    "t^-a, own prefactors": lambda rng: power(rng, prefactor=1.5),
    "t^-a, own exponent per seed": scattered,
    "t^-a, two populations of exponents": two_slopes,
    "t^-a (1 + c t^-b)": correction,
    "t^-a (1 + c t^-b), b < 0.25": only(slow_correction, hidden=False),
    "t^-a (1 + c t^-b), b < 0.25, hidden": only(slow_correction, hidden=True),
    "t^-a (log t)^q": logarithm,
    "t^-a (log log t)^q": only(iterated_logarithm, hidden=False),
    "t^-a, log-periodic": periodic,
    "t^-a, log-periodic, three periods or more": often_periodic,
    "staircase": stairs,
    "plateau, then t^-a": only(plateau, hidden=False),
    "bend early": only(lambda rng: bend(rng, 0.05, 0.3, within=True), hidden=False),
    "bend inside the records": lambda rng: bend(rng, 0.2, 0.8, within=True),
    "bend at the end of the records": lambda rng: bend(rng, 0.8, 1.0, within=True),
    "bend at the end, visible": only(lambda rng: bend(rng, 0.8, 1.0, within=True), hidden=False),
    "bend at the end, hidden": only(lambda rng: bend(rng, 0.8, 1.0, within=True), hidden=True),
    "bend beyond the records": lambda rng: bend(rng, 1.0, 1.5, within=False),
    "floor inside the records": only(lambda rng: floor(rng, 0.4, 0.8), hidden=False),
    "floor at the end, visible": only(lambda rng: floor(rng, 0.8, 1.0), hidden=False),
    "floor at the end, hidden": only(lambda rng: floor(rng, 0.8, 1.0), hidden=True),
    "exponential, claimed as a power": faster,
    "N^p, 7 to 9 sizes": lambda rng: sizes(rng, corrected=False),
    "N^p (1 + c N^-b), 7 to 9 sizes": only(lambda rng: sizes(rng, corrected=True), hidden=False),
    "N^p, 3 to 6 sizes": lambda rng: sizes(rng, corrected=False, fewest=3, most=6),
    "exp(-c t^p)": stretched,
    "t^-g exp(-c t^p)": only(stretched_power, hidden=False),
    "t^-g exp(-c t^p), hidden": only(lambda rng: stretched_power(rng, 8, (0.1, 0.3)), hidden=True),
    "two exponentials": mixture,
    "rival laws": rival,
    "hitting time": lambda rng: hitting(rng, 0.0),
    "hitting time, censored": lambda rng: hitting(rng, 0.45),
    "log ratio of times": lambda rng: ratio(rng, censored=False),
    "log ratio of times, censored": lambda rng: ratio(rng, censored=True),
    "mean, share, median": numbers,
    "mean of normal samples": lambda rng: mean_of(rng, "normal"),
    "mean of normal samples, one-sided": lambda rng: mean_of(rng, "normal", sides=1),
    "mean of lognormal samples": lambda rng: mean_of(rng, "lognormal"),
    "mean of lognormal samples, one-sided": lambda rng: mean_of(rng, "lognormal", sides=1),
    "mean of exponential samples": lambda rng: mean_of(rng, "exponential"),
    "mean of gamma samples": lambda rng: mean_of(rng, "gamma"),
    "mean of uniform samples": lambda rng: mean_of(rng, "uniform"),
    "mean of t(3) samples": lambda rng: mean_of(rng, "t"),
    "share of seeds": share,
    "median of lognormal samples": skewed_median,
    "failing seed of 10 to 30 %, enough seeds": lambda rng: failing(rng, 0.1, 0.3, sure=True),
    "failing seed, one in the sample": only(lambda rng: failing(rng, 0.05, 0.2), hidden=False),
    "failing seed, none in the sample": only(lambda rng: failing(rng, 0.05, 0.2), hidden=True),
    "mean, two populations": populations,
    "NaN, inf, diverged": damaged,
}
