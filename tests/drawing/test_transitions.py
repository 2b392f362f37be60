"""Transitions on planted maps, and the bootstrap over seeds."""

import numpy as np
import pytest
import xarray as xr

from descentlab.drawing._transitions import resampled, transition


@pytest.mark.parametrize("seeds", [3, 5, 8])
def test_an_interval_of_few_seeds_holds_the_truth_too(seeds: int):
    means_of = np.random.default_rng(seeds).normal(size=(seeds, 1000))
    low, high = resampled(means_of, lambda mean: mean)
    assert 0.9 <= np.mean((low <= 0) & (high >= 0)) <= 1.0


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
