"""What the slides say of noisy MNIST: test losses of GD, SignGD and Adam against the scale of the noise.

Optimisers are compared at the same training loss, FIT, where each first comes to it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, wraps

import numpy as np
import xarray as xr

from descentlab.judging import (
    Broken,
    Claim,
    Datasets,
    Estimate,
    Interval,
    Mutant,
    Unsettled,
    check_finite,
    mean,
    setting,
)
from descentlab.papers.sign_descent.mnist.runs import NOISES, TITLES, runs

FIT = 0.05
PRESETS = ("mnist_tiny", "mnist_small", "mnist", "mnist_paper")


def noises(data: Mapping[str, xr.Dataset]) -> np.ndarray:
    """The scales of the noise."""
    return np.array([float(setting(data[f"sign_{i}"], "noise")) for i in range(len(NOISES))])


def fitted(run: xr.Dataset) -> np.ndarray:
    """Which seeds have brought their training loss to FIT."""
    return (run["training_loss"] <= FIT).any("step").values


def once_fit(run: xr.Dataset, what: str = "test_loss") -> np.ndarray:
    """A series where the training loss first comes to FIT, by seed; at the last record, if it does not.

    Between the records before and after, series are linear in the logarithm of the training loss.
    """
    loss, series = (run[name].transpose("seed", "step").values for name in ("training_loss", what))
    fit = loss <= FIT
    after = np.where(fit.any(axis=1), fit.argmax(axis=1), fit.shape[1] - 1)
    before = np.where(fit.any(axis=1), np.maximum(after - 1, 0), after)
    own = np.arange(len(fit))
    high, low = (np.log(np.maximum(loss[own, at], 1e-300)) for at in (before, after))
    share = np.where(high > low, (high - np.log(FIT)) / np.where(high > low, high - low, 1.0), 1.0)
    return (1 - share) * series[own, before] + share * series[own, after]


def losses(name: str, data: Mapping[str, xr.Dataset]) -> np.ndarray:
    """The test losses of an optimiser, by noise and seed."""
    return np.array([once_fit(data[f"{name}_{i}"]) for i in range(len(NOISES))])


def once_all_fit(measure: Callable[..., Estimate]) -> Callable[..., Estimate]:
    """A measure that is unsettled while a seed has not come to FIT; notes say how far it is."""

    @wraps(measure)
    def found(**data: xr.Dataset) -> Estimate:
        for run in data.values():
            check_finite(run["training_loss"])
        late = {name: run["training_loss"] for name, run in data.items() if not fitted(run).all()}
        estimate = measure(**data)
        if not late:
            return estimate
        reached = {f"{name}_training_loss": float(one.min("step").max()) for name, one in late.items()}
        return replace(estimate, spread=Unsettled(), lacks="more steps", notes={**estimate.notes, **reached})

    return found


def tested(data: Mapping[str, xr.Dataset]) -> dict[str, tuple[float, float]]:
    """The range of the noise."""
    return {"noise": (float(noises(data)[0]), float(noises(data)[-1]))}


def notes(data: Mapping[str, xr.Dataset], **by_name: np.ndarray) -> dict[str, float]:
    """Mean test losses by optimiser and noise."""
    return {
        f"{name}_at_noise_{noise:g}": float(own.mean())
        for name, found in by_name.items()
        for noise, own in zip(noises(data), found, strict=True)
    }


@once_all_fit
def loss_ratio(**data: xr.Dataset) -> Estimate:
    """The test loss of SignGD over that of GD, the geometric mean over noises."""
    sign, gd = losses("sign", data), losses("gd", data)
    found = np.exp(np.log(sign / gd).mean(axis=0))
    return mean(found, range=tested(data), notes=notes(data, sign=sign, gd=gd))


@once_all_fit
def growth(**data: xr.Dataset) -> Estimate:
    """What a doubling of the noise adds to the gap between SignGD and GD, by least squares."""
    sign, gd = losses("sign", data), losses("gd", data)
    if np.array_equal(sign, gd):
        raise Broken("SignGD and GD have the same test losses, seed by seed: were they different?")
    slopes = np.polyfit(np.log2(noises(data)), sign - gd, 1)[0]
    return mean(slopes, range=tested(data), notes=notes(data, sign=sign, gd=gd))


@once_all_fit
def nearness(**data: xr.Dataset) -> Estimate:
    """Where Adam's test loss lies between GD's (0) and SignGD's (1): a ratio of means over seeds and noises.

    Its interval is that of the linearised ratio. Where SignGD and GD do not differ, there is no between.
    """
    by_name = {name: losses(name, data) for name in ("adam", "sign", "gd")}
    adam, sign, gd = (found.sum(axis=0) for found in by_name.values())
    apart = mean(sign - gd)
    low, high = apart.interval()
    ratio = (adam - gd).mean() / (apart.value or np.inf)
    linear = ratio + (adam - gd - ratio * (sign - gd)) / (apart.value or np.inf)
    found = mean(linear, range=tested(data), notes=notes(data, **by_name))
    if low <= 0 <= high and apart.seeds > 1:
        return replace(found, spread=Unsettled(), lacks="SignGD and GD to differ")
    return found


def in_place_of(name: str, other: str) -> Mutant:
    """One optimiser's runs under another's name."""

    def alter(data: Datasets) -> Datasets:
        return {**data, **{f"{name}_{i}": data[f"{other}_{i}"] for i in range(len(NOISES))}}

    return Mutant(f"{TITLES[other]} in place of {TITLES[name]}", alter=alter)


def at_least_noise(data: Datasets) -> Datasets:
    """SignGD errs by 2 more where there is least noise."""
    run = data["sign_0"]
    return {**data, "sign_0": run.assign(test_loss=run["test_loss"] + 2.0)}


claim = partial(Claim, cite="Slides, noisy MNIST", presets=PRESETS)
WHERE = f"On noisy MNIST, at training loss {FIT}, "

CLAIMS = (
    claim(
        "mnist_gd_generalises_better",
        statement=WHERE + "the test loss of SignGD is at least 1.1 times that of GD.",
        measure=loss_ratio,
        predicts=Interval(low=1.1),
        runs=runs("gd", "sign"),
        mutants=(in_place_of("sign", "gd"),),
        margin="The slides give no number; a tenth more is what anyone would call better.",
    ),
    claim(
        "mnist_gap_grows_with_noise",
        statement=WHERE + "the gap between the test losses of SignGD and GD grows with the noise: its "
        "least-squares slope against the logarithm of the noise is positive.",
        measure=growth,
        predicts=Interval(low=0.0),
        runs=runs("gd", "sign"),
        mutants=(Mutant("a gap where there is least noise", alter=at_least_noise),),
        margin="Growth is a sign; no size of it is claimed.",
    ),
    claim(
        "mnist_adam_matches_sign_descent",
        statement=WHERE + "Adam's test loss is nearer to SignGD's than to GD's: (Adam - GD) / (SignGD - GD), "
        "both summed over noises, is between 1/2 and 3/2.",
        measure=nearness,
        predicts=Interval.around(1.0, 0.5),
        runs=runs("gd", "sign", "adam"),
        mutants=(in_place_of("adam", "gd"),),
        margin="Half way to GD is where Adam would be as near to the one as to the other.",
    ),
)
