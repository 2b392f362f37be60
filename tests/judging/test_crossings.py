"""Level crossings against plain loops, hitting times, and values between records."""

import math
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from descentlab.judging import (
    Broken,
    crossing,
    first_crossing,
    first_step,
    hitting_time,
    log_gap,
    log_ratio,
    read,
)  # fmt: skip

FIT = {"allow_nan": False, "allow_infinity": False, "width": 32}


@st.composite
def series(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Increasing x, a few series over them that often lie on their levels, and the levels."""
    count, rows = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    x = np.cumsum(draw(arrays.arrays(float, count, elements=st.floats(0.25, 8))))
    x -= draw(st.sampled_from([0.0, float(x[0])]))
    values = st.one_of(st.integers(-2, 3).map(float), st.floats(-2, 3, **FIT))
    y = draw(arrays.arrays(float, (rows, count), elements=values))
    return x, y, draw(arrays.arrays(float, rows, elements=values))


def by_loop(
    x: np.ndarray, y: np.ndarray, level: float, direction: str, between: str, where: np.ndarray
) -> float:
    """What first_crossing says of one series, record by record."""
    reaches = {
        "below": lambda i: y[i] <= level,
        "above": lambda i: y[i] >= level,
        "either": lambda i: i > 0 and np.sign(y[i] - level) * np.sign(y[i - 1] - level) <= 0,
    }[direction]
    for i in range(len(y)):
        if not (reaches(i) and where[i]):
            continue
        if between == "record" or i == 0:
            return x[i]
        if between == "before":
            return x[i - 1]
        logs_exist = (between not in ("log x", "log-log") or x[i - 1] > 0) and (
            between not in ("log y", "log-log") or min(y[i - 1], y[i]) > 0
        )
        if reaches(i - 1) or not logs_exist:
            return x[i]
        if y[i - 1] == y[i]:
            share = 0.5
        elif between in ("log y", "log-log"):
            share = np.log(y[i - 1] / level) / np.log(y[i - 1] / y[i])
        else:
            share = (y[i - 1] - level) / ((y[i - 1] - level) - (y[i] - level))
        if between in ("log x", "log-log"):
            return np.exp(np.log(x[i - 1]) + share * np.log(x[i] / x[i - 1]))
        return x[i - 1] + share * (x[i] - x[i - 1])
    return math.inf


WAYS = ["before", "record", "linear", "log x", "log y", "log-log"]


@pytest.mark.parametrize("direction", ["below", "above", "either"])
@pytest.mark.parametrize("between", WAYS)
@settings(deadline=None)
@given(data=series(), masked=st.booleans(), seed=st.integers(0, 9))
def test_a_crossing_is_what_a_loop_over_records_finds(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], masked: bool, seed: int, direction: Any, between: Any
):
    x, y, level = data
    where = np.random.default_rng(seed).random(y.shape) < 0.7 if masked else np.full(y.shape, True)
    found = first_crossing(x, y, level, direction, between, where=where)
    rows = zip(y, level, where, strict=True)
    expected = [by_loop(x, own, one, direction, between, mask) for own, one, mask in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    # One series with one level, as a plain number.
    alone = first_crossing(x, y[0], float(level[0]), direction, between, where=where[0])
    np.testing.assert_array_equal(alone, found[0])


def test_series_have_any_leading_axes_and_levels_of_their_own():
    y = np.arange(24.0).reshape(2, 3, 4)
    level = np.array([[0.0, 5.5, 99.0], [12.0, 17.5, 19.25]])
    found = first_crossing([0, 1, 2, 3], y, level, "above", "linear", never=np.nan)
    np.testing.assert_allclose(found, [[0, 1.5, np.nan], [0, 1.5, 0]])


def test_another_series_is_read_where_the_first_one_crosses():
    loss, error = [[4.0, 2.0, 1.0], [4.0, 4.0, 4.0]], [[0.4, 0.2, 0.0], [0.9, 0.8, 0.7]]
    found = first_crossing(error, loss, np.sqrt(2), between="log y", never=[0.0, 0.7])
    np.testing.assert_allclose(found, [0.1, 0.7])


def test_a_level_is_compared_in_the_precision_of_the_series():
    shares = np.array([0.5, 0.95], dtype=np.float32)  # the second is below 0.95 in 64 bits
    assert first_crossing([1, 2], shares, 0.95, "above") == 2


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


def record(values: list[list[float]], steps: list[float], name: str = "loss") -> xr.DataArray:
    return xr.DataArray(values, dims=("seed", "step"), coords={"step": steps}, name=name)


class TestHittingTimes:
    series = record([[4, 3, 2, 1], [4, 4, 4, 4], [1, 1, 1, 1]], [0, 10, 100, 1000])

    def test_first_step(self):
        np.testing.assert_array_equal(first_step(self.series, below=2), [100, np.inf, 0])
        np.testing.assert_array_equal(first_step(self.series, above=4), [0, 0, np.inf])

    def test_one_threshold(self):
        with pytest.raises(ValueError, match="one of below and above"):
            first_step(self.series)

    def test_half_censored_is_infinite(self):
        two = self.series.isel(seed=[0, 1])
        result = hitting_time(two, below=2)
        assert result.value == math.inf
        assert result.notes["censored"] == 1
        assert result.range == {"step": (0, 1000)}

    def test_the_interval_reaches_back_to_the_record_before(self):
        many = xr.concat([self.series.isel(seed=[0])] * 10, "seed")
        assert hitting_time(many, below=2).interval(0.95) == (10, 100)

    def test_all_censored_are_after_the_last_record(self):
        many = xr.concat([self.series.isel(seed=[1])] * 10, "seed")
        assert hitting_time(many, below=2).interval(0.95) == (1000, math.inf)

    def test_log_ratio(self):
        result = log_ratio([20.0, 40.0], [10.0, 20.0], horizon=100)
        np.testing.assert_allclose(result.interval(0.95), math.log(2))

    def test_a_censored_time_bounds_one_side(self):
        low, high = log_ratio([np.inf, np.inf, 90.0], [10.0, 11.0, 10.0], horizon=100).interval(0.95)
        assert 0 < low < math.log(10)
        assert high == math.inf
        low, high = log_ratio([10.0, 12.0], [np.inf, 90.0], horizon=100).interval(0.95)
        assert low == -math.inf

    def test_neither_reached_breaks(self):
        with pytest.raises(Broken, match="Seed 1 reaches neither event by step 100"):
            log_ratio([1.0, np.inf], [2.0, np.inf], horizon=100)

    def test_a_hit_at_step_zero_has_no_ratio(self):
        with pytest.raises(Broken, match="is 0"):
            log_ratio([1.0, 2.0], [0.0, 1.0], horizon=100)

    def test_log_gap(self):
        assert log_gap([20.0, np.inf, 80.0], [5.0, 10.0, 20.0, 80.0]) == pytest.approx(math.log(4))
        assert log_gap([np.inf], [5.0, 10.0]) == 0
        assert log_gap([5.0], [0.0, 5.0]) == math.inf
