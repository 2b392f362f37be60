"""Plants laws whose exponents are known, judges claims on them, and counts the wrong verdicts.

    .venv/bin/python benchmarks/calibrate_verdicts.py [--experiments N] [--json]

About half a minute for 300 experiments a family. Exits 1 if more than 1 % of all verdicts are wrong.

An experiment draws the law's constants, the horizon (2.5 to 5 decades), the records (60 to 200), the seeds
(1 to 16) and the noise (0 to 30 % a record), and a claim, true or false, with margin 0.1 or 0.05. The truth
is the limit of the local slope d log y / d log t, also where the records end before the limit is in sight.
One family is different: where the law bends only after the last record, no data could tell, and the truth is
the slope at the last record. A verdict is wrong if it is SUPPORTED and the truth lies outside the prediction,
or REFUTED and the truth lies inside. Where a NaN or a divergence is planted it is wrong unless it is BROKEN,
and elsewhere wrong if it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xarray as xr

from descentlab import judging
from descentlab.judging import Claim, Estimate, Interval, Outcome, around, judge, rivals

MOST_WRONG = 0.01
LEAST_POWER = 0.95
COLUMNS = ("SUPPORTED", "REFUTED", "UNDECIDED", "BROKEN", "wrong")
Rng = np.random.Generator


@dataclass(frozen=True)
class Experiment:
    """Recorded data, a claim on them, and the outcome that would be wrong (None if BROKEN is right)."""

    data: xr.Dataset
    claim: Claim
    wrong: Outcome | None


def series(rng: Rng, log_law: Callable[[np.ndarray], np.ndarray], **fixed: float) -> xr.Dataset:
    """Trajectories around exp(log_law(t)) with a prefactor per seed and noise per record."""
    setting = {
        "decades": rng.uniform(2.5, 5),
        "records": rng.integers(60, 200),
        "seeds": rng.choice([1, 2, 3, 4, 8, 16]),
        "noise": rng.choice([0.0, 0.01, 0.03, 0.1, 0.3]),
        "memory": 0.0,
        "tail": np.inf,
    } | fixed
    steps = np.unique(np.geomspace(1, 10 ** setting["decades"], int(setting["records"])).round())
    shape = (int(setting["seeds"]), steps.size)
    shocks = rng.standard_normal(shape)
    if np.isfinite(setting["tail"]):
        shocks = rng.standard_t(setting["tail"], shape)
    for i in range(1, steps.size):
        shocks[:, i] = (
            setting["memory"] * shocks[:, i - 1] + np.sqrt(1 - setting["memory"] ** 2) * shocks[:, i]
        )
    prefactor = rng.normal(0, 0.3, (shape[0], 1))
    values = np.exp(log_law(steps) + prefactor + setting["noise"] * shocks)
    return xr.Dataset({"loss": (("seed", "step"), values)}, coords={"step": steps})


def about(rng: Rng, truth: float, measure: Callable, reach: float = 0.5) -> tuple[Claim, Outcome]:
    """A claim near the truth, false in half of the cases, and the outcome that would be wrong."""
    margin = rng.choice([0.05, 0.1])
    true = rng.random() < 0.5
    offset = rng.uniform(0, 0.9 * margin) if true else margin + rng.uniform(0.02, reach)
    center = truth + rng.choice([-1, 1]) * offset
    claim = Claim("planted", "none", "The exponent is as claimed.", measure, around(center, margin))
    return claim, Outcome.REFUTED if true else Outcome.SUPPORTED


def exponent(run: xr.Dataset) -> Estimate:
    return judging.exponent(run["loss"])


def stretch(run: xr.Dataset) -> Estimate:
    return judging.stretch(run["loss"])


def power(
    rng: Rng, correction: Callable[[np.ndarray], np.ndarray] = np.zeros_like, **fixed: float
) -> Experiment:
    a = rng.uniform(0.2, 2)
    data = series(rng, lambda t: -a * np.log(t) + correction(t), **fixed)
    return Experiment(data, *about(rng, -a, exponent))


def textbook(rng: Rng) -> Experiment:
    """A pure law, four decades, 10 % noise, eight seeds, claimed exactly: this must be decided."""
    data = series(rng, lambda t: -np.log(t), decades=4, records=100, seeds=8, noise=0.1)
    claimed = around(rng.choice([-1.0, -0.7, -1.3]), 0.1)
    wrong = Outcome.REFUTED if claimed.holds(-1, -1) else Outcome.SUPPORTED
    return Experiment(data, Claim("planted", "none", "Textbook.", exponent, claimed), wrong)


def correction(rng: Rng) -> Experiment:
    c, b = rng.uniform(-0.8, 8), rng.uniform(0.2, 1.5)
    return power(rng, lambda t: np.log1p(c * t**-b))


def logarithm(rng: Rng) -> Experiment:
    q = rng.choice([-1.0, 1.0, 2.0])
    return power(rng, lambda t: q * np.log(np.log(t + 1)))


def periodic(rng: Rng) -> Experiment:
    height, period = rng.uniform(0.05, 0.5), rng.uniform(0.5, 4)
    return power(rng, lambda t: height * np.sin(2 * np.pi * np.log(t) / period))


def bend(rng: Rng, earliest: float, latest: float, within: bool) -> Experiment:
    """From slope -a to slope -b at t = T^place, as sharply as `sharp` says."""
    a, b = rng.uniform(0, 2, size=2) * rng.choice([0, 1], p=[0.1, 0.9], size=2)
    sharp, decades, place = rng.uniform(0.5, 4), rng.uniform(2.5, 5), rng.uniform(earliest, latest)
    turn = place * decades * np.log(10)

    def log_law(t: np.ndarray) -> np.ndarray:
        return -a * np.log(t) + (a - b) / sharp * np.logaddexp(0, sharp * (np.log(t) - turn))

    end = 1 / (1 + np.exp(-sharp * (decades * np.log(10) - turn)))
    truth = -b if within else -a + (a - b) * end
    data = series(rng, log_law, decades=decades)
    if rng.random() < 0.25:  # the claim that the bend makes false, and that one would like to believe
        claimed = around(-a, 0.1)
        wrong = Outcome.REFUTED if claimed.holds(truth, truth) else Outcome.SUPPORTED
        return Experiment(data, Claim("planted", "none", "Before the bend.", exponent, claimed), wrong)
    return Experiment(data, *about(rng, truth, exponent))


def scattered(rng: Rng) -> Experiment:
    """Every seed has its own exponent; the claim is about their mean."""
    a, seeds = rng.uniform(0.5, 2), int(rng.choice([2, 3, 4, 8, 16]))
    own = rng.normal(a, 0.1, size=(seeds, 1))
    data = series(rng, lambda t: -own * np.log(t), seeds=seeds)
    return Experiment(data, *about(rng, -a, exponent))


def faster(rng: Rng) -> Experiment:
    """Exponential decay has no exponent: a claim of one must not be SUPPORTED."""
    decades = rng.uniform(2.5, 4)
    folds = rng.uniform(0.5, 20)
    data = series(rng, lambda t: -folds * t / 10**decades, decades=decades)
    claimed = around(-rng.uniform(0, 2), 0.1)
    return Experiment(data, Claim("planted", "none", "A power.", exponent, claimed), Outcome.SUPPORTED)


def stretched(rng: Rng) -> Experiment:
    """exp(-c t^p), sometimes after a power-law transient, claims on p."""
    p, folds, decades = rng.choice([0.5, 1.0, 2.0]), rng.uniform(2, 30), rng.uniform(2.5, 4)
    transient = rng.choice([0.0, 1.0]) * rng.uniform(-1, 1)
    data = series(
        rng, lambda t: -folds * (t / 10**decades) ** p + transient * np.log1p(1 / np.sqrt(t)), decades=decades
    )
    return Experiment(data, *about(rng, p, stretch))


def mixture(rng: Rng) -> Experiment:
    """Two exponentials: the slow one rules in the end."""
    decades, folds, share = rng.uniform(2.5, 4), rng.uniform(2, 20), rng.uniform(0.1, 0.9)
    fast = folds * rng.uniform(3, 30)

    def log_law(t: np.ndarray) -> np.ndarray:
        u = t / 10**decades
        return np.logaddexp(np.log(share) - folds * u, np.log(1 - share) - fast * u)

    return Experiment(series(rng, log_law, decades=decades), *about(rng, 1.0, stretch))


def rival(rng: Rng) -> Experiment:
    """Which of two laws; the claim may name the wrong one."""
    pairs = {
        ("power", "log_power"): (lambda t: -np.log(t), lambda t: np.log(np.log(t + 1e-9)) - np.log(t)),
        ("exponential", "gaussian"): (lambda t: -8 * t / t[-1], lambda t: -8 * (t / t[-1]) ** 2),
    }
    names = list(pairs)[rng.integers(2)]
    planted = rng.integers(2)
    data = series(rng, pairs[names][planted]).isel(step=slice(1, None))
    claimed = rng.integers(2)
    wrong = Outcome.REFUTED if planted == claimed else Outcome.SUPPORTED

    def measure(run: xr.Dataset) -> Estimate:
        return rivals(run["loss"], names[claimed], names[1 - claimed])

    return Experiment(data, Claim("planted", "none", "Law fits better.", measure, Interval(0)), wrong)


def numbers(rng: Rng) -> Experiment:
    """Means, shares, medians and orders of per-seed numbers, claims near the truth."""
    seeds, kind = rng.choice([1, 2, 3, 4, 8, 16, 64]), rng.choice(["mean", "share", "median"])
    truth = rng.uniform(0.1, 0.9)
    deviation = rng.choice([0.01, 0.1, 1.0])
    samples = rng.random(seeds) < truth if kind == "share" else rng.normal(truth, deviation, seeds)
    data = xr.Dataset({"sample": (("seed", "step"), samples[:, None])})
    claim, wrong = about(rng, truth, lambda run: getattr(judging, kind)(run["sample"][:, 0]))
    return Experiment(data, claim, wrong)


def damaged(rng: Rng) -> Experiment:
    """A NaN, an infinity or a divergence somewhere: only BROKEN is right."""
    whole = power(rng)
    seed, step = rng.integers(whole.data.sizes["seed"]), rng.integers(whole.data.sizes["step"])
    kind = rng.choice(["nan", "inf", "diverged"])
    data = whole.data.copy(deep=True)
    if kind == "diverged":
        diverged = np.full(data.sizes["seed"], -1)
        diverged[seed] = int(data["step"][step])
        data["diverged_at"] = ("seed", diverged)
    else:
        data["loss"][seed, step] = float(kind)
    return Experiment(data, whole.claim, None)


FAMILIES: dict[str, Callable[[Rng], Experiment]] = {
    "textbook: 1/t, 4 decades, 10 % noise, 8 seeds": textbook,
    "t^-a": power,
    "t^-a, correlated noise": lambda rng: power(rng, memory=0.9),
    "t^-a, heavy-tailed noise": lambda rng: power(rng, tail=2),
    "t^-a, own exponent per seed": scattered,
    "t^-a (1 + c t^-b)": correction,
    "t^-a (log t)^q": logarithm,
    "t^-a, log-periodic": periodic,
    "bend inside the records": lambda rng: bend(rng, 0.2, 0.8, within=True),
    "bend at the end of the records": lambda rng: bend(rng, 0.8, 1.0, within=True),
    "bend beyond the records": lambda rng: bend(rng, 1.0, 1.5, within=False),
    "exponential, claimed as a power": faster,
    "exp(-c t^p)": stretched,
    "two exponentials": mixture,
    "rival laws": rival,
    "mean, share, median": numbers,
    "NaN, inf, diverged": damaged,
}


def calibrate(experiments: int, seed: int = 0) -> dict[str, dict[str, int]]:
    """Counts of outcomes per family, and of wrong ones."""
    counts = {}
    for index, (family, plant) in enumerate(FAMILIES.items()):
        tally: Counter[str] = Counter(dict.fromkeys(COLUMNS, 0))
        for i in range(experiments):
            experiment = plant(np.random.default_rng([seed, index, i]))
            outcome = judge(experiment.claim, experiment.data).outcome
            tally[str(outcome)] += 1
            broken = outcome == Outcome.BROKEN
            right = broken if experiment.wrong is None else outcome != experiment.wrong and not broken
            tally["wrong"] += not right
        counts[family] = dict(tally)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiments", type=int, default=300, help="per family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    counts = calibrate(arguments.experiments, arguments.seed)
    total = sum((Counter(tally) for tally in counts.values()), Counter())
    judged = arguments.experiments * len(FAMILIES)
    decided = total["SUPPORTED"] + total["REFUTED"]
    first = next(iter(counts.values()))
    power_share = (first["SUPPORTED"] + first["REFUTED"]) / arguments.experiments
    summary = {
        "experiments": judged,
        "wrong": total["wrong"],
        "wrong_share": total["wrong"] / judged,
        "wrong_share_of_decided": total["wrong"] / decided,
        "decided_share": decided / judged,
        "textbook_decided": power_share,
    }
    if arguments.json:
        print(json.dumps({"families": counts, **summary}, indent=2))
    else:
        print(f"| {'planted':<46} | " + " | ".join(COLUMNS) + " |")
        print(f"| {'-' * 46} | " + " | ".join("-" * (len(column) - 1) + ":" for column in COLUMNS) + " |")
        for family, tally in (*counts.items(), ("all", total)):
            print(f"| {family:<46} | " + " | ".join(f"{tally[c]:>{len(c)}}" for c in COLUMNS) + " |")
        print()
        print(*(f"{name}: {value:.4g}" for name, value in summary.items()), sep="\n")
    return int(summary["wrong_share"] > MOST_WRONG or power_share < LEAST_POWER)


if __name__ == "__main__":
    sys.exit(main())
