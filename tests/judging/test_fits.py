"""Exponents and transitions on planted data."""

import math

import numpy as np
import pytest
import xarray as xr

from descentlab.judging import Broken, transition
from descentlab.judging._transitions import resampled
from descentlab.sweeping._exponents import Fit, exponent_in

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
    x, z = np.array([1.0, 3.0, 9.0, 27.0]), np.array([10.0, 20.0, 40.0])
    rng = np.random.default_rng(0)
    kinds, seeds = np.array([0.01, 5.0]), np.exp(rng.normal(size=6))
    values = np.einsum("x,z,k,s->zsxk", x**-0.5, z**1.25, kinds, seeds)
    dims = ("z", "seed", "x", "kind")
    series = xr.DataArray(values, {"x": x, "z": z, "kind": ["a", "b"]}, dims, "y")
    assert exponent_in(series, "x").value == pytest.approx(-0.5, abs=1e-12)
    assert exponent_in(series, "z").value == pytest.approx(1.25, abs=1e-12)
    # Rows that miss different cells still have one slope.
    holed = series.where((series["x"] > 1) | (series["z"] < 20))
    fit = exponent_in(holed, "x")
    assert (fit.value, fit.low, fit.high) == pytest.approx((-0.5, -0.5, -0.5), abs=1e-12)


def test_settings_that_move_together_share_a_dimension():
    x = np.array([1.0, 2.0, 4.0])
    coords = {"x": ("x_z", x), "z": ("x_z", x**2)}
    series = xr.DataArray([x**3, 2 * x**3, 5 * x**3], coords, ("seed", "x_z"), "y")
    assert exponent_in(series, "x").value == pytest.approx(3.0)
    assert exponent_in(series, "z").value == pytest.approx(1.5)


def test_a_law_that_bends_has_an_interval_over_both_halves():
    bent = xr.DataArray(
        np.ones((5, 1)) * np.where(SIZES <= 8, SIZES, SIZES**2 / 8), {"x": SIZES}, ("seed", "x")
    )
    fit = exponent_in(bent, "x")
    assert fit.low <= 1.0 + 1e-9
    assert fit.high >= 2.0 - 1e-9
    assert 1.0 < fit.value < 2.0
    assert fit.drift == pytest.approx(1.0)


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
    assert exponent_in(planted(1.0, seeds=2), "x").power_law is None
    assert exponent_in(planted(1.0, spread=1.0), "x").power_law is None


def test_cells_that_are_left_out_are_counted():
    series = planted(1.0)
    holed = series.where((series["x"] < 64) | (xr.DataArray(np.arange(5), dims="seed") > 0))
    assert (exponent_in(series, "x").left_out, exponent_in(holed, "x").left_out) == (0, 1)


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


@pytest.mark.parametrize("seeds", [3, 5, 8])
def test_an_interval_of_few_seeds_holds_the_truth_too(seeds: int):
    means_of = np.random.default_rng(seeds).normal(size=(seeds, 1000))
    low, high = resampled(means_of, lambda mean: mean)
    assert 0.9 <= np.mean((low <= 0) & (high >= 0)) <= 1.0


@pytest.mark.parametrize(("seeds", "finite"), [(1, False), (2, False), (3, True)])
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
    series = planted(1.0, spread=0.2)
    holed = series.copy()
    holed[1, 4] = bad
    fit = exponent_in(holed, "x")
    assert math.isfinite(fit.low)
    assert math.isfinite(fit.high)
    # The same as a fit without that cell, of all seeds.
    rest = np.delete(np.arange(SIZES.size), 4)
    log_y = np.log(series.values[:, rest])
    assert fit.value == pytest.approx(np.polyfit(np.log(SIZES[rest]), log_y.mean(axis=0), 1)[0])


def test_too_few_sound_cells_are_broken():
    series = planted(1.0)
    with pytest.raises(Broken, match="An exponent in x needs two sound cells in a part of the range"):
        exponent_in(series.where(series["x"] < 8), "x")
    with pytest.raises(Broken, match="needs two sound cells"):
        exponent_in(series.where(series["x"] < 0), "x")


# ---------------------------------------------------------------- transitions


def stairs(seeds: int = 8, spread: float = 0.1) -> xr.DataArray:
    """tanh(x - y - shift) on a map: crosses 0 at x = y; of y = 20, beyond the map."""
    rng = np.random.default_rng(3)
    x, y = np.linspace(0.0, 10.0, 41), np.array([2.0, 5.0, 7.3, 20.0])
    shift = spread * rng.normal(size=(1, 1, seeds))
    values = np.tanh(x[:, None, None] - y[None, :, None] - shift)
    return xr.DataArray(values, {"x": x, "y": y}, ("x", "y", "seed"), "order")


def test_a_planted_transition_is_found_between_cells():
    found = transition(stairs(spread=0.0), "x", 0.0)
    assert found["place"].dims == ("y",)
    np.testing.assert_array_equal(found["y"], [2.0, 5.0, 7.3, 20.0])
    np.testing.assert_allclose(found["place"], [2.0, 5.0, 7.3, np.nan], atol=0.01)
    for name in ("low", "high"):
        np.testing.assert_allclose(found[name][:3], found["place"][:3], atol=1e-9)


def test_the_interval_of_a_transition_holds_the_truth():
    found = transition(stairs(), "x", 0.0)
    truth = np.array([2.0, 5.0, 7.3])
    inside = found.isel(y=slice(3))
    assert (inside["low"] <= truth).all()
    assert (truth <= inside["high"]).all()
    assert (inside["high"] - inside["low"] < 0.5).all()
    assert (inside["low"] < inside["place"]).all()
    assert (inside["place"] < inside["high"]).all()


def test_where_nothing_crosses_the_interval_is_all_there_is():
    nowhere = transition(stairs(), "x", 0.0).sel(y=20.0)
    assert np.isnan(nowhere["place"])
    assert nowhere["low"] == -np.inf
    assert nowhere["high"] == np.inf


def test_two_seeds_do_not_tell_where_a_transition_is():
    found = transition(stairs(seeds=2), "x", 0.0)
    assert np.isfinite(found["place"][:3]).all()
    np.testing.assert_array_equal(found["low"], -np.inf)
    np.testing.assert_array_equal(found["high"], np.inf)


@pytest.mark.parametrize("direction", [1, -1])
def test_the_first_crossing_counts_whatever_its_direction_and_order(direction: int):
    x = np.array([4.0, 1.0, 3.0, 2.0])
    values = xr.DataArray(np.tile([[-1.0, -1.0, 2.0, 1.0]], (3, 1)) * direction, {"x": x}, ("seed", "x"))
    # In order of x: -1, 1, 2, -1.
    assert float(transition(values, "x", 0.0)["place"]) == pytest.approx(1.5)


def test_a_value_on_the_level_is_a_crossing():
    values = xr.DataArray(
        np.tile([[-1.0, 0.0, 0.0, 1.0]], (3, 1)), {"x": [1.0, 2.0, 3.0, 4.0]}, ("seed", "x")
    )
    assert float(transition(values, "x", 0.0)["place"]) == pytest.approx(2.0)


def test_fits_are_plain_numbers():
    fit = exponent_in(planted(1.0), "x")
    assert isinstance(fit, Fit)
    assert all(type(v) is float for v in (fit.value, fit.low, fit.high, fit.drift))
