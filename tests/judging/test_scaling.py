"""Scaling: times and values between records, and exponents in a size with planted laws."""

import json

import numpy as np
import pytest
import xarray as xr

from descentlab.judging import Broken, Grid, crossing, read, setting, size_exponent

STEPS = np.unique(np.geomspace(1, 1e6, 200).round())
SEEDS = np.array([1.0, 2.0, 3.0])


def decaying(power: float) -> xr.DataArray:
    """Each seed's own constant times t^-power."""
    values = SEEDS[:, None] * STEPS[None, :] ** -power
    return xr.DataArray(values, {"step": STEPS}, ("seed", "step"), name="error")


def test_crossing_finds_the_time_between_records():
    times = crossing(decaying(0.5), np.full(3, 0.01))
    np.testing.assert_allclose(times, (SEEDS / 0.01) ** 2, rtol=1e-12)


def test_a_level_that_is_not_reached_is_never_crossed():
    assert np.isinf(crossing(decaying(0.5), np.full(3, 1e-9))).all()


def test_a_level_above_the_start_is_crossed_at_the_first_record():
    assert crossing(decaying(0.5), np.full(3, 10.0)).tolist() == [1.0, 1.0, 1.0]


def test_read_gives_each_seed_its_own_time():
    times = np.array([30.0, 300.0, 3000.5])
    np.testing.assert_allclose(read(decaying(1.5), times), SEEDS * times**-1.5, rtol=1e-12)


def test_reading_beyond_the_last_record_is_refused():
    with pytest.raises(Broken, match="recorded to step"):
        read(decaying(1.0), np.full(3, 1e7))


@pytest.mark.parametrize("sizes", [10.0 * 3.0 ** np.arange(7), 0.1 * 2.0 ** -np.arange(7)])
@pytest.mark.parametrize("power", [-1.0, 0.0, 2.5])
def test_an_exact_power_is_found_exactly(sizes: np.ndarray, power: float):
    noise = np.exp(np.random.default_rng(0).normal(0, 1e-6, (7, 3)))
    values = [SEEDS * x**power * e for x, e in zip(sizes, noise, strict=True)]
    estimate = size_exponent("x", [np.full(3, x) for x in sizes], values)
    low, high = estimate.interval()
    assert low <= power <= high
    assert high - low < 1e-3
    assert estimate.range == {"x": (sizes.min(), sizes.max())}


def test_a_correction_that_fades_is_in_the_interval():
    """x^2 (1 + 3 x^-1/2): the last local exponent is 1.9, the limit 2."""
    sizes = 50.0 * 3.0 ** np.arange(7)
    noise = np.exp(np.random.default_rng(1).normal(0, 1e-6, (7, 3)))
    values = [SEEDS * x**2 * (1 + 3 * x**-0.5) * e for x, e in zip(sizes, noise, strict=True)]
    low, high = size_exponent("x", [np.full(3, x) for x in sizes], values).interval()
    assert low < 1.99
    assert 2.0 <= high < 2.2


@pytest.mark.parametrize(
    ("count", "value", "message"), [(6, 1.0, "needs 7 sizes"), (7, 0.0, "positive"), (7, np.inf, "positive")]
)
def test_too_few_sizes_and_impossible_values_are_refused(count: int, value: float, message: str):
    sizes = [np.full(2, 2.0**i) for i in range(count)]
    with pytest.raises(Broken, match=message):
        size_exponent("D", sizes, [np.full(2, value)] * count)


def test_a_grid_names_its_runs_and_a_cell_wins_over_what_is_common():
    grid = Grid("D", [{"D": 1}, {"D": 2, "steps": 5}], {"steps": 3})
    assert grid.runs == {"D_0": {"steps": 3, "D": 1}, "D_1": {"steps": 5, "D": 2}}


def test_the_settings_of_a_stored_run_are_read_from_it():
    run = xr.Dataset(attrs={"about": json.dumps({"settings": {"D": 36}})})
    assert setting(run, "D") == 36
