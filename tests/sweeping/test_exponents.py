"""Exponents of sweeps on planted data."""

import math
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from descentlab.judging import Broken, size_exponent
from descentlab.sweeping import Fit, exponent_in

SIZES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])


def planted(
    power: float, seeds: int = 5, spread: float = 0.0, rng: np.random.Generator | None = None
) -> xr.DataArray:
    """3 x^power with a factor for each seed, and log-normal noise in each cell."""
    rng = rng or np.random.default_rng(0)
    factor = np.exp(rng.normal(size=(seeds, 1)))
    noise = np.exp(spread * rng.normal(size=(seeds, SIZES.size)))
    return xr.DataArray(3 * factor * SIZES**power * noise, {"x": SIZES}, ("seed", "x"), "y")


@pytest.mark.parametrize("power", [-1.5, 0.0, 0.5, 2.0])
def test_a_planted_exponent_is_recovered(power: float):
    fit = exponent_in(planted(power), "x")
    assert fit.value == pytest.approx(power, abs=1e-12)
    assert (fit.low, fit.high) == pytest.approx((power, power), abs=1e-12)
    assert fit.drift == pytest.approx(0.0, abs=1e-12)
    assert (fit.seeds, fit.points) == (5, SIZES.size)


def test_the_order_of_the_values_does_not_matter():
    rng = np.random.default_rng(1)
    series = planted(0.7, spread=0.3)
    mixed = series.isel(x=rng.permutation(SIZES.size))
    a, b = exponent_in(series, "x"), exponent_in(mixed, "x")
    for name in ("value", "low", "high", "drift"):
        assert getattr(a, name) == pytest.approx(getattr(b, name), rel=1e-12), name


def test_other_settings_have_intercepts_of_their_own():
    x, z = 3.0 ** np.arange(7), np.array([10.0, 20.0, 40.0])
    rng = np.random.default_rng(0)
    kinds, seeds = np.array([0.01, 5.0]), np.exp(rng.normal(size=6))
    values = np.einsum("x,z,k,s->zsxk", x**-0.5, z**1.25, kinds, seeds)
    dims = ("z", "seed", "x", "kind")
    series = xr.DataArray(values, {"x": x, "z": z, "kind": ["a", "b"]}, dims, "y")
    assert exponent_in(series, "x").value == pytest.approx(-0.5, abs=1e-12)
    assert exponent_in(series, "z").value == pytest.approx(1.25, abs=1e-12)
    # Rows that miss a cell are left out: z = 20 and 40, of two kinds each.
    holed = series.where((series["x"] > 1) | (series["z"] < 20))
    fit = exponent_in(holed, "x")
    assert (fit.value, fit.low, fit.high) == pytest.approx((-0.5, -0.5, -0.5), abs=1e-12)
    assert (fit.points, fit.left_out) == (7, 4 * 7)
    # A value that all rows miss is left out first, so that they keep the others.
    shorter = exponent_in(series.where(series["x"] > 1), "x")
    assert shorter.value == pytest.approx(-0.5, abs=1e-12)
    assert (shorter.points, shorter.left_out) == (6, 6)


def test_settings_that_move_together_share_a_dimension():
    x = np.array([1.0, 2.0, 4.0])
    coords = {"x": ("x_z", x), "z": ("x_z", x**2)}
    series = xr.DataArray([x**3, 2 * x**3, 5 * x**3], coords, ("seed", "x_z"), "y")
    assert exponent_in(series, "x").value == pytest.approx(3.0)
    assert exponent_in(series, "z").value == pytest.approx(1.5)


@pytest.mark.parametrize("sizes", [SIZES, SIZES / 100])
def test_the_exponent_is_that_of_claims_over_sizes(sizes: np.ndarray):
    """With the mean of log y over the other settings."""
    rng = np.random.default_rng(5)
    values = np.exp(0.3 * rng.normal(size=(4, 5, 7))) * np.array([1e-3, 1.0, 7.0, 9.0])[:, None, None]
    series = xr.DataArray(values * sizes**1.5, {"x": sizes}, ("row", "seed", "x"))
    fit = exponent_in(series, "x")
    means = np.exp(np.log(series.values).mean(axis=0))
    claimed = size_exponent("x", [np.full(5, size) for size in sizes], list(means.T))
    assert (fit.value, fit.low, fit.high) == pytest.approx((claimed.value, *claimed.interval()), rel=1e-9)


def test_a_law_that_bends_may_go_on_bending():
    bent = xr.DataArray(
        np.ones((5, 1)) * np.where(SIZES <= 8, SIZES, SIZES**2 / 8), {"x": SIZES}, ("seed", "x")
    )
    fit = exponent_in(bent, "x")
    assert (fit.value, fit.low, fit.high) == pytest.approx((2.0, 2.0, math.inf))
    assert fit.drift == pytest.approx(1.0)
    assert fit.power_law is False


@pytest.mark.parametrize("count", [2, 3, 6])
def test_few_values_have_a_slope_without_an_interval(count: int):
    series = planted(1.0, spread=0.2).isel(x=slice(count))
    fit = exponent_in(series, "x")
    slope = np.polyfit(np.log(SIZES[:count]), np.log(series.values).mean(axis=0), 1)[0]
    assert fit.value == pytest.approx(slope)
    assert (fit.low, fit.high) == (-math.inf, math.inf)
    assert math.isnan(fit.drift) == (count == 2)
    assert (fit.seeds, fit.points, fit.power_law, fit.left_out) == (5, count, None, 0)


@pytest.mark.parametrize(("bend", "law"), [(0.0, True), (0.05, True), (0.3, False), (-0.3, False)])
def test_what_bends_is_no_power_law(bend: float, law: bool):
    """x^(1 + bend log x / log 64): the slopes of both halves differ by bend."""
    powers = 1 + bend * np.log(SIZES) / np.log(64)
    noise = np.exp(1e-3 * np.random.default_rng(3).normal(size=(5, SIZES.size)))
    fit = exponent_in(xr.DataArray(SIZES**powers * noise, {"x": SIZES}, ("seed", "x")), "x")
    assert fit.drift == pytest.approx(bend, abs=0.02)
    assert fit.power_law is law


def test_two_values_two_seeds_and_noise_cannot_tell_a_law():
    assert exponent_in(planted(1.0).isel(x=[0, 3]), "x").power_law is None
    assert exponent_in(planted(1.0).isel(x=slice(6)), "x").power_law is None
    assert exponent_in(planted(1.0, seeds=1), "x").power_law is None
    assert exponent_in(planted(1.0, seeds=2, spread=0.1), "x").power_law is None
    assert exponent_in(planted(1.0, spread=1.0), "x").power_law is None


def test_cells_that_are_left_out_are_counted():
    series = planted(1.0)
    holed = series.where((series["x"] < 64) | (xr.DataArray(np.arange(5), dims="seed") > 0))
    assert (exponent_in(series, "x").left_out, exponent_in(holed, "x").left_out) == (0, 1)
    assert (exponent_in(series, "x").points, exponent_in(holed, "x").points) == (7, 6)


def test_an_interval_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(2)

    def holds() -> bool:
        # A seed has a slope of its own, as tasks have, and noise in each cell.
        slopes = 0.75 + 0.1 * rng.normal(size=(5, 1))
        noise = 0.1 * rng.normal(size=(5, SIZES.size))
        series = xr.DataArray(np.exp(slopes * np.log(SIZES) + noise), {"x": SIZES}, ("seed", "x"))
        fit = exponent_in(series, "x")
        return fit.low <= 0.75 <= fit.high

    assert 0.9 <= np.mean([holds() for _ in range(200)]) <= 1.0


@pytest.mark.parametrize(("seeds", "finite"), [(1, False), (2, True), (3, True)])
def test_few_seeds_say_nothing(seeds: int, finite: bool):
    fit = exponent_in(planted(1.0, seeds, spread=0.1), "x")
    assert math.isfinite(fit.value)
    assert (math.isfinite(fit.low), math.isfinite(fit.high)) == (finite, finite)
    if not finite:
        assert (fit.low, fit.high) == (-math.inf, math.inf)


def test_two_values_have_no_drift_and_one_has_no_exponent():
    fit = exponent_in(planted(1.0).isel(x=[0, 3]), "x")
    assert fit.value == pytest.approx(1.0)
    assert math.isnan(fit.drift)
    assert fit.points == 2
    with pytest.raises(Broken, match="An exponent in x needs two values at least, got 1"):
        exponent_in(planted(1.0).isel(x=[0]), "x")


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_what_is_not_positive_has_no_exponent(bad: float):
    series = planted(1.0)
    holed = series.copy()
    holed[2, 3] = bad
    with pytest.raises(Broken, match="An exponent of y in x needs positive numbers"):
        exponent_in(holed, "x")
    with pytest.raises(Broken, match="needs positive numbers"):
        exponent_in(series.assign_coords(x=SIZES + bad - 1), "x")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_cells_that_are_not_finite_in_every_seed_are_left_out(bad: float):
    sizes = 2.0 ** np.arange(8)
    noise = np.exp(0.2 * np.random.default_rng(0).normal(size=(5, sizes.size)))
    series = xr.DataArray(sizes * noise, {"x": sizes}, ("seed", "x"))
    holed = series.copy()
    holed[1, 4] = bad
    fit = exponent_in(holed, "x")
    assert math.isfinite(fit.low)
    assert math.isfinite(fit.high)
    # The same as a fit without that value, of all seeds.
    rest = exponent_in(series.isel(x=np.delete(np.arange(8), 4)), "x")
    assert fit == replace(rest, left_out=1)


def test_too_few_sound_cells_are_broken():
    series = planted(1.0)
    with pytest.raises(Broken, match="An exponent in x needs two values at least, got 1 with sound cells"):
        exponent_in(series.where(series["x"] < 2), "x")
    with pytest.raises(Broken, match="got 0 with sound cells"):
        exponent_in(series.where(series["x"] < 0), "x")
    rows = xr.DataArray([0, 1], dims="row")
    with pytest.raises(Broken, match="needs a row in which all cells are finite in every seed"):
        exponent_in(series.where(series["x"] != 2.0 ** (1 + rows)), "x")


def test_fits_are_plain_numbers():
    fit = exponent_in(planted(1.0), "x")
    assert isinstance(fit, Fit)
    assert all(type(v) is float for v in (fit.value, fit.low, fit.high, fit.drift))
