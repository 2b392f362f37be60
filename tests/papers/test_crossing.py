"""What cells say of planted runs, and which declarations are refused."""

import math
from typing import Any

import numpy as np
import pytest
import xarray as xr

from descentlab.atlas._cells import judged
from descentlab.engine import Settings, parameter, preset
from descentlab.judging import Broken
from descentlab.papers import KERNEL_WORDS, OPTIMIZER_WORDS, Crossing
from descentlab.papers._crossings import Goal, Variant, share_of_start, spaced

STEPS = np.array([0, 1, 2, 4, 8, 16])


@preset
class Preset(Settings):
    eta: float = parameter("step size", default=0.1, above=0)
    optimizer: str = parameter("optimiser", default="gd")


LEARNS = Goal("the loss halves", share_of_start("loss"), below=0.5)
RECOVERS = Goal("the cosine is high", lambda run: run["cosine"], above=0.9)
REASONS = {"gaussian": "no keys", "linear": "no logits", "sign": "s", "adam": "a", "proximal": "p"}


def crossing(**changes: Any) -> Crossing:
    own: dict[str, Any] = {
        "task": "planted", "preset": Preset(), "rate": ("eta",), "kernels": {"softmax": {}},
        "optimizers": {"gd": Variant({"optimizer": "gd"}, (0.1, 1.0))}, "learns": LEARNS,
        "recovers": RECOVERS, "own": ("gd", "softmax"), "unfit": REASONS,
    }  # fmt: skip
    return Crossing(**{**own, **changes})


def run(halves_at: list[float], cosines: list[float], diverged: tuple[int, ...] = ()) -> xr.Dataset:
    """Seeds whose loss falls from 2 to 0.5 at given steps, and that end with given cosines."""
    loss = np.where(STEPS[None, :] >= np.array(halves_at)[:, None], 0.5, 2.0)
    cosine = np.broadcast_to(np.array(cosines)[:, None], loss.shape)
    marks = np.where(np.isin(np.arange(len(loss)), diverged), 4, -1)
    dims = ("seed", "step")
    return xr.Dataset(
        {"loss": (dims, loss), "cosine": (dims, cosine), "diverged_at": ("seed", marks)},
        {"seed": np.arange(len(loss)), "step": STEPS},
    )


def test_the_fastest_rate_learns_and_the_one_nearest_to_the_truth_recovers():
    slow, fast = run([8] * 8, [0.95] * 8), run([2] * 8, [0.1] * 8)
    cell = judged(crossing(), {0.1: slow, 1.0: fast})
    assert (cell.learns.word, cell.recovers.word) == ("yes", "yes")
    assert (cell.learns.rates, cell.recovers.rates) == ((1.0,), (0.1,))
    # The record before the hit is the earliest step at which it may have been.
    assert (cell.learns.detail.value, cell.learns.detail.interval()) == (2.0, (1.0, 2.0))
    assert cell.recovers.detail.value == 0.95
    assert cell.shares == {0.1: (1.0, 8.0, 1.0), 1.0: (1.0, 2.0, 0.0)}


def test_no_seed_speaks_of_a_rate_that_it_chose():
    # The even seeds learn at the small rate alone, the odd ones at the large rate alone.
    even, odd = [1, math.inf] * 4, [math.inf, 1] * 4
    cell = judged(crossing(), {0.1: run(even, [0.95, 0.0] * 4), 1.0: run(odd, [0.0, 0.95] * 4)})
    assert cell.learns.share.value == cell.recovers.share.value == 0.0
    assert cell.learns.rates == cell.recovers.rates == (0.1, 1.0)
    assert (cell.learns.word, math.isinf(cell.learns.detail.value)) == ("no", True)


def test_choosing_among_many_rates_that_are_all_chance_does_not_make_one_good():
    draw = np.random.default_rng(0)
    wins, best = [], []
    for _ in range(30):
        runs = {0.1 * i: run([16] * 8, (draw.random(8) < 0.5).tolist()) for i in range(1, 8)}
        cell = judged(crossing(), runs)
        wins.append(cell.recovers.share.value)
        best.append(max(shares[2] for shares in cell.shares.values()))
    # Of 240 seeds half recover; 4.9 deviations are a chance of 1e-6. The best rate in hindsight has more.
    assert abs(np.mean(wins) - 0.5) < 4.9 * 0.5 / math.sqrt(240)
    assert np.mean(best) > 0.7


def test_seeds_that_diverge_neither_learn_nor_recover():
    cell = judged(crossing(), {0.1: run([1] * 8, [0.95] * 8, diverged=(0, 1, 2, 3, 4, 5, 6, 7))})
    assert (cell.learns.word, cell.recovers.word) == ("no", "no")
    assert cell.recovers.detail.value == -math.inf
    some = judged(crossing(), {0.1: run([1] * 8, [0.95] * 8, diverged=(0,))})
    assert some.learns.share.value == 7 / 8
    assert some.learns.word == "unclear"


@pytest.mark.parametrize(("best", "edge"), [(0, True), (1, False), (2, True)])
def test_a_best_rate_at_the_end_of_the_range_is_told(best: int, edge: bool):
    runs = {
        float(i + 1): run([1 if i == best else 8] * 4, [0.95 if i == best else 0.0] * 4) for i in range(3)
    }
    cell = judged(crossing(), runs)
    assert cell.learns.at_the_edge == cell.recovers.at_the_edge == edge


def test_one_seed_cannot_choose_for_another():
    with pytest.raises(Broken, match="2 seeds or more, got 1"):
        judged(crossing(), {0.1: run([1], [0.95])})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizers": {"newton": Variant({}, (1.0,))}}, "takes gd, sign, adam, proximal, got newton"),
        ({"kernels": {"cubic": {}}}, "takes softmax, gaussian, linear, got cubic"),
        ({"unfit": {"gaussian": "no keys"}}, "must say why gd with linear does not fit"),
        ({"own": ("sign", "softmax")}, "takes a pair that fits"),
    ],
)
def test_declarations_that_say_too_little_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        crossing(**changes)


def test_a_goal_is_below_or_above():
    with pytest.raises(ValueError, match="one of below and above"):
        Goal("both", lambda run: run["loss"], below=1.0, above=0.0)


def test_runs_have_the_rate_in_its_fields_and_reasons_are_by_kernel_optimizer_or_pair():
    own = crossing()
    assert [p.settings() for p in own.runs("gd", "softmax").values()] == [
        {"eta": 0.1, "optimizer": "gd"}, {"eta": 1.0, "optimizer": "gd"},
    ]  # fmt: skip
    fitting = [(o, k) for o in OPTIMIZER_WORDS for k in KERNEL_WORDS if own.fits(o, k)]
    assert fitting == [("gd", "softmax")]
    assert (own.why_not("sign", "softmax"), own.why_not("gd", "linear")) == ("s", "no logits")
    assert spaced(1e-3, 1e-1, 3) == (1e-3, 1e-2, 1e-1)
