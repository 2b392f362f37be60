"""Each outcome from planted data, Holm's procedure, and the JSON contract."""

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from descentlab.judging import (
    Assumption,
    Broken,
    Claim,
    Datasets,
    Estimate,
    Interval,
    Mutant,
    Outcome,
    Verdict,
    around,
    hitting_time,
    judge,
    judge_family,
)
from descentlab.judging import _estimates as estimate
from descentlab.judging import _exponents as law
from descentlab.judging._verdicts import LEAST_ALPHA, holm, outcome, significance

CONTRACT = {
    *(
        "kind",
        "claim",
        "cite",
        "statement",
        "outcome",
        "value",
        "low",
        "high",
        "predicts",
        "seeds",
        "unmet",
        "range",
    ),
    *("runs", "level", "reason", "assumptions", "notes"),
}


@dataclass(frozen=True)
class Sizes:
    D: int = 8
    n: int = 4


def last(run: xr.Dataset) -> Estimate:
    return estimate.mean(estimate.check_finite(run["loss"])[:, -1], range={"step": (0, 1)})


def logs(*final: float) -> xr.Dataset:
    """Two records of as many seeds as there are final losses."""
    return xr.Dataset(
        {"loss": (("seed", "step"), [[1.0, loss] for loss in final])},
        coords={"step": [0, 1], "seed": range(len(final))},
    )


def claim(predicts: Interval | None = None, **further) -> Claim:
    return Claim("small", "Theorem 1", "The loss is small.", last, predicts or Interval(0, 0.5), **further)


class TestClaim:
    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"name": "not a name"}, "identifier, got 'not a name'"),
            ({"cite": " "}, "cite of claim small must not be empty"),
            ({"statement": ""}, "statement of claim small must not be empty"),
            ({"runs": {}}, "at least one run"),
        ],
    )
    def test_refuses_what_is_missing(self, wrong: dict, message: str):
        whole = {
            "name": "small",
            "cite": "Theorem 1",
            "statement": "It is.",
            "measure": last,
            "predicts": Interval(0),
        }
        with pytest.raises(ValueError, match=message):
            Claim(**(whole | wrong))

    def test_mutants_and_presets_are_carried(self):
        mutant = Mutant("frozen", settings={"D": 1}, runs={"run": {"n": 2}})
        whole = claim(mutants=(mutant,), presets=("quick",))
        assert whole.mutants[0].settings == {"D": 1}
        assert whole.presets == ("quick",)


class TestOutcomes:
    def test_supported(self):
        verdict = judge(claim(), logs(0.20, 0.21, 0.22), runs=["a1"])
        assert verdict.outcome == Outcome.SUPPORTED
        assert (verdict.value, verdict.seeds, verdict.runs) == (pytest.approx(0.21), 3, ("a1",))
        assert verdict.level == 0.95
        assert verdict.range == {"step": (0, 1)}

    def test_refuted(self):
        assert judge(claim(), logs(0.80, 0.81, 0.82)).outcome == Outcome.REFUTED

    def test_undecided_counts_the_seeds_it_needs(self):
        samples = (0.2, 0.5, 0.1, 0.6)
        verdict = judge(claim(), logs(*samples))
        assert verdict.outcome == Outcome.UNDECIDED
        needed = int(verdict.reason.removeprefix("needs about ").removesuffix(" seeds"))
        reach = stats.t.ppf(0.975, needed - 1) * np.std(samples, ddof=1) / math.sqrt(needed)
        assert 0.35 + reach <= 0.5
        assert needed > 4

    def test_undecided_by_drift_needs_steps(self):
        drifting = Claim(
            "d", "c", "s", lambda run: estimate.mean([0.4, 0.4], drift=(0, 0.2)), Interval(0, 0.5)
        )
        verdict = judge(drifting, logs(0.4, 0.4))
        assert verdict.outcome == Outcome.UNDECIDED
        assert "more steps" in verdict.reason

    def test_one_seed_is_undecided(self):
        verdict = judge(claim(), logs(0.2))
        assert verdict.outcome == Outcome.UNDECIDED
        assert "more seeds" in verdict.reason

    def test_out_of_regime_names_what_is_not_met(self):
        assumes = (
            Assumption("D >= 2n", lambda p: p.D // p.n >= 2, measured=lambda p: p.D / p.n),
            Assumption("n large", lambda p: False, measured=lambda p: p.n, exact=False),
        )
        inside = judge(claim(assumes=assumes), logs(0.2, 0.2), preset=Sizes())
        assert inside.outcome == Outcome.SUPPORTED
        assert inside.assumptions == {"D >= 2n": 2.0, "n large": 4.0}
        outside = judge(claim(assumes=assumes), logs(0.2, 0.2), preset=Sizes(D=7))
        assert outside.outcome == Outcome.OUT_OF_REGIME
        assert outside.unmet == ("D >= 2n",)
        # Users come to see what breaks: the number is there all the same.
        assert outside.value == pytest.approx(0.2)

    def test_without_a_preset_nothing_gates(self):
        assumes = (Assumption("never", lambda p: False),)
        assert judge(claim(assumes=assumes), logs(0.2, 0.2)).outcome == Outcome.SUPPORTED

    def test_nan_is_broken_and_named(self):
        verdict = judge(claim(), logs(0.2, math.nan))
        assert verdict.outcome == Outcome.BROKEN
        assert "loss is nan at seed 1, step 1" in verdict.reason
        assert math.isnan(verdict.value)

    def test_divergence_is_broken_and_named(self):
        data = logs(0.2, 0.2, 0.2).assign(diverged_at=("seed", [-1, 17, 0]))
        verdict = judge(claim(), data)
        assert verdict.outcome == Outcome.BROKEN
        assert verdict.reason == "run diverged: seed 1 at step 17, seed 2 at step 0"
        fine = logs(0.2, 0.2).assign(diverged_at=("seed", [-1, -1]))
        assert judge(claim(), fine).outcome == Outcome.SUPPORTED

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (logs(0.2).rename(loss="error"), "No variable named 'loss'"),
            (logs(0.2).rename(seed="trial"), "lacks dimension seed; it has trial, step"),
            (logs(0.2).isel(step=0), "lacks dimension step"),
            ({"other": logs(0.2)}, "no data of run run; there are runs other"),
            ({}, "there are runs (none)"),
        ],
    )
    def test_what_is_missing_is_broken_and_named(self, data: xr.Dataset | Datasets, reason: str):
        verdict = judge(claim(), data)
        assert verdict.outcome == Outcome.BROKEN
        assert reason in verdict.reason

    def test_programming_errors_are_raised(self):
        def wrong(run: xr.Dataset) -> Estimate:
            raise TypeError("a bug")

        with pytest.raises(TypeError, match="a bug"):
            judge(Claim("b", "c", "s", wrong, Interval(0)), logs(0.2))

    def test_several_runs_come_by_name(self):
        def gap(wide: xr.Dataset, narrow: xr.Dataset) -> Estimate:
            return estimate.difference(narrow["loss"][:, -1], wide["loss"][:, -1])

        order = Claim("order", "c", "s", gap, Interval(0), runs={"wide": {"D": 64}, "narrow": {"D": 8}})
        wide, narrow = logs(0.1, 0.2, 0.3), logs(0.2, 0.3, 0.4)
        assert judge(order, {"wide": wide, "narrow": narrow}).outcome == Outcome.SUPPORTED
        assert judge(order, {"wide": narrow, "narrow": wide}).outcome == Outcome.REFUTED

    def test_censored_times_may_be_infinite(self):
        never = xr.concat([logs(1.0)] * 8, "seed")
        late = Claim("early", "c", "s", lambda run: hitting_time(run["loss"], below=0.5), Interval(0, 0.5))
        verdict = judge(late, never)
        assert verdict.outcome == Outcome.REFUTED
        assert verdict.as_json()["value"] is None


class TestHolm:
    def test_the_textbook_example(self):
        # Four p-values at 5 %: 0.01 and 0.005 pass (against 0.05/3 and 0.05/4), 0.03 fails against 0.05/2.
        levels = holm([0.01, 0.04, 0.03, 0.005], 0.95)
        np.testing.assert_allclose(levels, [1 - 0.05 / 3, 1 - 0.05 / 2, 1 - 0.05 / 2, 1 - 0.05 / 4])

    def test_one_claim_keeps_its_level(self):
        assert holm([0.9], 0.9) == [pytest.approx(0.9)]
        assert holm([], 0.9) == []

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.data())
    def test_a_smaller_significance_never_costs_a_decision(self, values: list[float], data: st.DataObject):
        def decided(significances: list[float]) -> set[int]:
            pairs = zip(significances, holm(significances), strict=True)
            return {i for i, (p, level) in enumerate(pairs) if p <= 1 - level}

        i = data.draw(st.integers(0, len(values) - 1))
        smaller = [*values]
        smaller[i] *= data.draw(st.floats(0, 1))
        assert decided(values) <= decided(smaller)

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
    def test_between_bonferroni_and_none(self, values: list[float]):
        for p, level in zip(values, holm(values), strict=True):
            assert 1 - 0.05 - 1e-12 <= level <= 1 - 0.05 / len(values) + 1e-12
            if p <= 0.05 / len(values):
                assert p <= 1 - level + 1e-12

    def test_significance_is_where_the_interval_decides(self):
        measured = estimate.mean([0.2, 0.3, 0.1, 0.25])
        alpha = significance(Interval(0, 0.5), measured)
        assert outcome(Interval(0, 0.5), measured, 1 - alpha * (1 + 1e-6)) == Outcome.SUPPORTED
        assert outcome(Interval(0, 0.5), measured, 1 - alpha * (1 - 1e-6)) == Outcome.UNDECIDED
        low, high = measured.interval(1 - alpha)
        assert min(0.5 - high, low) == pytest.approx(0, abs=1e-6)

    def test_significance_at_the_ends(self):
        assert significance(Interval(0, 1), estimate.exact(0.5)) == LEAST_ALPHA
        assert significance(Interval(0, 1), estimate.mean([0.5])) == 1.0

    def test_a_family_is_stricter_than_its_members(self):
        data = logs(0.2, 0.3, 0.4, 0.3)
        assert judge(claim(), data).outcome == Outcome.SUPPORTED
        alone = significance(Interval(0, 0.5), last(data))
        assert 0.05 / 20 < alone < 0.05
        verdicts = judge_family([claim()] * 20, lambda _: data)
        assert {verdict.outcome for verdict in verdicts} == {Outcome.UNDECIDED}
        assert {verdict.level for verdict in verdicts} == {1 - 0.05 / 20}
        # The interval that is shown stays the 95 % one.
        assert (verdicts[0].low, verdicts[0].high) == last(data).interval(0.95)

    def test_every_outcome_is_what_the_interval_at_its_level_says(self):
        rng = np.random.default_rng(5)
        datasets = [logs(*rng.normal(0.3, 0.1, 4)) for _ in range(12)]
        claims = [Claim(f"c{i}", "c", "s", last, Interval(0, 0.5)) for i in range(12)]
        verdicts = judge_family(claims, lambda c: datasets[int(c.name[1:])], runs_of=lambda c: [c.name])
        for verdict, data in zip(verdicts, datasets, strict=True):
            assert verdict.outcome == outcome(Interval(0, 0.5), last(data), verdict.level)
            assert verdict.runs == (verdict.claim,)

    def test_broken_and_out_of_regime_count_in_the_family(self):
        gated = claim(assumes=(Assumption("D > 9", lambda p: p.D > 9),))
        family = [claim(), gated, Claim("other", "c", "s", last, Interval(0))]
        data = {"small": logs(0.2, 0.21), "other": logs(0.2, math.nan)}
        verdicts = judge_family(family, lambda c: data[c.name], preset=Sizes())
        assert [v.outcome for v in verdicts] == [Outcome.SUPPORTED, Outcome.OUT_OF_REGIME, Outcome.BROKEN]
        assert verdicts[0].level == pytest.approx(1 - 0.05 / 3)

    @pytest.mark.slow
    def test_the_family_wise_error_is_kept(self):
        # Eight true claims, each at the edge of its prediction: REFUTED is wrong.
        rng = np.random.default_rng(6)
        edge = Claim("edge", "c", "s", last, Interval(0, 5))
        families = 60
        wrong = 0
        for _ in range(families):
            verdicts = judge_family([edge] * 8, lambda _: logs(*rng.normal(5, 1, 6)))
            wrong += any(verdict.outcome == Outcome.REFUTED for verdict in verdicts)
        assert stats.binomtest(wrong, families, 0.05, alternative="greater").pvalue > 1e-6


class TestJson:
    def test_the_contract(self):
        document = judge(claim(Interval(0)), logs(0.2, 0.21), runs=["a", "b"]).as_json()
        assert set(document) == CONTRACT
        assert document["predicts"] == [0, None]
        assert document["runs"] == ["a", "b"]
        assert document["range"] == {"step": [0, 1]}
        assert document["outcome"] == "SUPPORTED"

    @given(st.lists(st.floats(), min_size=4, max_size=4), st.lists(st.floats(), max_size=3))
    def test_round_trip_without_nan(self, numbers: list[float], notes: list[float]):
        value, low, high, bound = numbers
        verdict = Verdict(
            claim="c", cite="x", statement="s", outcome=Outcome.UNDECIDED, level=0.95, value=value, low=low,
            high=high, predicts=Interval(high=math.inf if math.isnan(bound) else bound),
            notes={str(i): note for i, note in enumerate(notes)}, seeds=3,
        )  # fmt: skip
        document = verdict.as_json()
        assert json.loads(json.dumps(document, allow_nan=False)) == document
        assert (document["value"] is None) == (not math.isfinite(value))

    def test_one_line(self):
        text = str(judge(claim(), logs(0.2, 0.21)))
        assert text.startswith("SUPPORTED small (Theorem 1): 0.205 in [")
        assert "\n" not in text
        assert str(judge(claim(), logs(math.nan))).startswith("BROKEN small (Theorem 1): loss is nan")


def test_broken_is_a_value_error():
    assert issubclass(Broken, ValueError)


def test_an_exponent_is_judged():
    steps = np.unique(np.geomspace(1, 10_000, 100).round())
    noise = 0.1 * np.random.default_rng(7).standard_normal((8, steps.size))
    data = xr.Dataset({"loss": (("seed", "step"), np.exp(noise) / steps)}, coords={"step": steps})
    for center, expected in ((-1.0, Outcome.SUPPORTED), (-0.7, Outcome.REFUTED), (-1.1, Outcome.UNDECIDED)):
        power = Claim("p", "c", "s", lambda run: law.exponent(run["loss"]), around(center, 0.1))
        assert judge(power, data).outcome == expected


def test_the_measure_of_one_run_may_name_its_argument_freely():
    claim = Claim(
        "a", "Lemma 1", "It holds.", lambda data: estimate.mean(data["loss"][:, -1]), Interval(0, 1)
    )
    loss = xr.DataArray([[1.0, 0.5], [1.0, 0.6], [1.0, 0.55]], dims=("seed", "step"))
    assert judge(claim, xr.Dataset({"loss": loss})).outcome == Outcome.SUPPORTED
