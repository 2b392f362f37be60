"""Judges planted experiments, scores the verdicts, and sums the scores of a family up.

A verdict is wrong if it is SUPPORTED and the truth lies outside the prediction, or REFUTED and the truth lies
inside. BROKEN where something could be measured, or another outcome where nothing could, is counted apart,
as `misread`. Beside stand two plain readings of the same data: Student's interval over seeds of the OLS
slope (or of what the measure is the mean of), and the percentile bootstrap over seeds of the same.
"""

from __future__ import annotations

import math
import statistics
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from scipy import stats

from calibration import shaped, unseen
from calibration.planting import Experiment, Plant, Rng, reach_of_mean
from descentlab.judging import Claim, Estimate, Outcome, judge

PARTS = {"shaped": shaped, "unseen": unseen}
DECIDED = (Outcome.SUPPORTED, Outcome.REFUTED)
OUTCOMES = ("SUPPORTED", "REFUTED", "UNDECIDED", "BROKEN")
RESAMPLES = 400
# The share of decided verdicts of a family that may be wrong, and how sure one is that more are.
MOST_WRONG = 0.05
SURE = 1e-3
# Plain intervals below this width are rounding, and no measure for the width of others.
LEAST_WIDTH = 1e-6
# Rounding of a truth that an interval without width should still cover.
ROUNDING = 1e-9

Result = TypeVar("Result")


@dataclass(frozen=True)
class Reading:
    """An interval at 95 %, whether it covers the truth (None without a truth), and what it says."""

    low: float
    high: float
    covers: bool | None
    decides: bool
    wrong: bool

    @property
    def width(self) -> float:
        """From end to end."""
        return self.high - self.low


@dataclass(frozen=True)
class Score:
    """The outcome of a claim, whether it is wrong or misread, and readings by the measure and plainly."""

    outcome: str
    wrong: bool
    misread: bool
    own: Reading | None
    ols: Reading | None
    bootstrap: Reading | None


def families(part: str, words: Iterable[str] = ()) -> dict[str, Plant]:
    """The families of a part, or those whose names contain one of the words."""
    words = tuple(words)
    return {
        name: plant
        for name, plant in PARTS[part].FAMILIES.items()
        if not words or any(word in name for word in words)
    }


def decidable(part: str) -> dict[str, Plant]:
    """The families in which the data can tell, and something can be measured."""
    left_out = {*PARTS[part].UNDECIDABLE, "NaN, inf, diverged", "damaged"}
    return {name: plant for name, plant in families(part).items() if name not in left_out}


def generator(part: str, family: str, seed: int, i: int) -> Rng:
    """The generator of one experiment, whichever others are planted."""
    return np.random.default_rng([seed, zlib.crc32(f"{part}/{family}".encode()), i])


def measured(claim: Claim) -> tuple[Claim, list[Estimate]]:
    """The same claim, and a list that gets the estimates that judging it takes."""
    taken: list[Estimate] = []

    def measure(*run: Any, **runs: Any) -> Estimate:
        taken.append(claim.measure(*run, **runs))
        return taken[-1]

    return replace(claim, measure=measure), taken


def score(experiment: Experiment, rng: Rng) -> Score:
    """Judges the claim of an experiment, and reads the data plainly."""
    data = experiment.data
    claim, taken = measured(experiment.claim)
    outcome = judge(claim, data).outcome
    false = outcome in experiment.wrong
    own = reading(experiment, *taken[-1].interval(0.95)) if taken else None
    ols = bootstrap = None
    if experiment.plain is not None and experiment.seeds > 1 and not math.isnan(experiment.truth):
        samples = experiment.plain(data)
        if experiment.centre is np.mean:
            half = reach_of_mean(float(samples.std(ddof=1)), samples.size)
            ols = reading(experiment, samples.mean() - half, samples.mean() + half)
        drawn = samples[rng.integers(samples.size, size=(RESAMPLES, samples.size))]
        centres = np.sort(experiment.centre(drawn, axis=1))
        tail = round(0.025 * RESAMPLES)
        bootstrap = reading(experiment, centres[tail - 1], centres[-tail])
    decided = outcome in DECIDED
    return Score(str(outcome), false and decided, false and not decided, own, ols, bootstrap)


def reading(experiment: Experiment, low: float, high: float) -> Reading:
    """What an interval says about the prediction, and whether that is wrong."""
    low, high, truth = float(low), float(high), experiment.truth
    covers = None
    if math.isfinite(truth):
        slack = ROUNDING * (1 + abs(truth))
        covers = low - slack <= truth <= high + slack
    held, missed = experiment.predicts.holds(low, high), experiment.predicts.misses(low, high)
    wrong = (held and not experiment.true) or (missed and experiment.true)
    return Reading(low, high, covers, held or missed, wrong)


def score_some(part: str, family: str, seed: int, first: int, end: int) -> list[Score]:
    """The scores of some experiments of a family."""
    scores: list[Score] = []
    for i in range(first, end):
        rng = generator(part, family, seed, i)
        scores.append(score(PARTS[part].FAMILIES[family](rng), rng))
    return scores


def spread(task: Callable[..., Result], arguments: Sequence[tuple[Any, ...]], jobs: int) -> list[Result]:
    """The results of a task for each tuple of arguments, in this process or in several."""
    if jobs == 1:
        return [task(*own) for own in arguments]
    with ProcessPoolExecutor(jobs) as pool:
        return [future.result() for future in [pool.submit(task, *own) for own in arguments]]


def calibrate(
    part: str, experiments: int, seed: int = 0, words: Iterable[str] = (), jobs: int = 1
) -> dict[str, dict[str, Any]]:
    """The summary of each family of a part."""
    names = list(families(part, words))
    edges = [*range(0, experiments, 50), experiments]
    chunks = [
        (part, name, seed, first, end) for name in names for first, end in pairwise(edges) if end > first
    ]
    scores: dict[str, list[Score]] = {name: [] for name in names}
    for chunk, found in zip(chunks, spread(score_some, chunks, jobs), strict=True):
        scores[chunk[1]] += found
    return {name: summary(own) for name, own in scores.items()}


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """Counts and shares over experiments; a share of nothing is None."""
    counts = Counter(own.outcome for own in scores)
    decided = counts["SUPPORTED"] + counts["REFUTED"]
    wrong = sum(own.wrong for own in scores)
    widths = [
        own.own.width / own.ols.width
        for own in scores
        if own.own is not None and own.ols is not None and own.ols.width > LEAST_WIDTH
    ]
    ratio = statistics.median(widths) if widths else None
    return {
        "experiments": len(scores),
        **{outcome: counts[outcome] for outcome in OUTCOMES},
        "decided": decided,
        "wrong": wrong,
        "misread": sum(own.misread for own in scores),
        "decided_share": decided / len(scores),
        "wrong_of_decided": part_of(wrong, decided),
        **coverage([own.own for own in scores]),
        # An infinite ratio is not JSON.
        "width_to_ols": ratio if ratio is None or math.isfinite(ratio) else "inf",
        "ols": readings([own.ols for own in scores]),
        "bootstrap": readings([own.bootstrap for own in scores]),
    }


def coverage(found: Iterable[Reading | None]) -> dict[str, Any]:
    """How often intervals cover the truth, of all and of those with two ends."""
    known = [own for own in found if own is not None and own.covers is not None]
    bounded = [own for own in known if math.isfinite(own.width)]
    return {
        "coverage": part_of(sum(bool(own.covers) for own in known), len(known)),
        "bounded_share": part_of(len(bounded), len(known)),
        "coverage_of_bounded": part_of(sum(bool(own.covers) for own in bounded), len(bounded)),
    }


def readings(found: Iterable[Reading | None]) -> dict[str, Any]:
    """Shares of plain readings: decided, wrong of decided, covering the truth."""
    known = [own for own in found if own is not None]
    decided, wrong = sum(own.decides for own in known), sum(own.wrong for own in known)
    return {
        "experiments": len(known),
        "decided_share": part_of(decided, len(known)),
        "wrong_of_decided": part_of(wrong, decided),
        "coverage": coverage(known)["coverage"],
    }


def part_of(count: int, whole: int) -> float | None:
    return count / whole if whole else None


def too_wrong(found: dict[str, Any]) -> bool:
    """Whether clearly more decided verdicts are wrong than may be, by a binomial test."""
    if found["decided"] == 0:
        return False
    test = stats.binomtest(found["wrong"], found["decided"], MOST_WRONG, alternative="greater")
    return bool(test.pvalue < SURE)


def total(found: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The counts of several families together."""
    found = list(found)
    sums = {key: sum(own[key] for own in found) for key in ("experiments", "decided", "wrong", "misread")}
    return sums | {
        "decided_share": part_of(sums["decided"], sums["experiments"]),
        "wrong_of_decided": part_of(sums["wrong"], sums["decided"]),
    }
