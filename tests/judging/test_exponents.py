"""Laws measured on planted trajectories: exact ones exactly, drifting ones within honest intervals."""

import math

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from descentlab.judging import Broken, exponent, rivals, size_exponent, stretch

STEPS = np.unique(np.geomspace(1, 10_000, 120).round())


def planted(
    log_values: np.ndarray, noise: float = 0.0, seeds: int = 8, steps: np.ndarray = STEPS
) -> xr.DataArray:
    """Trajectories exp(log_values), with lognormal noise per record."""
    shocks = np.random.default_rng(0).standard_normal((seeds, steps.size))
    values = np.exp(log_values + noise * shocks)
    return xr.DataArray(values, dims=("seed", "step"), coords={"step": steps}, name="loss")


class TestExponent:
    @settings(max_examples=30)
    @given(st.floats(-3, 3), st.floats(-5, 5), st.integers(2, 5))
    def test_an_exact_law_is_found_exactly(self, slope: float, offset: float, seeds: int):
        result = exponent(planted(offset + slope * np.log(STEPS), seeds=seeds))
        np.testing.assert_allclose(result.interval(0.999), slope, atol=1e-8)

    def test_noise_widens_and_covers(self):
        low, high = exponent(planted(-np.log(STEPS), noise=0.1)).interval(0.95)
        assert -1.1 < low < -1 < high < -0.9

    def test_one_seed_says_nothing(self):
        assert exponent(planted(-np.log(STEPS), seeds=1)).interval(0.5) == (-math.inf, math.inf)

    def test_against_another_series(self):
        train, test = planted(-0.5 * np.log(STEPS)), planted(-1.5 * np.log(STEPS))
        np.testing.assert_allclose(exponent(test, against=train).interval(0.95), 3.0, atol=1e-8)

    def test_against_a_series_of_other_steps_breaks(self):
        other = planted(-np.log(STEPS[1:]), steps=STEPS[1:])
        with pytest.raises(Broken, match="same steps"):
            exponent(planted(-np.log(STEPS)), against=other)

    def test_against_a_constant_breaks(self):
        with pytest.raises(Broken, match="stands still"):
            exponent(planted(-np.log(STEPS)), against=planted(np.zeros_like(STEPS)))

    @pytest.mark.parametrize("power", [-1.0, 1.0, 2.0])
    def test_a_log_correction_is_covered(self, power: float):
        # A seed interval alone would refute the exponent: without noise it is a point off by 1/log t.
        result = exponent(planted(-np.log(STEPS) + power * np.log(1 + np.log(STEPS))))
        low, high = result.interval(0.95)
        assert low <= -1 + 1e-8
        assert high >= -1 - 1e-8
        assert abs(result.value + 1) > 0.05

    @pytest.mark.parametrize(("c", "b"), [(3.0, 0.3), (3.0, 1.0), (-0.9, 0.5)])
    def test_a_power_correction_is_covered(self, c: float, b: float):
        low, high = exponent(planted(-np.log(STEPS) + np.log1p(c * STEPS**-b))).interval(0.95)
        assert low <= -1 <= high

    def test_a_growing_drift_may_lead_anywhere(self):
        falling = exponent(planted(-STEPS / 2000)).interval(0.95)
        assert falling[0] == -math.inf
        assert falling[1] < -1
        rising = exponent(planted(np.logaddexp(-np.log(STEPS), -7.5))).interval(0.95)
        assert rising[1] == math.inf

    def test_a_swinging_slope_has_not_settled(self):
        low, high = exponent(planted(-np.log(STEPS) + 0.3 * np.sin(3 * np.log(STEPS)))).interval(0.95)
        assert low < -1.3
        assert high > -0.7

    def test_the_default_window_is_the_last_three_quarters(self):
        low, high = exponent(planted(-np.log(STEPS))).range["step"]
        assert STEPS[0] * 9 < low < 12
        assert high == STEPS[-1]

    def test_a_window_is_kept(self):
        bent = np.where(STEPS < 100, -np.log(STEPS), -np.log(100) - 2 * np.log(STEPS / 100))
        np.testing.assert_allclose(exponent(planted(bent), window=(100, 10_000)).value, -2, atol=1e-8)
        np.testing.assert_allclose(exponent(planted(bent), window=(2, 99)).value, -1, atol=1e-8)

    def test_step_zero_is_left_out(self):
        steps = np.concatenate([[0.0], STEPS])
        log_values = np.concatenate([[0.0], -np.log(STEPS)])
        np.testing.assert_allclose(exponent(planted(log_values, steps=steps)).value, -1, atol=1e-8)

    def test_times_below_one_are_times(self):
        times = np.geomspace(1e-3, 10, 100)
        result = exponent(planted(-2 * np.log(times), steps=times))
        np.testing.assert_allclose(result.interval(0.95), -2, atol=1e-8)

    def test_notes_tell_the_drift(self):
        notes = exponent(planted(-np.log(STEPS) + np.log(1 + np.log(STEPS)))).notes
        assert notes["slope_1"] > notes["slope_2"] > notes["slope_3"]
        assert notes["drift"] == pytest.approx(notes["slope_3"] - notes["slope_2"])
        assert notes["extrapolated"] == pytest.approx(-1, abs=1e-6)

    def test_few_records_break(self):
        with pytest.raises(Broken, match="needs 4 records, got"):
            exponent(planted(-np.log(STEPS[::12]), steps=STEPS[::12]))

    def test_no_records_break(self):
        with pytest.raises(Broken, match="got 0"):
            exponent(planted(-np.log(STEPS)), window=(20_000, 30_000))

    @pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
    def test_a_bad_value_is_located(self, bad: float):
        series = planted(-np.log(STEPS))
        series[3, 90] = bad
        with pytest.raises(Broken, match=rf"loss is {bad} at seed 3, step {STEPS[90]}"):
            exponent(series)

    def test_a_start_alone_breaks(self):
        with pytest.raises(Broken, match="No record has a positive step"):
            exponent(planted(np.zeros(1), steps=np.zeros(1)))

    def test_a_reversed_window_is_refused(self):
        with pytest.raises(ValueError, match="low < high"):
            exponent(planted(-np.log(STEPS)), window=(100, 10))


class TestStretch:
    @pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 3.0])
    def test_an_exact_law_is_found(self, p: float):
        result = stretch(planted(1 - 5 * (STEPS / 10_000) ** p))
        np.testing.assert_allclose(result.interval(0.99), p, atol=1e-4)

    def test_a_power_law_has_stretch_zero(self):
        np.testing.assert_allclose(stretch(planted(-2 * np.log(STEPS))).interval(0.99), 0.0, atol=1e-4)

    def test_logs_may_be_given(self):
        # exp(-4000) underflows.
        log_values = xr.DataArray(
            np.tile(-0.4 * STEPS, (3, 1)), dims=("seed", "step"), coords={"step": STEPS}, name="log_loss"
        )
        np.testing.assert_allclose(stretch(log_values, log=True).interval(0.99), 1.0, atol=1e-4)

    def test_noise_widens_and_covers(self):
        low, high = stretch(planted(-10 * STEPS / 10_000, noise=0.1)).interval(0.95)
        assert 0.9 < low < 1 < high < 1.1

    def test_what_does_not_fall_says_nothing(self):
        assert stretch(planted(np.zeros_like(STEPS), noise=0.0)).interval(0.5) == (-math.inf, math.inf)
        assert stretch(planted(STEPS / 10_000)).interval(0.5) == (-math.inf, math.inf)


LAWS = {
    "exponential": -5 * STEPS / 10_000,
    "gaussian": -5 * (STEPS / 10_000) ** 2,
    "power": -np.log(STEPS),
    "log_power": np.log(np.log(np.maximum(STEPS, 1.5))) - np.log(STEPS),
}


class TestRivals:
    @pytest.mark.parametrize("name", LAWS)
    @pytest.mark.parametrize("rival", LAWS)
    def test_the_planted_law_wins(self, name: str, rival: str):
        low, high = rivals(planted(LAWS[name], noise=0.05), name, rival).interval(0.95)
        if name == rival:
            assert low == high == 0
        else:
            assert low > 0

    def test_the_order_is_antisymmetric(self):
        series = planted(LAWS["power"], noise=0.05)
        one, other = rivals(series, "power", "log_power"), rivals(series, "log_power", "power")
        assert one.value == pytest.approx(-other.value)

    def test_exact_laws_do_not_divide_by_zero(self):
        assert rivals(planted(LAWS["exponential"]), "exponential", "gaussian").value > 10

    def test_a_window_per_seed(self):
        series = planted(LAWS["exponential"], seeds=2)
        series[1, STEPS > 5000] = 1.0  # after its own window
        result = rivals(series, "exponential", "gaussian", window=([10, 10], [10_000, 5000]))
        assert result.interval(0.0)[0] > 10
        assert result.range == {"step": (10, 10_000)}

    def test_logs_may_be_given(self):
        log_values = xr.ufuncs.log(planted(LAWS["gaussian"], noise=0.05))
        assert rivals(log_values, "gaussian", "exponential", log=True).interval(0.95)[0] > 0

    def test_unknown_laws_are_refused(self):
        with pytest.raises(ValueError, match="one of exponential, gaussian, power, log_power; got 'cubic'"):
            rivals(planted(LAWS["power"]), "power", "cubic")

    def test_few_records_break(self):
        with pytest.raises(Broken, match="seed 0 in steps 9000 to 10000, 4 are needed"):
            rivals(planted(LAWS["power"]), "power", "exponential", window=(9000, 10_000))


# ---------------------------------------------------------------- in a size

SEEDS = np.array([1.0, 2.0, 3.0])


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


def test_the_regime_sets_how_slowly_a_drift_may_fade():
    """log y = log x + c log(1 + log r): the limit is found if r is the number that the theorem takes."""
    sizes, regime = 2.0 ** np.arange(8), 50 * 9.0 ** np.arange(8)
    values = [SEEDS * x * (1 + np.log(r)) for x, r in zip(sizes, regime, strict=True)]
    x, large = ([np.full(3, one) for one in own] for own in (sizes, regime))
    assert size_exponent("x", x, values, large).notes["extrapolated"] == pytest.approx(1.0)
    assert size_exponent("x", x, values).notes["extrapolated"] != pytest.approx(1.0, abs=1e-3)
