"""Claims over sizes: how stage times depend on them, and which optimiser generalises where.

A sign step moves every weight by eta. So products with noise, which start at sigma_0 sigma_p sqrt(s), gain
eta s sigma_p sqrt(2/pi) a step once their signs agree, whatever m_k: signs are set at

    T2 ~ sigma_0 / (eta sqrt(s))

and from then on both <w_Q,s, y_i xi_i> and <w_K,s, y_i xi_i> are about eta s sigma_p t. Noise looks away from
the signal when their product, summed over m_k neurons, is of order one:

    T4 ~ 1 / (eta s sigma_p sqrt(m_k))

The slides give neither; both are derived here, and judged by sweeps. The other times are drawn beside them.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
import xarray as xr

from descentlab.judging import (
    Broken,
    Estimate,
    Grid,
    Mutant,
    around,
    at_least,
    data_mutant,
    mean,
    setting,
    size_exponent,
    theorem,
    times,
)
from descentlab.papers import Study
from descentlab.papers.sign_descent import Preset
from descentlab.papers.sign_descent.stages import stage_time
from descentlab.papers.sign_descent.theorems import ADAM, GD, SIGN_ONLY, Overrides

# ---------------------------------------------------------------- stage times

SIZES = {
    name: Grid(name, [{name: times(float(2 ** (i / 2)))} for i in range(-3, 4)], {"detail": False})
    for name in ("s", "sigma_p", "m_k", "sigma_0", "eta")
}
DERIVED = {
    "T2": {"s": -0.5, "sigma_p": 0.0, "m_k": 0.0, "sigma_0": 1.0, "eta": -1.0},
    "T4": {"s": -1.0, "sigma_p": -1.0, "m_k": -0.5, "sigma_0": 0.0, "eta": -1.0},
}
# T2 counts many steps, sums over many coordinates, and sees little of the signal (the slides' low
# signal-noise ratio) where s, sigma_p and sigma_0 are large and eta is small; it is long before T4 where m_k
# is small. T4 is after everything of order sigma_0 / eta where all sizes are small.
GROWING = {"T2": ("s", "sigma_p", "sigma_0"), "T4": ()}
WORDS = {
    "T2": "Query and key noise agree in sign for 95 % of all neurons and samples at a time that goes like",
    "T4": "Noise-signal softmax outputs fall to 0.05 at a time that goes like",
}

scaling = theorem("derived from sign steps", kind="ours", assumes=SIGN_ONLY, presets=("stage_times",))


def exponent_of(time: str, size: str, **runs: xr.Dataset) -> Estimate:
    """The exponent of a stage time in a size."""
    steps = [stage_time(time, run) for run in runs.values()]
    for run, own in zip(runs.values(), steps, strict=True):
        if not np.isfinite(own).all():
            raise Broken(f"{time} is not reached in every seed at {size} = {setting(run, size):g}.")
    sizes = [np.full(steps[0].size, setting(run, size)) for run in runs.values()]
    return size_exponent(size, sizes, steps)


def towards(time: str, size: str) -> dict[str, Overrides]:
    """The runs over a size, in the direction of the regime in which a time's power is derived."""
    runs = list(SIZES[size].runs.items())
    return dict(runs if size in GROWING[time] else reversed(runs))


def by_another_power(run: xr.Dataset, size: str) -> xr.Dataset:
    """The run by a clock that is faster by the square of a size."""
    return run.assign_coords(step=run["step"] * setting(run, size) ** 2)


for _time, _event in {"T2": "alignment", "T4": "softmax"}.items():
    for _size, _power in DERIVED[_time].items():
        scaling.claim(
            name=f"{_event}_time_in_{_size}",
            statement=f"{WORDS[_time]} {_size}^{_power:g}.",
            predicts=around(_power, 0.1),
            margin="Powers are multiples of one half; a tenth leaves room for finite sizes and tells them "
            "apart.",
            runs=towards(_time, _size),
            mutants=(data_mutant("times by another power", partial(by_another_power, size=_size)),),
        )(partial(exponent_of, _time, _size))

SMALL = Preset(d=1000, m_k=50, m_v=20, n_test=1000, detail=False)
STAGE_TIMES = Study(
    "stage_times",
    "stage times against s, sigma_p, m_k, sigma_0 and eta",
    SMALL.replace(eta=2e-5, steps=8000, n=10, n_test=100, m_k=100),
    {name: (grid,) for name, grid in SIZES.items()},
    tuple(claim.name for claim in scaling.claims),
    ("figure_stage_times",),
)

# ---------------------------------------------------------------- who generalises where

SIGNALS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
SAMPLES = (0.25, 0.5, 1.0, 2.0)  # times the preset's own
OPTIMIZERS: dict[str, Overrides] = {
    "gd": GD["gd_1"], "sign": {"optimizer": "sign", "detail": False}, "adam": ADAM | {"detail": False},
}  # fmt: skip
TITLES = {"gd": "GD", "sign": "SignGD", "adam": "Adam"}
FIT = 0.1  # training loss


def map_runs(*optimizers: str) -> dict[str, Overrides]:
    """The runs of the maps of some optimisers, by name."""
    return {
        f"{name}_{i}_{j}": {**OPTIMIZERS[name], "n": times(share), "signal": signal}
        for name in optimizers
        for i, share in enumerate(SAMPLES)
        for j, signal in enumerate(SIGNALS)
    }


def error_map(optimizer: str, data: Mapping[str, xr.Dataset]) -> xr.DataArray:
    """The test error in the end over sample count and signal strength; nan where the data are not fit."""
    ends = [data[name].isel(step=-1) for name in map_runs(optimizer)]
    errors = [np.where(end["training_loss"].max() <= FIT, end["test_error"], np.nan) for end in ends]
    values = np.reshape(errors, (len(SAMPLES), len(SIGNALS), -1))
    coords = {"n": [setting(end, "n") for end in ends[:: len(SIGNALS)]], "signal": list(SIGNALS)}
    return xr.DataArray(values, coords, ("n", "signal", "seed"), "test error")


generalisation = theorem(
    "Slides, GD against SignGD", kind="experiment", bound="order", presets=("generalisation",)
)


def excess_error(other: str, **runs: xr.Dataset) -> Estimate:
    """How much more test error another optimiser ends with than GD, mean over the map."""
    theirs, ours = error_map(other, runs), error_map("gd", runs)
    excess = theirs - ours
    if np.isnan(excess).any():
        raise Broken(f"{TITLES[other]} or GD does not bring the training loss to {FIT} in every cell.")
    samples = ours["n"].values
    notes = {
        f"{name}_at_n_{n}": errors.sel(n=n).mean()
        for name, errors in ((other, theirs), ("gd", ours))
        for n in samples
    }
    bounds = {"n": (samples[0], samples[-1]), "signal": (SIGNALS[0], SIGNALS[-1])}
    estimate = mean(excess.mean(["n", "signal"]).values, range=bounds)
    return estimate.noting(**notes, least_cell=excess.mean("seed").min())


for _other in ("sign", "adam"):
    generalisation.claim(
        name=f"{_other}_errs_more_over_the_map",
        statement=f"Over signals of {SIGNALS[0]:g} to {SIGNALS[-1]:g}, and from a quarter of the preset's "
        f"samples to twice as many, {TITLES[_other]} ends with more test error than GD: by 0.05 or more in "
        "the mean.",
        predicts=at_least(0.05),
        margin="A twentieth: a tenth of the range from no error to guessing.",
        runs=map_runs("gd", _other),
        mutants=(
            Mutant("gradient descent in its place", runs=dict.fromkeys(map_runs(_other), OPTIMIZERS["gd"])),
        ),
    )(partial(excess_error, _other))

GENERALISATION = Study(
    "generalisation",
    "test error of GD, SignGD and Adam over signal strength and sample count",
    SMALL,
    {
        name: (
            Grid("n", [{"n": times(share)} for share in SAMPLES], settings),
            Grid("signal", [{"signal": signal} for signal in SIGNALS], settings),
        )
        for name, settings in OPTIMIZERS.items()
    },
    tuple(claim.name for claim in generalisation.claims),
    ("figure_generalisation",),
)
