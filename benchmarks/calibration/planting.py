"""What planted experiments share: data that grow with the seeds, a prediction near the truth, plain readings.

An experiment is a law with known constants, a number of seeds, and a prediction about a number whose true
value is known. Its data can be drawn again with more seeds, of which the first stay as they are.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from scipy import signal, special

from descentlab import judging
from descentlab.judging import Claim, Estimate, Interval, Outcome, around, at_least, at_most

Rng = np.random.Generator
Draw = Callable[[int], xr.Dataset]
Plant = Callable[[Rng], "Experiment"]
Law = Callable[[np.ndarray], np.ndarray]

# A departure from the fitted law is seen from so many standard errors on, by the best test there is.
SEEN = 4.0
# A limit that is closer than this to what the late records show does no harm if it is not seen.
HARMLESS = 0.025


@dataclass(frozen=True)
class Streams:
    """A generator for each name, always the same: draws by rows, one a seed, keep their first rows."""

    root: int

    @classmethod
    def of(cls, rng: Rng) -> Streams:
        """Streams of their own for an experiment."""
        return cls(int(rng.integers(2**62)))

    def __call__(self, name: str) -> Rng:
        """The generator of this name, from its beginning."""
        return np.random.default_rng([self.root, zlib.crc32(name.encode())])


Shocks = Callable[[Streams, int, np.ndarray], np.ndarray]  # (streams, seeds, steps) -> (seeds, steps)


@dataclass(frozen=True)
class Experiment:
    """Data to draw, a measure and what is predicted of it, and the truth.

    `truth` is the number that the measure is after. It is infinite where there is no such number but the
    prediction is plainly true (it contains the infinity) or false, and NaN where nothing can be measured, so
    that only BROKEN is right. Elsewhere BROKEN is wrong, unless the experiment is `refusable`: too little is
    recorded. `plain` gives a number a seed, as one would read it without care, and `centre` what is taken of
    these numbers. `hidden` says that no data could tell the truth.
    """

    draw: Draw
    seeds: int
    measure: Callable[[xr.Dataset], Estimate]
    predicts: Interval
    truth: float
    plain: Callable[[xr.Dataset], np.ndarray] | None = None
    refusable: bool = False
    hidden: bool = False
    centre: Callable[..., np.ndarray] = np.mean

    @property
    def data(self) -> xr.Dataset:
        """The recorded data."""
        return self.draw(self.seeds)

    @property
    def claim(self) -> Claim:
        """What is claimed."""
        return Claim("planted", "none", "The number is as claimed.", self.measure, self.predicts)

    @property
    def true(self) -> bool:
        """Whether the prediction holds."""
        return self.predicts.holds(self.truth, self.truth)

    @property
    def wrong(self) -> frozenset[Outcome]:
        """The outcomes that would be wrong."""
        if math.isnan(self.truth):
            return frozenset({Outcome.SUPPORTED, Outcome.REFUTED, Outcome.UNDECIDED})
        false = Outcome.REFUTED if self.true else Outcome.SUPPORTED
        return frozenset({false} if self.refusable else {false, Outcome.BROKEN})

    @property
    def clearance(self) -> float:
        """How far the truth is from an edge of the prediction, in margins; 0 where there is no margin."""
        low, high = self.predicts.low, self.predicts.high
        if math.isinf(self.truth):
            return math.inf
        if math.isinf(low) or math.isinf(high):
            return 0.0
        return min(abs(self.truth - low), abs(self.truth - high)) / ((high - low) / 2)


def about(
    rng: Rng,
    truth: float,
    margin: float | None = None,
    reach: float = 0.5,
    least: float = 0.02,
    sides: int = 2,
) -> Interval:
    """A prediction near the truth, false in half of the cases.

    The truth is up to 0.9 margins from the centre, or outside by `least` to `reach`. With one side, the
    prediction is a half line, and the truth is up to a margin inside or, as before, outside.
    """
    margin = float(rng.choice([0.05, 0.1])) if margin is None else margin
    true = rng.random() < 0.5
    sign = rng.choice([-1, 1])
    inside, outside = rng.uniform(0, 0.9 * margin), rng.uniform(least, reach)
    if sides == 1:
        edge = truth - sign * (margin - inside if true else -outside)
        return at_least(edge) if sign > 0 else at_most(edge)
    return around(truth + sign * (inside if true else margin + outside), margin)


def only(plant: Plant, hidden: bool) -> Plant:
    """The experiments of a family in which the limit is hidden from every data analyst, or is not."""

    def planted(rng: Rng) -> Experiment:
        for _ in range(10_000):
            experiment = plant(rng)
            if experiment.hidden == hidden:
                return experiment
        raise RuntimeError(f"{plant} never plants an experiment with hidden={hidden}.")

    return planted


# --- trajectories ---


def normal(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
    """White noise."""
    return streams("shocks").standard_normal((seeds, steps.size))


def remembering(shocks: np.ndarray, memory: float) -> np.ndarray:
    """AR(1) along each row, stationary, of the variance of the shocks."""
    scaled = shocks * math.sqrt(1 - memory**2)
    scaled[..., 0] = shocks[..., 0]
    return np.asarray(signal.lfilter([1.0], [1.0, -memory], scaled, axis=-1))


@dataclass(frozen=True)
class Series:
    """Trajectories exp(law + each + noise · shocks) at the steps; `each` is what seeds have of their own."""

    steps: np.ndarray
    law: np.ndarray
    seeds: int
    noise: float
    streams: Streams
    shocks: Shocks = normal
    each: Shocks | None = None
    prefactor: float = 0.3

    def __call__(self, seeds: int) -> xr.Dataset:
        """The data of so many seeds."""
        log_y = self.law + self.noise * self.shocks(self.streams, seeds, self.steps)
        log_y = log_y + self.prefactor * self.streams("prefactor").standard_normal((seeds, 1))
        if self.each is not None:
            log_y = log_y + self.each(self.streams, seeds, self.steps)
        return xr.Dataset({"loss": (("seed", "step"), np.exp(log_y))}, coords={"step": self.steps})

    def hides(self, limit: float, stretched: bool = False) -> bool:
        """Whether no data could tell the limit: a plain law fits as well, and its constant is another.

        A plain law is a power, or an exponential of a power. It fits as well if the best one is within
        `SEEN` standard errors of the law at the late records, all seeds and records counted.
        """
        inside = _late(self.steps)
        t, log_y = self.steps[inside], self.law[None, inside]
        if stretched:
            latest = t >= math.sqrt(t[0] * t[-1])
            shown, fitted = best_stretches(t[latest], log_y[:, latest])[0], best_stretches(t, log_y)[0]
            x = special.boxcox(t / t[-1], fitted)
        else:
            latest = t >= t[0] ** (1 / 3) * t[-1] ** (2 / 3)
            shown, x = ols(np.log(t[latest]), log_y[:, latest])[0], np.log(t)
        centred = x - x.mean()
        rest = log_y[0] - log_y.mean() - ols(x, log_y)[0] * centred
        unseen = float(np.linalg.norm(rest)) * math.sqrt(self.seeds) < SEEN * self.noise
        return unseen and abs(shown - limit) > HARMLESS


def ar1(memory: float) -> Shocks:
    """AR(1) noise, from record to record."""
    return lambda streams, seeds, steps: remembering(normal(streams, seeds, steps), memory)


def _late(steps: np.ndarray) -> np.ndarray:
    positive = steps[steps > 0]
    return steps >= positive[0] ** 0.75 * positive[-1] ** 0.25


def with_common(own: Shocks, share: float, memory: float = 0.0) -> Shocks:
    """Shocks of which all seeds share one at each record, with this share of the variance."""

    def shocks(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
        common = remembering(streams("common").standard_normal(steps.size), memory)
        return math.sqrt(1 - share) * own(streams, seeds, steps) + math.sqrt(share) * common

    return shocks


# --- what is measured, and how one would read it plainly ---


def exponent(run: xr.Dataset) -> Estimate:
    return judging.exponent(run["loss"])


def stretch(run: xr.Dataset) -> Estimate:
    return judging.stretch(run["loss"])


def ols(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least-squares slope of each row of y against x."""
    x = x - x.mean()
    return y @ x / (x @ x)


def plain_slopes(run: xr.Dataset) -> np.ndarray:
    """The log-log slope of each seed over the last three quarters of the range of log t."""
    steps = run["step"].values.astype(float)
    inside = _late(steps)
    return ols(np.log(steps[inside]), np.log(run["loss"].values[:, inside]))


def plain_stretches(run: xr.Dataset) -> np.ndarray:
    """The p of the best exp(-c t^p) of each seed over the same records."""
    steps = run["step"].values.astype(float)
    inside = _late(steps)
    return best_stretches(steps[inside], np.log(run["loss"].values[:, inside]))


def plain_samples(run: xr.Dataset) -> np.ndarray:
    return run["sample"].values[:, 0].astype(float)


def best_stretches(steps: np.ndarray, log_y: np.ndarray) -> np.ndarray:
    """The p of each row for which log y = a - c t^p fits best: a grid, then golden sections."""
    times, y = steps / steps[-1], log_y - log_y.mean(axis=1, keepdims=True)

    def fit(p: np.ndarray) -> np.ndarray:
        x = special.boxcox(times, p[:, None])
        x = x - x.mean(axis=1, keepdims=True)
        return np.sum(x * y, axis=1) ** 2 / np.sum(x * x, axis=1)

    grid = np.linspace(-1, 4, 51)
    x = special.boxcox(times, grid[:, None])
    x = x - x.mean(axis=1, keepdims=True)
    best = grid[np.argmax((y @ x.T) ** 2 / np.sum(x * x, axis=1), axis=1)]
    low, high, golden = best - 0.1, best + 0.1, (math.sqrt(5) - 1) / 2
    for _ in range(25):
        left, right = high - golden * (high - low), low + golden * (high - low)
        up = fit(left) < fit(right)
        low, high = np.where(up, left, low), np.where(up, high, right)
    return (low + high) / 2


def local_slope(law: Law, t: float) -> float:
    """d log y / d log t of a law log y."""
    before, after = law(np.array([t * math.exp(-1e-4), t * math.exp(1e-4)]))
    return float(after - before) / 2e-4


def of_power(rng: Rng, course: Series, truth: float, predicts: Interval | None = None) -> Experiment:
    """A claim on the limit of the slope of trajectories, by default near it."""
    predicts = predicts or about(rng, truth)
    hidden = course.hides(truth) if math.isfinite(truth) else False
    return Experiment(course, course.seeds, exponent, predicts, truth, plain_slopes, hidden=hidden)


def of_stretch(rng: Rng, course: Series, truth: float) -> Experiment:
    """A claim on the p of exp(-c t^p) of trajectories, near the true one."""
    hidden = course.hides(truth, stretched=True)
    return Experiment(course, course.seeds, stretch, about(rng, truth), truth, plain_stretches, hidden=hidden)


def refusable(plant: Plant) -> Plant:
    """The same family where BROKEN is a fair answer: too little is recorded."""
    return lambda rng: replace(plant(rng), refusable=True)


# --- a number a seed ---

Sampler = Callable[[Rng, int], np.ndarray]


@dataclass(frozen=True)
class Samples:
    """Data of one number a seed. A sampler of several draws a seed makes them in one array, a row a seed."""

    streams: Streams
    sampler: Sampler

    def __call__(self, seeds: int) -> xr.Dataset:
        """The data of so many seeds."""
        values = self.sampler(self.streams("sample"), seeds)
        return xr.Dataset({"sample": (("seed", "step"), values[:, None])})


def samples(rng: Rng, sampler: Sampler) -> Samples:
    """Data of one number a seed, drawn from streams of their own."""
    return Samples(Streams.of(rng), sampler)


def reach_of_mean(deviation: float, seeds: int) -> float:
    """Half the width that a 95 % interval of the mean of so many normal samples has."""
    return -float(special.stdtrit(seeds - 1, 0.025)) * deviation / math.sqrt(seeds)


def of_mean(
    rng: Rng, sampler: Sampler, truth: float, deviation: float, seeds: int, sides: int = 2
) -> Experiment:
    """A claim on a mean over seeds, with a margin of 0.1 to 2.5 times what so many seeds resolve.

    Narrow margins can only be refuted, and then show how often an interval misses a true mean.
    """
    unit = reach_of_mean(deviation, seeds)
    margin = unit * float(np.exp(rng.uniform(math.log(0.1), math.log(2.5))))
    predicts = about(rng, truth, margin, 2 * unit, 0.05 * unit, sides)
    return Experiment(samples(rng, sampler), seeds, mean_sample, predicts, truth, plain_samples)


def streams_of(experiment: Experiment) -> Streams:
    """The streams that its samples are drawn from."""
    if not isinstance(experiment.draw, Samples):
        raise TypeError(f"The experiment must be on samples, got {experiment.draw}.")
    return experiment.draw.streams


def mean_sample(run: xr.Dataset) -> Estimate:
    return judging.mean(run["sample"][:, 0])


def share_sample(run: xr.Dataset) -> Estimate:
    return judging.share(run["sample"][:, 0])


def median_sample(run: xr.Dataset) -> Estimate:
    return judging.median(run["sample"][:, 0])


# --- times at which a level is reached ---


def hits(rng: Rng, steps: np.ndarray, times: Callable[[Streams, int], np.ndarray], sharp: float) -> Draw:
    """Series 1 / (1 + (t/τ)^sharp), which falls to one half at each seed's own time τ; columns of times
    are variables first, second."""
    streams = Streams.of(rng)

    def draw(seeds: int) -> xr.Dataset:
        tau = times(streams, seeds).reshape(seeds, -1)
        falling = special.expit(-sharp * (np.log(steps) - np.log(tau)[..., None]))
        names = ("first", "second")[: tau.shape[1]]
        return xr.Dataset(
            {name: (("seed", "step"), falling[:, i]) for i, name in enumerate(names)}, coords={"step": steps}
        )

    return draw


def hitting_time(run: xr.Dataset) -> Estimate:
    return judging.hitting_time(run["first"], below=0.5)


def plain_times(run: xr.Dataset) -> np.ndarray:
    """The first record below; the last record where there is none."""
    return judging.first_step(run["first"], below=0.5, never=float(run["step"][-1]))


def log_ratio(run: xr.Dataset) -> Estimate:
    """Mean of log(second / first) of the times, each up to the gap between records."""
    steps = run["step"].values
    first, second = (judging.first_step(run[name], below=0.5) for name in ("first", "second"))
    gap = judging.log_gap(first, steps) + judging.log_gap(second, steps)
    return judging.log_ratio(second, first, float(steps[-1]), gap)


def plain_ratios(run: xr.Dataset) -> np.ndarray:
    last = float(run["step"][-1])
    first, second = (judging.first_step(run[name], below=0.5, never=last) for name in ("first", "second"))
    return np.log(second / first)


# --- a number a seed and size ---


def of_sizes(
    rng: Rng, sizes: np.ndarray, log_law: Law, truth: float, seeds: int, noise: float, shocks: Shocks = normal
) -> Experiment:
    """A claim on the exponent in a size of exp(log_law), with noise a seed and size."""
    streams = Streams.of(rng)
    law = log_law(sizes)

    def draw(seeds: int) -> xr.Dataset:
        values = np.exp(law + noise * shocks(streams, seeds, sizes))
        return xr.Dataset(
            {"value": (("seed", "step", "size"), values[:, None])}, coords={"size": sizes, "step": [1]}
        )

    def measure(run: xr.Dataset) -> Estimate:
        values = run["value"].values[:, 0]
        columns = [np.full(values.shape[0], size) for size in run["size"].values]
        return judging.size_exponent("N", columns, list(values.T))

    def plain(run: xr.Dataset) -> np.ndarray:
        return ols(np.log(run["size"].values), np.log(run["value"].values[:, 0]))

    rest = law - law.mean() - ols(np.log(sizes), law[None])[0] * (np.log(sizes) - np.log(sizes).mean())
    third = max(2, sizes.size // 3)
    shown = float(ols(np.log(sizes[-third:]), law[None, -third:])[0])
    unseen = float(np.linalg.norm(rest)) * math.sqrt(seeds) < SEEN * noise
    hidden = unseen and abs(shown - truth) > HARMLESS
    return Experiment(draw, seeds, measure, about(rng, truth), truth, plain, sizes.size < 7, hidden)
