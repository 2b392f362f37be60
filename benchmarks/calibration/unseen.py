"""Families that are independent of the shaping: other laws, noises, grids of records and combinations.

Look at results of this part only once a rule is fixed, and never change a rule because of them.

What training curves look like, as theory and logs have them: sums of powers, spectra of rates, shifted powers
(t + t0)^-a, saddles that are escaped, warm-up humps, drops of the learning rate, spikes. The records may
lie on a linear grid, miss the beginning, or be as few as 20 or as many as 400. Seeds are 2 to 32. The truth
is the limit of the local slope if nothing else is said; each family says where it is not.
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
    Sampler,
    Series,
    Shocks,
    Streams,
    about,
    exponent,
    hits,
    hitting_time,
    local_slope,
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
    refusable,
    samples,
    share_sample,
    streams_of,
    with_common,
)
from descentlab.judging import Interval, around, at_least, at_most, rivals


def uniformly(rng: Rng, *ranges: tuple[float, float]) -> list[float]:
    """A number from each range."""
    return [float(rng.uniform(*ends)) for ends in ranges]


def log_uniform(rng: Rng, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


# --- grids of records ---


def log_grid(rng: Rng, horizon: float) -> np.ndarray:
    """Evenly in log t, from the first step."""
    return np.unique(np.geomspace(1, horizon, int(rng.integers(40, 260))).round())


def doubling_grid(rng: Rng, horizon: float) -> np.ndarray:
    """So many evenly spaced records in each octave, as a training script that doubles its interval writes."""
    octaves = 2.0 ** np.arange(0, math.floor(math.log2(horizon)))
    within = 1 + np.arange(8) / 8
    return np.unique(np.floor(np.outer(octaves, within).ravel()))


def late_grid(rng: Rng, horizon: float) -> np.ndarray:
    """The beginning was not logged."""
    start = horizon ** rng.uniform(0.1, 0.35)
    return np.unique(np.geomspace(start, horizon, int(rng.integers(40, 200))).round())


def linear_grid(rng: Rng, horizon: float) -> np.ndarray:
    """Every so many steps."""
    count = int(rng.integers(150, 400))
    return np.unique((np.arange(1, count + 1) * horizon / count).round())


def sparse_grid(rng: Rng, horizon: float) -> np.ndarray:
    """Few records, on either grid."""
    count = int(rng.integers(20, 40))
    grid = (
        np.geomspace(1, horizon, count)
        if rng.random() < 0.5
        else np.linspace(horizon / count, horizon, count)
    )
    return np.unique(grid.round())


GRIDS = (log_grid, log_grid, doubling_grid, late_grid)


# --- noises, each of variance about one ---


def ornstein(length: float) -> Shocks:
    """Noise that forgets in log t: its correlation is exp(-|log(t/t')| / length)."""

    def shocks(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
        drawn = streams("shocks").standard_normal((seeds, steps.size))
        keep = np.exp(-np.diff(np.log(steps)) / length)
        for i in range(1, steps.size):
            drawn[:, i] = keep[i - 1] * drawn[:, i - 1] + math.sqrt(1 - keep[i - 1] ** 2) * drawn[:, i]
        return drawn

    return shocks


def laplace(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
    """Tails like exp(-|x|)."""
    return special.logit(streams("shocks").random((seeds, steps.size))) * math.sqrt(3) / math.pi


def contaminated(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
    """One record in twenty is six times as noisy."""
    odd = streams("odd").random((seeds, steps.size)) < 0.05
    return streams("shocks").standard_normal((seeds, steps.size)) * np.where(odd, 6.0, 1.0) / math.sqrt(2.75)


def growing(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
    """Noise that grows from a half to twice as the loss falls."""
    place = np.log(steps / steps[0]) / math.log(steps[-1] / steps[0])
    return streams("shocks").standard_normal((seeds, steps.size)) * 0.5 * 4**place


def chi_square(squares: float) -> Shocks:
    """log of a mean of squares, over the deviation that it has for many squares."""

    def shocks(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
        drawn = streams("shocks").chisquare(squares, (seeds, steps.size)) / squares
        return np.log(drawn) * math.sqrt(squares / 2)

    return shocks


def spiking(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
    """Loss spikes: at one record in forty up by ten or so deviations, halved from record to record."""
    jumps = streams("jumps").random((seeds, steps.size)) < 0.025
    heights = jumps * streams("heights").exponential(10.0, (seeds, steps.size))
    decay = np.array(heights)
    for i in range(1, steps.size):
        decay[:, i] += decay[:, i - 1] / 2
    return streams("shocks").standard_normal((seeds, steps.size)) + decay


NOISES: tuple[Shocks, ...] = (normal, normal, laplace, growing, chi_square(24))


# --- trajectories ---


def course(
    rng: Rng,
    log_law: Law,
    *,
    horizon: float | None = None,
    grids: tuple[Callable[[Rng, float], np.ndarray], ...] = GRIDS,
    shocks: Shocks | None = None,
    each: Shocks | None = None,
    seeds: int | None = None,
    noise: float | None = None,
) -> Series:
    """Trajectories with prefactors, records, noise and seeds as they may be."""
    horizon = horizon or log_uniform(rng, 1e3, 3e5)
    steps = grids[rng.integers(len(grids))](rng, horizon)
    shocks = shocks or NOISES[rng.integers(len(NOISES))]
    seeds = seeds or int(
        rng.choice([2, 3, 5, 6, 10, 12, 20, 32], p=[0.1, 0.1, 0.2, 0.2, 0.15, 0.1, 0.1, 0.05])
    )
    noise = log_uniform(rng, 0.003, 0.2) if noise is None else noise
    return Series(steps, log_law(steps), seeds, noise, Streams.of(rng), shocks, each, rng.choice([0.1, 0.6]))


def rate(rng: Rng) -> float:
    """An exponent: mostly of decay, sometimes of growth, as of a norm."""
    return rng.uniform(0.1, 1) if rng.random() < 0.1 else -rng.uniform(0.1, 2.5)


def clean(rng: Rng, **how: Any) -> Experiment:
    """A power law."""
    s = rate(rng)
    return of_power(rng, course(rng, lambda t: s * np.log(t), **how), s)


def clean_one_sided(rng: Rng) -> Experiment:
    """At least or at most so fast, of a shifted power."""
    found = shifted(rng)
    return replace(found, predicts=about(rng, found.truth, sides=1))


def forgetting(rng: Rng) -> Experiment:
    """Noise with memory in log t, over a twentieth to a half of a decade."""
    return clean(rng, shocks=ornstein(rng.uniform(0.1, 1.2)))


def shared(rng: Rng) -> Experiment:
    """A third to nearly all of the variance is common to the seeds."""
    return clean(rng, shocks=with_common(normal, rng.uniform(0.3, 0.95)), noise=log_uniform(rng, 0.005, 0.1))


def shared_memory(rng: Rng) -> Experiment:
    """As before, and what is common has memory from record to record."""
    shocks = with_common(laplace, rng.uniform(0.3, 0.9), rng.uniform(0.4, 0.9))
    return clean(rng, shocks=shocks, noise=log_uniform(rng, 0.005, 0.05))


def heavy(rng: Rng) -> Experiment:
    """Student's tails with 1.5 degrees of freedom, or every twentieth record very noisy."""

    def students(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
        return streams("shocks").standard_t(1.5, (seeds, steps.size))

    shocks = students if rng.random() < 0.5 else contaminated
    return clean(rng, shocks=shocks, noise=log_uniform(rng, 0.003, 0.1))


def spectrum(rng: Rng) -> Experiment:
    """∫ λ^(a-1) exp(-λ t) dλ over rates 0 to 1, as of gradient descent on a power-law spectrum: t^-a."""
    a, early = rng.uniform(0.15, 2), log_uniform(rng, 0.05, 2)

    def law(t: np.ndarray) -> np.ndarray:
        return np.log(special.gammainc(a, early * t)) - a * np.log(t)

    return of_power(rng, course(rng, law), -a)


def shifted(rng: Rng) -> Experiment:
    """(t + t0)^-a, with t0 up to T^0.35."""
    a, horizon = rng.uniform(0.2, 2), log_uniform(rng, 1e3, 3e5)
    t0 = horizon ** rng.uniform(0, 0.35)
    return of_power(rng, course(rng, lambda t: -a * np.log(t + t0), horizon=horizon), -a)


def two_powers(rng: Rng, slowest: float, fastest: float) -> Experiment:
    """t^-a + c t^-(a + b), with c t^-b between a fiftieth and six at t = 10."""
    a, b = uniformly(rng, (0.1, 1.5), (slowest, fastest))
    c = log_uniform(rng, 0.02, 6) * 10**b if rng.random() < 0.7 else -rng.uniform(0.1, 0.8)
    return of_power(rng, course(rng, lambda t: -a * np.log(t) + np.log1p(c * t**-b)), -a)


def log_factor(rng: Rng) -> Experiment:
    """t^-a log(e + t/t0)^q."""
    a, q, t0 = rng.uniform(0.1, 1.5), rng.choice([-2.0, -0.5, 0.5, 1.5, 3.0]), log_uniform(rng, 0.3, 10)
    return of_power(rng, course(rng, lambda t: -a * np.log(t) + q * np.log(np.log(math.e + t / t0))), -a)


def log_log_factor(rng: Rng) -> Experiment:
    """t^-a (1 + log(1 + log t))^q."""
    a, q = rng.uniform(0.1, 1.5), rng.choice([-1.5, -0.5, 0.5, 1.0, 3.0])
    return of_power(rng, course(rng, lambda t: -a * np.log(t) + q * np.log1p(np.log1p(np.log(t)))), -a)


def saddle(rng: Rng) -> Experiment:
    """A plateau that every seed leaves at its own time, then a power of the time since."""
    a, horizon = rng.uniform(0.2, 1.8), log_uniform(rng, 3e3, 3e5)
    leave, spread, sharp = horizon ** rng.uniform(0.15, 0.45), rng.uniform(0, 0.5), rng.uniform(1, 5)

    def each(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
        own = np.log(leave) + spread * streams("leave").standard_normal((seeds, 1))
        return -a / sharp * np.logaddexp(0, sharp * (np.log(steps) - own))

    found = course(rng, np.zeros_like, horizon=horizon, each=each)
    predicts = about(rng, -a)
    return Experiment(found, found.seeds, exponent, predicts, -a, plain_slopes)


def hump(rng: Rng) -> Experiment:
    """Warm-up: the loss rises and falls again early, then a power."""
    a, height, width = uniformly(rng, (0.2, 1.5), (0.2, 2), (0.2, 0.7))
    horizon = log_uniform(rng, 3e3, 3e5)
    top = rng.uniform(0.05, 0.22) * math.log(horizon)

    def law(t: np.ndarray) -> np.ndarray:
        return -a * np.log(t) + height * np.exp(-(((np.log(t) - top) / width) ** 2) / 2)

    return of_power(rng, course(rng, law, horizon=horizon), -a)


def drop(rng: Rng, earliest: float, latest: float) -> Experiment:
    """The learning rate drops at T^place: the loss falls to a fraction, with the exponent that it had."""
    a, fraction = rng.uniform(0.2, 1.5), rng.uniform(0.2, 0.8)
    horizon = log_uniform(rng, 3e3, 3e5)
    when, length = horizon ** rng.uniform(earliest, latest), rng.uniform(0.05, 0.3)

    def law(t: np.ndarray) -> np.ndarray:
        since = np.maximum(t - when, 0) / (length * when)
        return -a * np.log(t) + math.log(fraction) * -np.expm1(-since)

    return of_power(rng, course(rng, law, horizon=horizon), -a)


def crossover(rng: Rng, earliest: float, latest: float, within: bool = True) -> Experiment:
    """t^-a and t^-b meet at T^place: their sum, where the slower wins, or the inverse of one.

    Beyond the records (not `within`) the truth is the slope at the last record.
    """
    fast, slow = uniformly(rng, (0.6, 2), (0.0, 0.5))
    horizon, sign = log_uniform(rng, 3e3, 3e5), rng.choice([-1, 1])
    meet = rng.uniform(earliest, latest) * math.log(horizon)

    def law(t: np.ndarray) -> np.ndarray:
        x = np.log(t) - meet
        return sign * np.logaddexp(-sign * fast * x, -sign * slow * x)

    before, after = (-fast, -slow) if sign > 0 else (-slow, -fast)
    found = course(rng, law, horizon=horizon)
    truth = after if within else local_slope(law, found.steps[-1])
    wished = around(before + rng.uniform(-0.03, 0.03), 0.1) if rng.random() < 0.3 else None
    return of_power(rng, found, truth, wished)


def floor(rng: Rng, earliest: float, latest: float, within: bool = True) -> Experiment:
    """(t + t0)^-a + f, of an irreducible loss f that is met at T^place: the limit is 0.

    Beyond the records (not `within`) the truth is the slope at the last record.
    """
    a, t0 = rng.uniform(0.25, 1.6), log_uniform(rng, 0.5, 10)
    horizon = log_uniform(rng, 3e3, 3e5)
    height = -a * rng.uniform(earliest, latest) * math.log(horizon)

    def law(t: np.ndarray) -> np.ndarray:
        return np.logaddexp(-a * np.log(t + t0), height)

    found = course(rng, law, horizon=horizon)
    truth = 0.0 if within else local_slope(law, found.steps[-1])
    wished = around(-a + rng.uniform(-0.05, 0.05), 0.1) if rng.random() < 0.3 else None
    return of_power(rng, found, truth, wished)


def features(rng: Rng) -> Experiment:
    """Σ ρ^(-a k) exp(-t / ρ^k): features of falling strength, learnt one after the other, in stairs.

    The truth is the slope over many stairs. The late records hold at least four.
    """
    horizon, a = log_uniform(rng, 1e4, 1e6), rng.uniform(0.15, 1)
    ratio = math.exp(0.75 * math.log(horizon) / rng.uniform(4, 9))
    scales = ratio ** np.arange(-3.0, math.log(horizon) / math.log(ratio) + 12 / a / math.log(ratio))

    def law(t: np.ndarray) -> np.ndarray:
        return np.log(np.exp(-t[:, None] / scales) @ scales**-a)

    return of_power(rng, course(rng, law, horizon=horizon), -a)


def triangular(rng: Rng) -> Experiment:
    """A zigzag in log t, four to twelve times in the late records. The truth is the mean slope."""
    horizon, height = log_uniform(rng, 3e3, 3e5), rng.uniform(0.02, 0.25)
    turn = 2 * np.pi * rng.uniform(4, 12) / (0.75 * math.log(horizon))
    a, phase = rng.uniform(0.1, 1.5), rng.uniform(0, 2 * np.pi)

    def law(t: np.ndarray) -> np.ndarray:
        return -a * np.log(t) + height * np.arcsin(np.sin(turn * np.log(t) + phase))

    return of_power(rng, course(rng, law, horizon=horizon), -a)


def fading_swings(rng: Rng) -> Experiment:
    """Oscillations at an edge of stability that fade like a power of t."""
    a, height, fade, turn = uniformly(rng, (0.2, 1.5), (0.3, 1.5), (0.3, 1.0), (2, 8))

    def law(t: np.ndarray) -> np.ndarray:
        return -a * np.log(t) + height * t**-fade * np.cos(turn * np.log(t))

    return of_power(rng, course(rng, law), -a)


def own_slopes(rng: Rng) -> Experiment:
    """Every seed has its own exponent, skewed; the claim is about their mean."""
    a, deviation = rng.uniform(0.4, 1.5), log_uniform(rng, 0.01, 0.15)

    def each(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
        return deviation * (2 - streams("own").gamma(4.0, 0.5, (seeds, 1))) * np.log(steps)

    found = course(rng, lambda t: -a * np.log(t), each=each)
    unit = reach_of_mean(deviation, found.seeds)
    margin = max(unit * rng.uniform(0.8, 2.5), 0.03)
    return of_power(rng, found, -a, about(rng, -a, margin, 0.02 + 3 * margin))


def stuck(rng: Rng) -> Experiment:
    """A share of the seeds stays on a plateau; the claim is about the mean slope. Hidden if none does."""
    a, p, seeds = rng.uniform(0.3, 1.5), rng.uniform(0.08, 0.25), int(rng.integers(6, 17))

    def stays(streams: Streams, seeds: int) -> np.ndarray:
        return streams("stuck").random((seeds, 1)) < p

    def each(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
        return -a * ~stays(streams, seeds) * np.log(steps)

    found = course(rng, np.zeros_like, each=each, seeds=seeds)
    truth, unit = -a * (1 - p), reach_of_mean(a * math.sqrt(p * (1 - p)), seeds)
    predicts = about(rng, truth, unit * rng.uniform(0.8, 2.5), 3 * unit)
    hidden = not bool(stays(found.streams, seeds).any())
    return Experiment(found, seeds, exponent, predicts, truth, plain_slopes, hidden=hidden)


def three_slopes(rng: Rng) -> Experiment:
    """Three basins, each with its exponent; the claim is about the mean over seeds."""
    a = rng.uniform(0.3, 1.2)
    steps_apart, seeds = rng.uniform(0.05, 0.3), int(rng.choice([9, 12, 16, 24]))

    def each(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
        return -steps_apart * np.floor(3 * streams("basin").random((seeds, 1))) * np.log(steps)

    found = course(rng, lambda t: -a * np.log(t), each=each, seeds=seeds)
    unit = reach_of_mean(steps_apart * math.sqrt(2 / 3), seeds)
    truth = -a - steps_apart
    return of_power(rng, found, truth, about(rng, truth, unit * rng.uniform(0.8, 2.5), 3 * unit))


def cut_off(rng: Rng) -> Experiment:
    """A power that ends in an exponential, as of finitely many modes: a claim of an exponent must not hold.

    The slowest mode has decayed by 2 to 30 folds at the last record.
    """
    a, horizon = rng.uniform(0.2, 1.5), log_uniform(rng, 1e3, 1e5)
    slowest = rng.uniform(2, 30) / horizon

    def law(t: np.ndarray) -> np.ndarray:
        return -a * np.log(t) - slowest * t

    found = course(rng, law, horizon=horizon, noise=log_uniform(rng, 0.003, 0.1))
    claimed = around(-a - (rng.uniform(0, 4) if rng.random() < 0.6 else 0.0), 0.1)
    return Experiment(found, found.seeds, exponent, claimed, -math.inf, plain_slopes)


# --- sizes ---


def sizes(rng: Rng, kind: str, fewest: int = 7, most: int = 9) -> Experiment:
    """A power of the width, perhaps of the width less an offset, or next to another power."""
    count = int(rng.integers(fewest, most + 1))
    grid = np.round(rng.choice([8, 10, 24, 50]) * rng.choice([1.5, 2, 3]) ** np.arange(count))
    p = rng.uniform(-1.5, 1.5)
    offset, b = rng.uniform(-0.5, 3) * 2, rng.uniform(0.4, 1.2)
    laws: dict[str, Law] = {
        "pure": lambda n: p * np.log(n),
        "offset": lambda n: p * np.log(n + offset),
        "sum": lambda n: p * np.log(n) + np.log1p(offset * n**-b),
    }
    seeds, noise = int(rng.choice([3, 5, 10, 20])), log_uniform(rng, 0.01, 0.2)
    shocks = (normal, chi_square(10), laplace)[rng.integers(3)]
    return of_sizes(rng, grid, laws[kind], p, seeds, noise, shocks)


# --- exponentials ---


def stretched(rng: Rng) -> Experiment:
    """exp(-(t/τ)^p) for any p, on any grid."""
    p, folds, horizon = rng.uniform(0.3, 2.5), log_uniform(rng, 3, 60), log_uniform(rng, 300, 3e4)

    def law(t: np.ndarray) -> np.ndarray:
        return -folds * (t / horizon) ** p

    grids = (log_grid, linear_grid, doubling_grid)
    return of_stretch(
        rng, course(rng, law, horizon=horizon, grids=grids, noise=log_uniform(rng, 0.003, 0.1)), p
    )


def prefactor(rng: Rng, most_folds: float = 60, most_noise: float = 0.1) -> Experiment:
    """(1 + t/t0)^-g exp(-(t/τ)^p)."""
    p, folds, horizon = rng.uniform(0.5, 2), log_uniform(rng, 5, most_folds), log_uniform(rng, 300, 3e4)
    g, t0 = rng.uniform(-1.5, 2), log_uniform(rng, 1, 30)

    def law(t: np.ndarray) -> np.ndarray:
        return -g * np.log1p(t / t0) - folds * (t / horizon) ** p

    noise = log_uniform(rng, most_noise / 30, most_noise)
    return of_stretch(rng, course(rng, law, horizon=horizon, noise=noise), p)


def three_exponentials(rng: Rng) -> Experiment:
    """Three rates, each 2 to 12 times the next: the slowest rules in the end."""
    horizon, folds = log_uniform(rng, 300, 3e4), log_uniform(rng, 3, 30)
    rates = folds / horizon * np.cumprod([1.0, rng.uniform(2, 12), rng.uniform(2, 12)])
    weights = rng.dirichlet([1.0, 1.0, 1.0])

    def law(t: np.ndarray) -> np.ndarray:
        return np.log(np.exp(-t[:, None] * rates) @ weights)

    return of_stretch(rng, course(rng, law, horizon=horizon, noise=log_uniform(rng, 0.003, 0.1)), 1.0)


def rival(rng: Rng) -> Experiment:
    """Any two of four laws, of any constants; the claim may name the wrong one."""
    horizon, c, folds = log_uniform(rng, 300, 1e5), rng.uniform(0.3, 2), log_uniform(rng, 2, 20)
    laws: dict[str, Law] = {
        "power": lambda t: -c * np.log(t),
        "log_power": lambda t: np.log(np.log(t)) - c * np.log(t),
        "exponential": lambda t: -folds * t / horizon,
        "gaussian": lambda t: -folds * (t / horizon) ** 2,
    }
    one, other = (str(name) for name in rng.choice(list(laws), 2, replace=False))
    planted = one if rng.random() < 0.5 else other
    with np.errstate(divide="ignore"):  # of log log t at t = 1, a record that is left out
        found = course(rng, laws[planted], horizon=horizon, grids=(log_grid, linear_grid, late_grid))
    late = found.steps > 1.5
    found = replace(found, steps=found.steps[late], law=found.law[late])
    truth = math.inf if planted == one else -math.inf
    return Experiment(found, found.seeds, lambda run: rivals(run["loss"], one, other), Interval(0), truth)


# --- times ---


def grid_of_times(rng: Rng, horizon: float) -> np.ndarray:
    """Records for times: linear or logarithmic."""
    count = int(rng.integers(50, 400))
    grid = (
        np.linspace(horizon / count, horizon, count)
        if rng.random() < 0.5
        else np.geomspace(1, horizon, count)
    )
    return np.unique(np.maximum(grid.round(), 1))


def hitting(rng: Rng, censored: float) -> Experiment:
    """The median of Weibull times; this share of them lies after the last record."""
    shape, seeds = rng.uniform(0.8, 5), int(rng.choice([7, 10, 16, 24, 32]))
    truth = log_uniform(rng, 50, 5000)
    scale = truth / math.log(2) ** (1 / shape)
    horizon = scale * (-math.log(censored)) ** (1 / shape)
    steps = grid_of_times(rng, horizon)

    def times(streams: Streams, seeds: int) -> np.ndarray:
        return np.maximum(scale * streams("times").weibull(shape, seeds), 0.1)

    # The deviation of the median of many Weibull times is 1/(2 √n f(median)).
    unit = 2 * truth / (math.log(2) * shape * math.sqrt(seeds))
    sides = int(rng.choice([1, 2]))
    predicts = about(rng, truth, unit * rng.uniform(0.8, 2.5), 3 * unit, 0.05 * unit, sides)
    draw = hits(rng, steps, times, rng.uniform(1, 8))
    return Experiment(draw, seeds, hitting_time, predicts, truth, plain_times, centre=np.median)


def never(rng: Rng) -> Experiment:
    """Most seeds never get there: the median lies 1.2 to 3 horizons out.

    The truth is the median time, after the last record.
    """
    seeds, horizon, deviation = (
        int(rng.choice([8, 16, 32])),
        log_uniform(rng, 300, 1e4),
        rng.uniform(0.2, 1.5),
    )
    truth = horizon * rng.uniform(1.2, 3)
    draw = hits(
        rng,
        grid_of_times(rng, horizon),
        lambda streams, seeds: (
            truth * np.exp(deviation * special.logit(streams("times").random(seeds)) / 1.8)
        ),
        rng.uniform(1, 8),
    )
    edge = horizon * rng.uniform(0.3, 0.95)
    predicts = at_most(edge) if rng.random() < 0.5 else at_least(edge)
    return Experiment(draw, seeds, hitting_time, predicts, truth)


def ratio(rng: Rng, censored: bool) -> Experiment:
    """The mean of log(second / first) of paired times, whose logs are logistic or skewed."""
    seeds, spread = int(rng.choice([5, 8, 12, 20])), rng.uniform(0.1, 0.6)
    gap = rng.uniform(0.4, 1.5) if censored else rng.uniform(-0.8, 0.8)
    first, skewed = log_uniform(rng, 100, 3000), rng.random() < 0.5
    horizon = first * math.exp(max(gap + spread * rng.uniform(0, 1.5), 0.5) if censored else 6.0)

    def times(streams: Streams, seeds: int) -> np.ndarray:
        own = 0.4 * (streams("first").random(seeds) - 0.5)
        drawn = streams("second").random(seeds)
        other = -np.log(drawn) - 1 if skewed else special.logit(drawn) * math.sqrt(3) / math.pi
        return first * np.exp(np.stack([own, own + gap + spread * other], axis=1))

    unit = reach_of_mean(spread, seeds) + 0.05
    predicts = about(rng, gap, unit * rng.uniform(0.8, 2.5), 3 * unit, 0.05 * unit, int(rng.choice([1, 2])))
    steps = np.unique(np.geomspace(1, horizon, int(rng.integers(150, 400))).round())
    draw = hits(rng, steps, times, rng.uniform(1, 8))
    return Experiment(draw, seeds, log_ratio, predicts, gap, plain_ratios)


# --- a number a seed ---


def distributions(rng: Rng) -> dict[str, tuple[Sampler, float, float]]:
    """Samplers with their means and standard deviations."""
    s, k, w = uniformly(rng, (0.4, 1.0), (0.7, 4), (0.8, 3))
    mean = math.exp(s**2 / 2)
    weibull = math.gamma(1 + 1 / w)
    chi = 2 * rng.integers(1, 6)
    return {
        "normal": (lambda rng, n: rng.normal(0.3, 2.0, n), 0.3, 2.0),
        "lognormal": (lambda rng, n: np.exp(s * rng.standard_normal(n)), mean, mean * math.sqrt(mean**2 - 1)),
        "exponential": (lambda rng, n: 5 - rng.standard_exponential(n), 4.0, 1.0),
        "gamma": (lambda rng, n: rng.gamma(k, 2.0, n), 2 * k, 2 * math.sqrt(k)),
        "uniform": (lambda rng, n: rng.uniform(-1, 3, n), 1.0, 4 / math.sqrt(12)),
        "t(3)": (lambda rng, n: 7 + rng.standard_t(3, n), 7.0, math.sqrt(3)),
        "chi-square": (lambda rng, n: rng.chisquare(chi, n), float(chi), math.sqrt(2 * chi)),
        "Weibull": (
            lambda rng, n: rng.weibull(w, n),
            weibull,
            math.sqrt(math.gamma(1 + 2 / w) - weibull**2),
        ),
        "beta": (lambda rng, n: rng.beta(5, 0.8, n), 5 / 5.8, math.sqrt(4 / (5.8**2 * 6.8))),
    }


def mean_of(rng: Rng, kind: str, sides: int = 2) -> Experiment:
    """The mean of 6 to 16 such samples."""
    sampler, truth, deviation = distributions(rng)[kind]
    return of_mean(rng, sampler, truth, deviation, int(rng.integers(6, 17)), sides)


def skewed_one_sided(rng: Rng) -> Experiment:
    """At least or at most, of a skewed mean."""
    return mean_of(rng, str(rng.choice(["lognormal", "exponential", "gamma", "Weibull", "beta"])), sides=1)


def share(rng: Rng) -> Experiment:
    """The share of seeds that succeed, one- or two-sided, down to 2 %."""
    truth, seeds = float(rng.beta(0.7, 0.7) * 0.96 + 0.02), int(rng.choice([6, 10, 20, 50]))
    unit = reach_of_mean(math.sqrt(truth * (1 - truth)), seeds)
    predicts = about(
        rng, truth, unit * rng.uniform(0.8, 2.5), 2.5 * unit, 0.05 * unit, int(rng.choice([1, 2]))
    )
    draw = samples(rng, lambda rng, n: rng.random(n) < truth)
    return Experiment(draw, seeds, share_sample, predicts, truth, plain_samples)


def median(rng: Rng) -> Experiment:
    """The median of exponential, logistic or two-sided exponential samples."""
    kind, seeds = rng.integers(3), int(rng.choice([7, 10, 14, 25, 40]))
    samplers: list[tuple[Sampler, float, float]] = [
        (lambda rng, n: rng.standard_exponential(n), math.log(2), 1.0),
        (lambda rng, n: rng.logistic(2.0, 1.0, n), 2.0, 2.0),
        (lambda rng, n: rng.laplace(-1.0, 1.0, n), -1.0, 1.0),
    ]
    sampler, truth, deviation = samplers[kind]
    unit = 2 * deviation / math.sqrt(seeds)
    predicts = about(rng, truth, unit * rng.uniform(0.8, 2.5), 3 * unit, 0.05 * unit, int(rng.choice([1, 2])))
    draw = samples(rng, sampler)
    return Experiment(draw, seeds, median_sample, predicts, truth, plain_samples, centre=np.median)


def failing(rng: Rng, sure: bool = False) -> Experiment:
    """Seeds fail with probability 5 to 20 %, to a level that varies. Hidden if no seed of the sample fails.

    `sure` asks for so many seeds that one of them fails in 95 % of the samples.
    """
    p, distance, seeds = rng.uniform(0.05, 0.2), log_uniform(rng, 4, 40), int(rng.integers(6, 17))
    if sure:
        p = rng.uniform(0.15, 0.3)
        seeds = max(seeds, math.ceil(math.log(0.05) / math.log(1 - p)))

    def sampler(rng: Rng, n: int) -> np.ndarray:
        drawn = rng.random((n, 3))
        failed = drawn[:, 0] < p
        return special.logit(drawn[:, 1]) / 1.8 + failed * distance * (0.75 + drawn[:, 2] / 2)

    deviation = math.sqrt(1 + distance**2 * (p * (1 + 1 / 48) - p**2))
    found = of_mean(rng, sampler, distance * p, deviation, seeds)
    fails = streams_of(found)("sample").random((seeds, 3))[:, 0] < p
    return replace(found, hidden=not sure and not bool(fails.any()))


def populations(rng: Rng) -> Experiment:
    """Two basins of final losses, of unlike spread, or three of like weight."""
    seeds, apart = int(rng.integers(8, 17)), rng.uniform(2, 12)
    if rng.random() < 0.5:
        weight, ratio = rng.uniform(0.35, 0.65), rng.uniform(0.2, 1)
        truth = weight * apart
        deviation = math.sqrt(weight * ratio**2 + (1 - weight) + apart**2 * weight * (1 - weight))

        def sampler(rng: Rng, n: int) -> np.ndarray:
            drawn = rng.random((n, 2))
            other = drawn[:, 0] < weight
            return special.ndtri(drawn[:, 1]) * np.where(other, ratio, 1.0) + apart * other
    else:
        truth, deviation = apart, math.sqrt(1 + apart**2 * 2 / 3)

        def sampler(rng: Rng, n: int) -> np.ndarray:
            drawn = rng.random((n, 2))
            return special.ndtri(drawn[:, 1]) + apart * np.floor(3 * drawn[:, 0])

    return of_mean(rng, sampler, truth, deviation, seeds)


def damaged(rng: Rng) -> Experiment:
    """Nothing can be measured: only BROKEN is right. A NaN at the end of one seed, all seeds overflowing,
    a loss of zero or below at the end, a variable that is missing, steps that go back, a NaN sample."""
    whole = clean(rng)
    kind, seed = (
        rng.choice(["nan", "overflow", "zero", "negative", "missing", "steps", "sample"]),
        rng.random(),
    )
    late = -int(rng.integers(1, 5))
    if kind == "sample":
        numbers = samples(rng, lambda rng, n: np.where(np.arange(n) == 1, np.nan, rng.standard_normal(n)))
        return Experiment(numbers, 6, mean_sample, around(0, 1), math.nan)

    def draw(seeds: int) -> xr.Dataset:
        data = whole.draw(seeds)
        row = int(seed * min(seeds, whole.seeds))
        if kind == "missing":
            return data.rename(loss="train_loss")
        if kind == "steps":
            return data.assign_coords(step=data["step"].values[np.r_[0, 2, 1, 3 : data.sizes["step"]]])
        value = {"nan": np.nan, "overflow": np.inf, "zero": 0.0, "negative": -1e-3}[str(kind)]
        rows = slice(None) if kind == "overflow" else slice(row, row + 1)
        data["loss"][rows, late] = value
        return data

    return replace(whole, draw=draw, truth=math.nan)


# Listed before anything was judged: what no data analyst could find. Counted apart.
STRAIGHT = (
    "The best straight line is within four standard errors of the law at the late records (all seeds and "
    "records counted), yet its slope is more than 0.025 off the limit."
)
UNDECIDABLE: dict[str, str] = {
    "slow correction, hidden": STRAIGHT,
    "log factor, hidden": STRAIGHT,
    "crossover at the end, hidden": STRAIGHT,
    "floor at the end, hidden": STRAIGHT,
    "exp with power prefactor, hidden": "A pure exp(-c t^p) is within four standard errors of the law at the "
    "late records, yet its p is more than 0.025 off.",
    "stuck seeds, none in the sample": "A sample without a stuck seed does not show that there are any; at "
    "8 % that is every second sample of eight.",
    "failing seed, none in the sample": "A sample without a failing seed does not show that there are any; "
    "at 5 % that is two samples of eight seeds in three.",
}

FAMILIES: dict[str, Plant] = {
    "power": clean,
    "power, linear grid": refusable(lambda rng: clean(rng, grids=(linear_grid,))),
    "power, 20 to 40 records": refusable(lambda rng: clean(rng, grids=(sparse_grid,))),
    "shifted power, one-sided": clean_one_sided,
    "power, noise with memory in log t": forgetting,
    "power, shared shocks": shared,
    "power, shared shocks with memory": shared_memory,
    "power, very heavy tails": heavy,
    "power, chi-square noise": lambda rng: clean(
        rng, shocks=chi_square(rng.choice([3.0, 10.0])), noise=rng.uniform(0.1, 0.5)
    ),
    "power, spikes": lambda rng: clean(rng, shocks=spiking, noise=log_uniform(rng, 0.01, 0.1)),
    "power, skewed exponents per seed": own_slopes,
    "power, three basins": three_slopes,
    "power, stuck seeds, one in the sample": only(stuck, hidden=False),
    "stuck seeds, none in the sample": only(stuck, hidden=True),
    "spectrum of rates": spectrum,
    "shifted power": only(shifted, hidden=False),
    "sum of powers, b 0.25 to 1.2": only(lambda rng: two_powers(rng, 0.25, 1.2), hidden=False),
    "slow correction, b 0.1 to 0.25": only(lambda rng: two_powers(rng, 0.1, 0.25), hidden=False),
    "slow correction, hidden": only(lambda rng: two_powers(rng, 0.1, 0.25), hidden=True),
    "log factor": only(log_factor, hidden=False),
    "log factor, hidden": only(log_factor, hidden=True),
    "log log factor": only(log_log_factor, hidden=False),
    "saddle, left at own times": saddle,
    "warm-up hump": only(hump, hidden=False),
    "learning-rate drop early": only(lambda rng: drop(rng, 0.05, 0.25), hidden=False),
    "learning-rate drop in the middle": only(lambda rng: drop(rng, 0.4, 0.75), hidden=False),
    "crossover early": only(lambda rng: crossover(rng, 0.05, 0.3), hidden=False),
    "crossover in the middle": only(lambda rng: crossover(rng, 0.3, 0.65), hidden=False),
    "crossover at the end": only(lambda rng: crossover(rng, 0.7, 0.98), hidden=False),
    "crossover at the end, hidden": only(lambda rng: crossover(rng, 0.85, 1.1), hidden=True),
    "crossover beyond the records": lambda rng: crossover(rng, 1.1, 1.6, within=False),
    "floor in the records": only(lambda rng: floor(rng, 0.35, 0.75), hidden=False),
    "floor at the end": only(lambda rng: floor(rng, 0.75, 1.0), hidden=False),
    "floor at the end, hidden": only(lambda rng: floor(rng, 0.9, 1.2), hidden=True),
    "floor beyond the records": lambda rng: floor(rng, 1.2, 2.0, within=False),
    "features learnt in turn": features,
    "zigzag in log t": triangular,
    "swings that fade": fading_swings,
    "power cut off, claimed as a power": cut_off,
    "sizes": lambda rng: sizes(rng, "pure"),
    "sizes with an offset": only(lambda rng: sizes(rng, "offset"), hidden=False),
    "sizes, sum of powers": only(lambda rng: sizes(rng, "sum"), hidden=False),
    "3 to 6 sizes": lambda rng: sizes(rng, "pure", 3, 6),
    "stretched exponential": stretched,
    "exp with power prefactor": only(prefactor, hidden=False),
    "exp with power prefactor, hidden": only(lambda rng: prefactor(rng, 8, 0.5), hidden=True),
    "three exponentials": only(three_exponentials, hidden=False),
    "rivals": rival,
    "Weibull hitting time": lambda rng: hitting(rng, 0.002),
    "Weibull hitting time, censored": lambda rng: hitting(rng, rng.uniform(0.05, 0.45)),
    "most times censored": never,
    "log ratio": lambda rng: ratio(rng, censored=False),
    "log ratio, censored": lambda rng: ratio(rng, censored=True),
    "mean of normals": lambda rng: mean_of(rng, "normal"),
    "mean of lognormals": lambda rng: mean_of(rng, "lognormal"),
    "mean of exponentials": lambda rng: mean_of(rng, "exponential"),
    "mean of gammas": lambda rng: mean_of(rng, "gamma"),
    "mean of uniforms": lambda rng: mean_of(rng, "uniform"),
    "mean of t(3)": lambda rng: mean_of(rng, "t(3)"),
    "mean of chi-squares": lambda rng: mean_of(rng, "chi-square"),
    "mean of Weibulls": lambda rng: mean_of(rng, "Weibull"),
    "mean of betas near one": lambda rng: mean_of(rng, "beta"),
    "skewed mean, one-sided": skewed_one_sided,
    "share": share,
    "median": median,
    "failing seed of 15 to 30 %, enough seeds": lambda rng: failing(rng, sure=True),
    "failing seed, one in the sample": only(failing, hidden=False),
    "failing seed, none in the sample": only(failing, hidden=True),
    "basins of final losses": populations,
    "damaged": damaged,
}
