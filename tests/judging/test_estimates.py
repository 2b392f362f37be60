"""Intervals cover what they should, are nested in the level, and break on what cannot be measured."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from descentlab.judging import (
    Broken,
    Estimate,
    Hull,
    Interval,
    Point,
    Student,
    Unsettled,
    around,
    at_least,
    at_most,
)  # fmt: skip
from descentlab.judging import _estimates as estimate
from descentlab.judging._intervals import Binomial, Ranks, Spread

finite = st.floats(-1e6, 1e6)
levels = st.floats(0, 1 - 1e-9)
samples = st.lists(finite, min_size=1, max_size=20)
# Spreads are built inside the tests: beartype samples at random, which hypothesis forbids in a strategy.
recipes = st.one_of(
    samples.map(lambda values: lambda: estimate.student(values)),
    samples.map(lambda values: lambda: Ranks(tuple(values), tuple(values))),
    st.integers(0, 30).map(lambda k: lambda: Binomial(min(k, 30 - k), 30 - k if k < 30 else 1)),
    finite.map(lambda value: lambda: Point(value)),
)
hulls = st.lists(recipes, min_size=1, max_size=3).map(lambda parts: lambda: Hull(tuple(p() for p in parts)))


def record(values: list[list[float]], steps: list[float], name: str = "loss") -> xr.DataArray:
    return xr.DataArray(values, dims=("seed", "step"), coords={"step": steps}, name=name)


def assert_contains(outer: tuple[float, float], inner: tuple[float, float]) -> None:
    assert outer[0] <= inner[0] or math.isclose(outer[0], inner[0], rel_tol=1e-9, abs_tol=1e-9)
    assert inner[1] <= outer[1] or math.isclose(outer[1], inner[1], rel_tol=1e-9, abs_tol=1e-9)


def assert_covered(hits: np.ndarray, level: float, alpha: float = 1e-6) -> None:
    """Not significantly fewer hits than the level promises."""
    assert stats.binomtest(int(hits.sum()), hits.size, level, alternative="less").pvalue > alpha


class TestInterval:
    def test_holds_and_misses(self):
        predicted = around(-1, 0.5)
        assert predicted == Interval(-1.5, -0.5)
        assert predicted.holds(-1.5, -0.5)
        assert not predicted.holds(-1.6, -1)
        assert predicted.misses(-0.4, 3)
        assert not predicted.misses(-0.5, 3)

    def test_words_for_predictions(self):
        assert around(-1.0, 0.5) == Interval(-1.5, -0.5)
        assert at_least(2) == Interval(2, math.inf)
        assert at_most(2) == Interval(-math.inf, 2)
        assert str(around(-1, 0.25)) == "[-1.25, -0.75]"

    def test_half_lines(self):
        assert Interval(0).holds(0, math.inf)
        assert Interval().holds(-math.inf, math.inf)

    @pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (math.nan, 1.0), (0.0, math.nan)])
    def test_refuses_disorder(self, low: float, high: float):
        with pytest.raises(ValueError, match="low <= high, got low="):
            Interval(low, high)

    @given(finite, finite, finite, finite)
    def test_inside_and_disjoint_exclude_each_other(self, a: float, b: float, c: float, d: float):
        predicted, bounds = Interval(min(a, b), max(a, b)), (min(c, d), max(c, d))
        assert not (predicted.holds(*bounds) and predicted.misses(*bounds))
        assert predicted.decides(*bounds) == (predicted.holds(*bounds) or predicted.misses(*bounds))


class TestSpreads:
    @given(st.one_of(recipes, hulls), levels, levels)
    def test_intervals_are_nested_in_the_level(self, make: Callable[[], Spread], one: float, other: float):
        assert_contains(make().interval(max(one, other)), make().interval(min(one, other)))

    @given(st.one_of(recipes, hulls), levels)
    def test_infinitely_many_seeds_leave_what_every_level_holds(
        self, make: Callable[[], Spread], level: float
    ):
        assert_contains(make().interval(level), make().interval(0.0, math.inf))

    def test_student_is_the_textbook_interval(self):
        values = [0.3, 0.5, 0.1, 0.9]
        expected = stats.t.interval(0.9, 3, np.mean(values), stats.sem(values))
        np.testing.assert_allclose(estimate.mean(values).interval(0.9), expected, rtol=1e-10)

    def test_clopper_and_pearson_is_the_textbook_interval(self):
        expected = stats.binomtest(3, 11).proportion_ci(0.97, method="exact")
        np.testing.assert_allclose(Binomial(3, 11).interval(0.97), (expected.low, expected.high), rtol=1e-8)
        assert Binomial(0, 5).interval(0.95)[0] == 0
        assert Binomial(5, 5).interval(0.95)[1] == 1

    def test_median_of_six_is_the_range(self):
        # 2 / 2^6 = 0.031: six seeds are the fewest that give a 95 % interval.
        assert estimate.median([3, 1, 2, 6, 5, 4]).interval(0.95) == (1, 6)
        assert estimate.median([3, 1, 2, 5, 4]).interval(0.95) == (-math.inf, math.inf)

    @pytest.mark.parametrize("seeds", [2, 5, 20])
    @pytest.mark.parametrize("level", [0.5, 0.95, 0.9975])
    def test_student_covers_exactly(self, seeds: int, level: float):
        draws = np.random.default_rng(1).normal(2.0, 3.0, size=(4000, seeds))
        intervals = np.array([estimate.mean(row).interval(level) for row in draws])
        hits = (intervals[:, 0] <= 2) & (intervals[:, 1] >= 2)
        assert stats.binomtest(int(hits.sum()), hits.size, level).pvalue > 1e-6

    @pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
    @pytest.mark.parametrize("seeds", [1, 5, 30])
    def test_clopper_and_pearson_cover(self, share: float, seeds: int):
        draws = np.random.default_rng(2).random((2000, seeds)) < share
        intervals = np.array([estimate.share(row).interval(0.9) for row in draws])
        assert_covered((intervals[:, 0] <= share) & (share <= intervals[:, 1]), 0.9)

    @pytest.mark.parametrize("seeds", [6, 9, 20])
    def test_order_statistics_cover(self, seeds: int):
        draws = np.random.default_rng(3).exponential(size=(2000, seeds))
        intervals = np.array([estimate.median(row).interval(0.9) for row in draws])
        truth = math.log(2)
        assert_covered((intervals[:, 0] <= truth) & (truth <= intervals[:, 1]), 0.9)

    def test_more_seeds_are_foreseen(self):
        values = np.random.default_rng(4).normal(size=10)
        spread = estimate.student(values)
        low, high = spread.interval(0.95, seeds=1000)
        assert (high - low) == pytest.approx(2 * 1.9623 * values.std(ddof=1) / math.sqrt(1000), rel=1e-4)


class TestConstructors:
    def test_one_seed_says_nothing(self):
        assert estimate.mean([1.0]).interval(0.5) == (-math.inf, math.inf)

    def test_drift_widens(self):
        low, high = estimate.mean([1.0, 1.0, 1.0], drift=(0.5, math.inf)).interval(0.95)
        assert (low, high) == (0.5, math.inf)

    def test_negative_drift_is_refused(self):
        with pytest.raises(ValueError, match=r"non-negative numbers, got \(-1, 0\)"):
            estimate.mean([1.0, 2.0], drift=(-1, 0))

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_a_sample_that_is_not_finite_breaks(self, bad: float):
        with pytest.raises(Broken, match="seed 1"):
            estimate.mean([0.0, bad])

    def test_no_seeds_break(self):
        for constructor in (estimate.mean, estimate.share, estimate.median):
            with pytest.raises(Broken):
                constructor([])

    def test_difference_is_paired(self):
        # The common part of the seeds cancels: the difference is 1 in each.
        assert estimate.difference([11.0, 21.0, 31.0], [10.0, 20.0, 30.0]).interval(0.99) == (1.0, 1.0)

    def test_exact_is_a_point(self):
        assert estimate.exact(np.float32(0.5)).interval(0.999) == (0.5, 0.5)
        with pytest.raises(Broken):
            estimate.exact(math.inf)

    def test_an_estimate_is_a_number(self):
        with pytest.raises(Broken, match="nan"):
            Estimate(math.nan, 3, Point(0.0))

    def test_notes_are_added_as_plain_numbers(self):
        first = estimate.mean([1.0, 2.0], range={"step": (0, 9)}, notes={"a": 1, "b": 2})
        more = first.noting(b=np.float32(0.5), c=np.array(3), d=xr.DataArray(4.0), e=True)
        assert more.notes == {"a": 1.0, "b": 0.5, "c": 3.0, "d": 4.0, "e": 1.0}
        assert {type(note) for note in more.notes.values()} == {float}
        assert first.notes == {"a": 1.0, "b": 2.0}
        assert (more.value, more.spread, more.range) == (first.value, first.spread, first.range)
        assert first.noting() == first

    def test_level_is_checked(self):
        with pytest.raises(ValueError, match=r"level must be in \[0, 1\), got 1.0"):
            estimate.exact(1).interval(1.0)

    def test_arrays_of_any_kind(self):
        for values in ([1, 2], (1.0, 2.0), np.array([1, 2]), xr.DataArray([1.0, 2.0])):
            assert estimate.mean(values).value == 1.5


class TestFiniteness:
    @given(st.integers(0, 2), st.integers(0, 3), st.sampled_from([math.nan, math.inf, -math.inf]))
    def test_broken_names_variable_seed_and_step(self, seed: int, column: int, bad: float):
        values = np.ones((3, 4))
        values[seed, column] = bad
        series = record(values.tolist(), [0, 10, 20, 30])
        with pytest.raises(Broken, match=rf"loss is {bad} at seed {seed}, step {column * 10}"):
            estimate.check_finite(series)

    def test_dimensions_are_named(self):
        with pytest.raises(Broken, match="must have dimensions seed and step"):
            estimate.trajectories(xr.DataArray([1.0, 2.0], dims="step", coords={"step": [0, 1]}, name="loss"))

    def test_steps_increase(self):
        with pytest.raises(Broken, match="increasing steps"):
            estimate.trajectories(record([[1, 2, 3]], [0, 2, 1]))


def test_ranks_use_the_binomial_distribution():
    values = tuple(float(i) for i in range(1, 21))
    low, high = Ranks(values, values).interval(0.95)
    assert (low, high) == (6, 15)
    assert special.bdtr(5, 20, 0.5) <= 0.025 < special.bdtr(6, 20, 0.5)


def test_what_is_unsettled_may_be_anything():
    unsettled = Estimate(1.0, 8, Unsettled())
    assert unsettled.interval(0.0) == unsettled.interval(0.95, math.inf) == (-math.inf, math.inf)


def test_a_student_without_spread_is_a_point():
    assert Student(2.0, 0.0, 4).interval(0.999) == (2.0, 2.0)


def test_equal_shares_of_few_say_little():
    assert estimate.mean([1.0, 1.0]).interval() == (1.0, 1.0)
    low, _ = estimate.mean([1.0, 1.0], resolution=1.0).interval()
    assert low < 0
