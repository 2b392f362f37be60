"""Studies of sign_descent: how stage times depend on sizes, and who generalises where.

A sign step moves every weight by eta. So products with noise, which start at sigma_0 sigma_p sqrt(s), gain
eta s sigma_p sqrt(2/pi) a step once their signs agree, whatever m_k: signs are set at

    T2 ~ sigma_0 / (eta sqrt(s))

and from then on both <w_Q,s, y_i xi_i> and <w_K,s, y_i xi_i> are about eta s sigma_p t. Noise looks away from
the signal when their product, summed over m_k neurons, is of order one:

    T4 ~ 1 / (eta s sigma_p sqrt(m_k))

The slides give neither; both are derived here, and judged by sweeps. The other times are drawn beside them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Canvas

from descentlab.drawing import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    legend,
    panels,
    phases,
    style,
)
from descentlab.judging import (
    Broken,
    Claim,
    Datasets,
    Estimate,
    Grid,
    Interval,
    Mutant,
    is_one_of,
    mean,
    setting,
    size_exponent,
    times,
)
from descentlab.papers import Figure, Study
from descentlab.papers.sign_descent.runs import ADAM, GD
from descentlab.papers.sign_descent.setting import Preset
from descentlab.papers.sign_descent.stages import stage_time

Data = xr.Dataset

# ---------------------------------------------------------------- stage times

FACTORS = [float(2 ** (i / 2)) for i in range(-3, 4)]
SIGN_ONLY = (is_one_of("optimizer", "sign"), is_one_of("attention", "softmax"))

SIZES = {
    name: Grid(name, [{name: times(f)} for f in FACTORS], {"detail": False})
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
NAMES = {"T2": "alignment", "T4": "softmax"}
WORDS = {
    "T2": "Query and key noise agree in sign for 95 % of all neurons and samples at a time that goes like",
    "T4": "Noise-signal softmax outputs fall to 0.05 at a time that goes like",
}


def exponent_of(time: str, size: str) -> Callable[..., Estimate]:
    """The exponent of a stage time in a size."""

    def measure(**runs: Data) -> Estimate:
        steps = [stage_time(time, run) for run in runs.values()]
        for run, own in zip(runs.values(), steps, strict=True):
            if not np.isfinite(own).all():
                raise Broken(f"{time} is not reached in every seed at {size} = {setting(run, size):g}.")
        sizes = [np.full(steps[0].size, setting(run, size)) for run in runs.values()]
        return size_exponent(size, sizes, steps)

    return measure


def towards(time: str, size: str) -> dict[str, dict[str, Any]]:
    """The runs over a size, in the direction of the regime in which a time's power is derived."""
    runs = list(SIZES[size].runs.items())
    return dict(runs if size in GROWING[time] else reversed(runs))


def another_power(size: str) -> Mutant:
    """Clocks that run faster by the square of the size."""

    def alter(runs: Datasets) -> Datasets:
        return {k: run.assign_coords(step=run["step"] * setting(run, size) ** 2) for k, run in runs.items()}

    return Mutant("times by another power", alter=alter)


STAGE_TIMES = tuple(
    Claim(
        f"{NAMES[time]}_time_in_{size}",
        "derived in studies.py",
        f"{WORDS[time]} {size}^{power:g}.",
        exponent_of(time, size),
        Interval.around(power, 0.1),
        runs=towards(time, size),
        assumes=SIGN_ONLY,
        mutants=(another_power(size),),
        presets=("stage_times",),
        margin="Powers are multiples of one half; a tenth leaves room for finite sizes and tells them apart.",
    )
    for time, powers in DERIVED.items()
    for size, power in powers.items()
)

TIMES = {"T1": "$T_1$", "T2": "$T_2$", "T3": "$T_3$", "T4": "$T_4$", "T_key": "$T_K$", "T_query": "$T_Q$"}
LABELS = {"s": "$s$", "sigma_p": r"$\sigma_p$", "m_k": "$m_k$", "sigma_0": r"$\sigma_0$", "eta": r"$\eta$"}
COLOURS = {"T1": SKY, "T2": BLUE, "T3": GREEN, "T4": VERMILION, "T_key": ORANGE, "T_query": PURPLE}


@style()
def draw_stage_times(**data: Data) -> Canvas:
    """Stage times against each size, with the derived powers."""
    figure, axes = panels(1, len(SIZES), (1.9, 2.4), sharey=True)
    for ax, (size, grid) in zip(axes[0], SIZES.items(), strict=True):
        runs = [data[name] for name in grid.runs]
        x = np.array([setting(run, size) for run in runs], float)
        for time, colour in COLOURS.items():
            y = np.array([stage_time(time, run) for run in runs])
            ax.plot(x, y.mean(axis=1), color=colour, lw=1.0, label=TIMES[time])
            ax.plot(np.repeat(x, y.shape[1]), y.ravel(), ".", color=colour, ms=2.5, alpha=0.6)
            if time in DERIVED:
                middle = len(x) // 2
                line = y[middle].mean() * (x / x[middle]) ** DERIVED[time][size]
                ax.plot(x, line, color=BLACK, lw=0.8, ls=(0, (4, 2)), label="derived power")
        ax.set(xscale="log", yscale="log", xlabel=LABELS[size])
        ends = x.min(), x[len(x) // 2], x.max()
        ax.set_xticks(ends, [f"{v:.3g}" for v in ends])
        ax.minorticks_off()
    axes[0, 0].set_ylabel("step")
    legend(figure, columns=7)
    return figure


# ---------------------------------------------------------------- who generalises where

SIGNALS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
SAMPLES = (0.25, 0.5, 1.0, 2.0)  # times the preset's own
OPTIMIZERS: dict[str, Mapping[str, Any]] = {
    "gd": GD[1.0], "sign": {"optimizer": "sign", "detail": False}, "adam": ADAM | {"detail": False},
}  # fmt: skip
TITLES = {"gd": "GD", "sign": "SignGD", "adam": "Adam"}
FIT = 0.1  # training loss
HALF_WAY = 0.25  # test error, half way from guessing to none


def axes_of(optimizer: str) -> tuple[Grid, Grid]:
    """Signal strength times sample count, with one optimiser."""
    settings = OPTIMIZERS[optimizer]
    return (
        Grid("n", [{"n": times(share)} for share in SAMPLES], settings),
        Grid("signal", [{"signal": signal} for signal in SIGNALS], settings),
    )


def map_runs(*optimizers: str) -> dict[str, dict[str, Any]]:
    """The runs of the maps of some optimisers, by name."""
    return {
        f"{name}_{i}_{j}": {**OPTIMIZERS[name], "n": times(share), "signal": signal}
        for name in optimizers
        for i, share in enumerate(SAMPLES)
        for j, signal in enumerate(SIGNALS)
    }


def error_map(optimizer: str, data: Mapping[str, Data]) -> xr.DataArray:
    """The test error in the end over sample count and signal strength; nan where the data are not fit."""

    def ending(name: str) -> np.ndarray:
        last = data[name].isel(step=-1)
        return np.where(last["training_loss"].max() <= FIT, last["test_error"], np.nan)

    rows, columns = range(len(SAMPLES)), range(len(SIGNALS))
    values = [[ending(f"{optimizer}_{i}_{j}") for j in columns] for i in rows]
    coords = {"n": [setting(data[f"{optimizer}_{i}_0"], "n") for i in rows], "signal": list(SIGNALS)}
    return xr.DataArray(values, coords, ("n", "signal", "seed"), "test error")


def excess_error(other: str) -> Callable[..., Estimate]:
    """How much more test error another optimiser ends with than GD, mean over the map."""

    def measure(**runs: Data) -> Estimate:
        theirs, ours = error_map(other, runs), error_map("gd", runs)
        if np.isnan(theirs + ours).any():
            raise Broken(f"{TITLES[other]} or GD does not bring the training loss to {FIT} in every cell.")
        excess = (theirs - ours).mean(["n", "signal"])
        samples = [int(n) for n in ours["n"]]
        notes = {
            f"{name}_at_n_{n}": float(errors.sel(n=n).mean())
            for name, errors in ((other, theirs), ("gd", ours))
            for n in samples
        }
        notes["least_cell"] = float((theirs - ours).mean("seed").min())
        bounds = {"n": (samples[0], samples[-1]), "signal": (SIGNALS[0], SIGNALS[-1])}
        return mean(excess.values, range=bounds, notes=notes)

    return measure


GENERALISATION = tuple(
    Claim(
        f"{other}_errs_more_over_the_map",
        "Slides, GD against SignGD",
        f"Over signals of {SIGNALS[0]:g} to {SIGNALS[-1]:g}, and from a quarter of the preset's samples to "
        f"twice as many, {TITLES[other]} ends with more test error than GD: by 0.05 or more in the mean.",
        excess_error(other),
        Interval(low=0.05),
        runs=map_runs("gd", other),
        mutants=(Mutant("gradient descent in its place", runs=dict.fromkeys(map_runs(other), GD[1.0])),),
        presets=("generalisation",),
        margin="A twentieth: a tenth of the range from no error to guessing.",
    )
    for other in ("sign", "adam")
)


@style()
def draw_maps(**data: Data) -> Canvas:
    """Test error over signal strength and sample count, of each optimiser."""
    figure, axes = panels(1, len(OPTIMIZERS), (2.7, 2.2), sharey=True)
    for ax, (name, title) in zip(axes[0], TITLES.items(), strict=True):
        errors = error_map(name, data)
        phases(ax, errors, "signal", "n", HALF_WAY, vmin=0, vmax=0.5, bar=ax is axes[0, -1])
        ax.set(title=title, xlabel="signal strength", ylabel="samples $n$")
        ax.set_xticks(SIGNALS[::2], [f"{x:g}" for x in SIGNALS[::2]])
        ax.set_yticks(errors["n"].values, [str(n) for n in errors["n"].values])
        ax.minorticks_off()
        ax.label_outer()
    return figure


# ---------------------------------------------------------------- the studies

CLAIMS = STAGE_TIMES + GENERALISATION
SMALL = Preset(d=1000, m_k=50, m_v=20, n_test=1000, detail=False)

STUDIES = (
    Study(
        "stage_times",
        "stage times against s, sigma_p, m_k, sigma_0 and eta",
        SMALL.replace(eta=2e-5, steps=8000, n=10, n_test=100, m_k=100),
        {name: (grid,) for name, grid in SIZES.items()},
        tuple(claim.name for claim in STAGE_TIMES),
        ("figure_stage_times",),
    ),
    Study(
        "generalisation",
        "test error of GD, SignGD and Adam over signal strength and sample count",
        SMALL,
        {name: axes_of(name) for name in OPTIMIZERS},
        tuple(claim.name for claim in GENERALISATION),
        ("figure_generalisation",),
    ),
)

FIGURES = (
    Figure(
        "figure_stage_times",
        "Stage times of SignGD against sizes, all seeds and their mean, with the powers that follow from "
        "sign steps for T_2 and T_4 (dashed, through the middle size). Not in the paper.",
        draw_stage_times,
        runs={name: overrides for grid in SIZES.values() for name, overrides in grid.runs.items()},
        claims=tuple(claim.name for claim in STAGE_TIMES),
        presets=("stage_times",),
    ),
    Figure(
        "figure_generalisation",
        "Test error at the end of training over signal strength and sample count, mean over seeds. Black: "
        "where it crosses 1/4, with 95 % of bootstrapped curves. Not in the paper.",
        draw_maps,
        runs=map_runs(*OPTIMIZERS),
        claims=tuple(claim.name for claim in GENERALISATION),
        presets=("generalisation",),
    ),
)
