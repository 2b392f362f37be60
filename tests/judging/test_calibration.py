"""Planted data are as their truths say, and verdicts on a few of each family are seldom wrong."""

import math

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from calibration import repeated
from calibration.planting import Experiment, Samples, about, best_stretches
from calibration.scoring import MOST_WRONG, PARTS, Score, calibrate, families, generator, summary, total
from descentlab.judging import Outcome, judge

PLANTED = [(part, family) for part in PARTS for family in families(part)]
# Of all decided verdicts together: many are far from any edge.
MOST_WRONG_OF_ALL = 0.02


@pytest.mark.slow
def test_a_small_calibration():
    found = calibrate("shaped", experiments=40, seed=11)
    counted = {name: own for name, own in found.items() if name not in PARTS["shaped"].UNDECIDABLE}
    assert len(counted) > 40
    for name, own in counted.items():
        assert own["misread"] == 0, name
        assert seldom_wrong(own["wrong"], own["decided"], MOST_WRONG), name
    whole = total(counted.values())
    assert seldom_wrong(whole["wrong"], whole["decided"], MOST_WRONG_OF_ALL)
    assert whole["decided_share"] > 0.3


def seldom_wrong(wrong: int, decided: int, bound: float) -> bool:
    """Whether a share of wrong verdicts within the bound may show so many."""
    if decided == 0:
        return True
    return stats.binomtest(wrong, decided, bound, alternative="greater").pvalue > 1e-6


@pytest.mark.parametrize(("part", "family"), PLANTED)
def test_the_first_seeds_stay_as_more_are_drawn(part: str, family: str):
    experiment = families(part)[family](generator(part, family, 1, 0))
    few, many = experiment.draw(3), experiment.draw(5)
    if not math.isnan(experiment.truth):
        xr.testing.assert_identical(few, many.isel(seed=slice(3)))


@pytest.mark.parametrize(
    ("part", "family"), [p for p in PLANTED if p[1].startswith(("mean of", "failing", "share", "basins"))]
)
def test_means_of_many_seeds_are_the_truth(part: str, family: str):
    experiment = families(part)[family](generator(part, family, 2, 0))
    assert isinstance(experiment.draw, Samples)
    values = experiment.draw(20_000)["sample"].values[:, 0].astype(float)
    error = values.std() / math.sqrt(values.size)
    assert abs(values.mean() - experiment.truth) < 5 * error


@pytest.mark.parametrize("sides", [1, 2])
def test_predictions_near_the_truth_are_true_in_half_of_the_cases(sides: int):
    rng = np.random.default_rng(0)
    true = sum(about(rng, 0.3, sides=sides).holds(0.3, 0.3) for _ in range(2000))
    assert stats.binomtest(true, 2000).pvalue > 1e-6


@pytest.mark.parametrize("part", PARTS)
def test_what_cannot_be_decided_is_planted_and_says_why(part: str):
    undecidable = PARTS[part].UNDECIDABLE
    assert undecidable.keys() < families(part).keys()
    assert all(undecidable.values())


def test_outcomes_that_would_be_wrong():
    experiment = families("shaped")["t^-a"](np.random.default_rng(0))

    def wrong(truth: float, refusable: bool = False) -> set[Outcome]:
        return set(
            Experiment(
                experiment.draw, 4, experiment.measure, experiment.predicts, truth, refusable=refusable
            ).wrong
        )

    low = float(experiment.predicts.low)
    assert wrong(low + 0.01) == {Outcome.REFUTED, Outcome.BROKEN}
    assert wrong(low - 0.01) == {Outcome.SUPPORTED, Outcome.BROKEN}
    assert wrong(low - 0.01, refusable=True) == {Outcome.SUPPORTED}
    assert wrong(math.nan) == {Outcome.SUPPORTED, Outcome.REFUTED, Outcome.UNDECIDED}


def test_the_plain_stretch_is_that_of_an_exact_law():
    steps = np.geomspace(1, 1000, 50)
    powers = np.array([0.5, 1.0, 1.7])
    np.testing.assert_allclose(best_stretches(steps, -((steps / 200) ** powers[:, None])), powers, atol=1e-4)


def test_a_summary_of_nothing_decided_has_no_share():
    found = summary([Score("UNDECIDED", False, False, None, None, None)])
    assert found["wrong_of_decided"] is None
    assert found["decided_share"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", [repeated.holm, repeated.more_seeds, repeated.needs, repeated.looks])
def test_every_mode_runs(mode):
    assert mode("shaped", 0, 8, 1)


def test_looks_are_declared_where_judging_takes_them(monkeypatch: pytest.MonkeyPatch):
    declared: list[int] = []

    def judge_family(claims, data_of, *, looks: int = 1):
        declared.append(looks)
        return [judge(claim, data_of(claim)) for claim in claims]

    monkeypatch.setattr(repeated, "judge_family", judge_family)
    found = repeated.looks("shaped", 0, 8, 1)
    assert sum("looks declared" in kind for kind in found) == len(repeated.EDGES)
    assert set(declared) == {1, len(repeated.LOOKS)}
