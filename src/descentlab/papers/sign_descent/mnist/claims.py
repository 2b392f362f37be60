"""What the slides say of noisy MNIST: test losses of GD, SignGD and Adam against the scale of the noise.

Optimisers are compared at the same training loss: the record at which each first brings it to FIT.
"""

from collections.abc import Callable, Mapping

import numpy as np
import xarray as xr

from descentlab.claim import Claim, Datasets, Mutant
from descentlab.estimate import Broken, Estimate, Interval, mean
from descentlab.papers.sign_descent.mnist.runs import NOISES, TITLES, runs

FIT = 0.05
PRESETS = ("mnist_tiny", "mnist_small", "mnist", "mnist_paper")
RANGE = {"noise": (NOISES[0], NOISES[-1])}


def once_fit(run: xr.Dataset, what: str = "test_loss") -> np.ndarray:
    """A series at the first record with training loss FIT or less, by seed."""
    fit = (run["training_loss"] <= FIT).transpose("seed", "step").values
    if not fit.any(axis=1).all():
        least = float(run["training_loss"].min("step").max())
        raise Broken(
            f"the training loss does not come to {FIT} in every seed; in one, not below {least:.3g}."
        )
    return run[what].transpose("seed", "step").values[np.arange(len(fit)), fit.argmax(axis=1)]


def losses(name: str, data: Mapping[str, xr.Dataset]) -> np.ndarray:
    """The test losses of an optimiser, by noise and seed."""
    return np.array([once_fit(data[f"{name}_{i}"]) for i in range(len(NOISES))])


def notes(**by_name: np.ndarray) -> dict[str, float]:
    """Mean test losses by optimiser and noise."""
    return {
        f"{name}_at_noise_{noise:g}": float(own.mean())
        for name, found in by_name.items()
        for noise, own in zip(NOISES, found, strict=True)
    }


def loss_ratio(**data: xr.Dataset) -> Estimate:
    """The test loss of SignGD over that of GD, the geometric mean over noises."""
    sign, gd = losses("sign", data), losses("gd", data)
    return mean(np.exp(np.log(sign / gd).mean(axis=0)), range=RANGE, notes=notes(sign=sign, gd=gd))


def growth(**data: xr.Dataset) -> Estimate:
    """What a doubling of the noise adds to the gap between SignGD and GD, by least squares."""
    sign, gd = losses("sign", data), losses("gd", data)
    slopes = np.polyfit(np.log2(NOISES), sign - gd, 1)[0]
    return mean(slopes, range=RANGE, notes=notes(sign=sign, gd=gd))


def nearness(**data: xr.Dataset) -> Estimate:
    """Where Adam's test loss lies between GD's (0) and SignGD's (1), both summed over noises."""
    adam, sign, gd = (losses(name, data).sum(axis=0) for name in ("adam", "sign", "gd"))
    found = notes(**{name: losses(name, data) for name in ("adam", "sign", "gd")})
    return mean((adam - gd) / (sign - gd), range=RANGE, notes=found)


def in_place_of(name: str, other: str) -> Mutant:
    """One optimiser's runs under another's name."""

    def alter(data: Datasets) -> Datasets:
        return {**data, **{f"{name}_{i}": data[f"{other}_{i}"] for i in range(len(NOISES))}}

    return Mutant(f"{TITLES[other]} in place of {TITLES[name]}", alter=alter)


def at_least_noise(data: Datasets) -> Datasets:
    """SignGD errs by 2 more where there is least noise."""
    run = data["sign_0"]
    return {**data, "sign_0": run.assign(test_loss=run["test_loss"] + 2.0)}


def claim(
    name: str,
    statement: str,
    measure: Callable[..., Estimate],
    predicts: Interval,
    mutant: Mutant,
    margin: str,
    optimizers: tuple[str, ...] = ("gd", "sign"),
) -> Claim:
    """A claim about noisy MNIST."""
    return Claim(
        name, "Slides, noisy MNIST", f"On noisy MNIST, at training loss {FIT}, {statement}", measure,
        predicts,
        runs=runs(*optimizers), mutants=(mutant,), presets=PRESETS, margin=margin,
    )  # fmt: skip


CLAIMS = (
    claim(
        "mnist_gd_generalises_better",
        "the test loss of SignGD is at least 1.1 times that of GD.",
        loss_ratio,
        Interval(low=1.1),
        in_place_of("sign", "gd"),
        "The slides give no number; a tenth more is what anyone would call better.",
    ),
    claim(
        "mnist_gap_grows_with_noise",
        "the gap between the test losses of SignGD and GD grows with the noise: its least-squares slope "
        "against the logarithm of the noise is positive.",
        growth,
        Interval(low=0.0),
        Mutant("a gap where there is least noise", alter=at_least_noise),
        "Growth is a sign; no size of it is claimed.",
    ),
    claim(
        "mnist_adam_matches_sign_descent",
        "Adam's test loss is nearer to SignGD's than to GD's: (Adam - GD) / (SignGD - GD), both summed over "
        "noises, is between 1/2 and 3/2.",
        nearness,
        Interval.around(1.0, 0.5),
        in_place_of("adam", "gd"),
        "Half way to GD is where Adam would be as near to the one as to the other.",
        ("gd", "sign", "adam"),
    ),
)
