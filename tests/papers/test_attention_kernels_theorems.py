"""attention_kernels: what claims measure, on data whose every number is planted."""

import json
from typing import Any

import numpy as np
import pytest
import xarray as xr

from descentlab.judging import Broken, Claim, Mutant, Outcome, judge
from descentlab.papers import attention_kernels as ak
from descentlab.papers import load
from descentlab.papers.attention_kernels import theorems

SEEDS = 3
STEPS = np.array([0, 1, 2, 5, 10, 20, 30, 50, 100])
RATE, CONSTANT = 0.5, 0.2
BOUND = (1 - RATE * CONSTANT) ** STEPS
DIMS = {
    "loss": (), "length": (), "energy": (), "gamma": (), "beta": ("reading",), "curvature": ("end",),
    "moved": ("block",), "losses": ("start", "delta", "scale", "multiple"),
    "slopes": ("start", "delta", "scale", "multiple"),
    "outputs": ("start", "delta", "scale", "multiple", "position"),
}  # fmt: skip
ONCE = {
    "rate": (),
    "ranks": ("heads",),
    "start_size": ("block",),
    "floor": ("kernel",),
    "labels": ("position",),
}


def planted(steps: Any = STEPS, seeds: int = SEEDS, **values: Any) -> xr.Dataset:
    """A run with these settings (numbers), and with these series, whose first axes may be left out."""
    series = {k: np.asarray(v, float) for k, v in values.items() if k in DIMS | ONCE}
    settings = ak.Preset().settings() | {k: v for k, v in values.items() if k not in series}
    data = {}
    for name, x in series.items():
        own = ("seed", *ONCE[name]) if name in ONCE else ("seed", "step", *DIMS[name])
        first = (seeds, len(steps))[: len(own) - x.ndim]
        data[name] = (own, np.broadcast_to(x, (*first, *x.shape)).copy())
    about = {"about": json.dumps({"settings": settings})}
    return xr.Dataset(data, {"seed": np.arange(seeds), "step": np.asarray(steps)}, about)


def by_seed(*rows: Any) -> np.ndarray:
    return np.array(rows, float)


def test_the_range_is_that_of_the_steps_and_of_the_features():
    run = planted(loss=BOUND, N=4, n=3, H=5, D=6)
    assert theorems.span(run) == {"step": (0.0, 100.0), "HD/Nn": (2.5, 2.5)}


# ---------------------------------------------------------------- pace


@pytest.mark.parametrize("speed", [1.0, 2.0, 0.5])
def test_pace_is_that_of_the_loss_over_that_of_the_bound(speed: float):
    found = theorems.pace(planted(loss=7 * BOUND**speed, rate=RATE), np.full(SEEDS, CONSTANT))
    for part in found:
        assert part == pytest.approx([speed] * SEEDS, rel=1e-12)


def test_twice_the_rate_is_about_twice_the_pace():
    loss = (1 - 2 * RATE * 0.002) ** STEPS
    found = theorems.pace(planted(loss=loss, rate=RATE), np.full(SEEDS, 0.002))
    assert found.slowest == pytest.approx([2.0] * SEEDS, rel=0.01)
    assert np.all(found.slowest > 2)


def test_every_seed_is_held_against_its_own_bound():
    rates, constants = by_seed(0.5, 0.1, 0.01), by_seed(0.2, 3.0, 9.0)
    loss = (1 - (rates * constants)[:, None]) ** STEPS
    found = theorems.pace(planted(loss=loss, rate=rates), constants)
    assert found.slowest == pytest.approx([1.0] * SEEDS, rel=1e-12)


def test_the_slowest_record_the_last_one_and_the_last_half_are_told_apart():
    # Per step: 0.1 up to step 2, then 0.4 up to step 50, then 0.2.
    gone = np.interp(STEPS, [0, 2, 50, 100], [0, 0.2, 0.2 + 48 * 0.4, 0.2 + 48 * 0.4 + 50 * 0.2]) / 10
    bound = -np.log1p(-RATE * CONSTANT)
    found = theorems.pace(planted(loss=np.exp(-gone), rate=RATE), np.full(SEEDS, CONSTANT))
    assert found.slowest == pytest.approx([0.01 / bound] * SEEDS)
    assert found.mean == pytest.approx([(0.2 + 48 * 0.4 + 50 * 0.2) / 1000 / bound] * SEEDS)
    assert found.tail == pytest.approx([0.02 / bound] * SEEDS)


def test_pace_ends_where_the_loss_is_one_of_rounding_errors():
    # 1e-2 a step, until nothing moves any more.
    steps = np.arange(0, 41)
    loss = np.maximum(10.0 ** (-2.0 * steps), 1e-24)
    found = theorems.pace(planted(steps, loss=loss, rate=RATE), np.full(SEEDS, CONSTANT))
    expected = np.log(100) / -np.log1p(-RATE * CONSTANT)
    for part in found:
        assert part == pytest.approx([expected] * SEEDS, rel=1e-12)
    zero = theorems.pace(
        planted(steps, loss=np.where(steps < 5, 0.5**steps, 0.0), rate=RATE), np.full(SEEDS, CONSTANT)
    )
    assert zero.slowest == pytest.approx([np.log(2) / -np.log1p(-RATE * CONSTANT)] * SEEDS)


@pytest.mark.parametrize("constant", [0.0, 2.0, 2.5, np.nan])
def test_a_bound_that_says_nothing_is_broken(constant: float):
    constants = by_seed(CONSTANT, constant, CONSTANT)
    with pytest.raises(Broken, match=r"The bound needs 0 < eta times its constant < 1, got \[0\.1, "):
        theorems.pace(planted(loss=BOUND, rate=RATE), constants)


def test_a_single_step_has_a_pace():
    found = theorems.pace(planted([0, 1], loss=[1.0, 0.9], rate=RATE), np.full(SEEDS, CONSTANT))
    assert [part.tolist() for part in found] == [pytest.approx([1.0] * SEEDS)] * 4


def test_a_loss_that_rises_is_far_below_the_bound():
    loss = by_seed(BOUND, np.where(STEPS == 2, 1.5, BOUND), BOUND)
    found = theorems.bounded(planted(loss=loss, rate=RATE), np.full(SEEDS, CONSTANT)).noting(other=3.0)
    assert found.value == pytest.approx(-6 / 3)
    assert found.notes["other"] == 3
    assert found.notes["mean_pace"] == pytest.approx(1.0)
    assert found.notes["tail_pace"] == pytest.approx(1.0)
    fine = theorems.bounded(planted(loss=BOUND**2, rate=RATE), np.full(SEEDS, CONSTANT))
    assert fine.value == pytest.approx(np.log10(2))


def test_a_pace_that_falls_may_go_on_falling():
    steps = np.arange(0, 101, 10)
    logs = np.where(steps <= 50, 4 * steps, 200 + (steps - 50))
    falling = planted(steps, loss=(1 - CONSTANT * RATE) ** logs, rate=RATE)
    slow = theorems.bounded(falling, np.full(SEEDS, CONSTANT))
    low, high = slow.interval(0.95)
    assert (low, high) == pytest.approx((0.0, np.log10(2.5)))
    # What has come down to rounding errors does not go on.
    over = falling.assign(loss=falling["loss"].where(falling["step"] < 100, 1e-30))
    ended = theorems.bounded(over, np.full(SEEDS, CONSTANT))
    assert ended.interval(0.95)[0] == pytest.approx(ended.value)


def curved(**values: Any) -> xr.Dataset:
    return planted(rate=RATE, curvature=[[-0.1, 1.0]] * (len(STEPS) - 1) + [[-1.6, 1.2]], **values)


def test_both_readings_of_beta_are_those_of_the_start():
    beta = np.stack([CONSTANT * np.linspace(1, 0.6, len(STEPS)), np.full(len(STEPS), 3 * CONSTANT)], axis=1)
    run, generic = curved(loss=BOUND**2, beta=beta), curved(loss=BOUND**0.25, beta=beta)
    found = theorems.all_weights_pace(run, generic)
    assert found.value == pytest.approx(np.log10(2))
    # (1 - 0.1)^2t against (1 - 0.3)^t, and the slower of the two.
    printed = theorems.all_weights_rate_bound_as_printed(curved(loss=BOUND**3, beta=beta), run)
    assert printed.value == pytest.approx(np.log10(2 * np.log(0.9) / np.log(0.7)))
    assert found.notes["eta_beta"] == pytest.approx(0.1)
    assert found.notes["least_beta_over_first"] == pytest.approx(0.6)
    assert found.notes["slowest_pace_from_generic"] == pytest.approx(0.25)
    assert found.notes["eta_L"] == pytest.approx(RATE * 1.6)


def test_gamma_is_that_of_the_start():
    found = theorems.pace_against(
        "gamma", curved(loss=BOUND**3, gamma=CONSTANT * np.linspace(1, 2, len(STEPS)))
    )
    assert found.value == pytest.approx(np.log10(3))
    assert found.notes["eta_gamma"] == pytest.approx(0.1)
    assert found.notes["least_gamma_over_first"] == pytest.approx(1.0)


def judged(name: str, **data: xr.Dataset) -> Any:
    return judge(named(name), data)


def altered(mutant: Mutant, data: dict[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    assert mutant.alter is not None
    return dict(mutant.alter(data))


def named(name: str) -> Claim:
    return next(claim for claim in load("attention_kernels").claims if claim.name == name)


@pytest.mark.parametrize(("speed", "outcome"), [(1.5, Outcome.SUPPORTED), (0.5, Outcome.REFUTED)])
def test_bounds_are_judged_and_what_is_frozen_is_refuted(speed: float, outcome: Outcome):
    spread = np.exp(0.01 * np.arange(SEEDS))[:, None]
    run = curved(loss=BOUND ** (speed * spread), gamma=np.full(len(STEPS), CONSTANT))
    assert judged("query_only_rate_bound_softmax", run=run).outcome == outcome
    still = altered(theorems.FROZEN, {"run": run})
    assert judged("query_only_rate_bound_softmax", **still).outcome == Outcome.REFUTED


# ---------------------------------------------------------------- descent inequalities


def test_the_coefficient_is_the_largest_that_holds_at_all_records():
    spent = np.array([0.0, 1.0, 2.0, 4.0])
    loss = by_seed([10, 9, 8.5, 8], [10, 8, 6, 2], [10, 11, 9, 8])
    run = planted([0, 1, 2, 3], loss=loss, length=spent, energy=2 * spent, rate=RATE,
                  curvature=[[-1.0, 2.0]] * 4)  # fmt: skip
    assert theorems.coefficients(run, "length") == pytest.approx([0.5, 2.0, -1.0])
    for row, a in zip(loss, (0.5, 2.0, -1.0), strict=True):
        assert np.all(row <= row[0] - a * spent + 1e-12)
        assert not np.all(row <= row[0] - (a + 0.01) * spent)
    printed, squared = theorems.softmax_descent_as_printed(run), theorems.softmax_descent_squared(run)
    assert printed.value == pytest.approx(0.5)
    assert squared.value == pytest.approx(0.25)
    assert printed.notes == {"least_of_all_seeds": -1.0, "eta_L": 1.0}


def test_without_a_gradient_there_is_no_coefficient():
    still = planted([0, 1, 2], loss=1.0, energy=by_seed([0, 1, 1], [0, 0, 0], [0, 1, 1]))
    with pytest.raises(Broken, match="energy stays 0: there is no gradient"):
        theorems.coefficients(still, "energy")
    late = planted([0, 1, 2], loss=[2.0, 2.0, 1.0], energy=[0.0, 0.0, 4.0])
    assert theorems.coefficients(late, "energy").tolist() == [0.25] * SEEDS


# ---------------------------------------------------------------- heads, movement, convexity

HEADS: dict[str, Any] = {"N": 4, "n": 3, "D": 5, "H": 4}


@pytest.mark.parametrize(
    ("ranks", "excess"),
    [([5, 10, 12, 12], 0), ([5, 9, 11, 12], 1), ([5, 12, 12, 12], -1), ([5, 5, 5, 5], 2)],
)
def test_heads_are_counted_from_the_first_that_suffices(ranks: list[int], excess: int):
    run, fine = planted([0], ranks=ranks, **HEADS), planted([0], ranks=[5, 10, 12, 12], **HEADS)
    assert theorems.overparameterisation_is_needed(softmax=run, gaussian=fine).value == excess
    assert theorems.overparameterisation_is_needed(softmax=fine, gaussian=run).value == excess


def test_as_many_features_as_positions_suffice():
    run = planted([0], ranks=[6, 12], N=4, n=3, D=6, H=2)
    assert theorems.overparameterisation_is_needed(softmax=run).value == 0
    mixed = planted([0], ranks=by_seed([6, 12], [6, 11], [6, 12]), N=4, n=3, D=6, H=2)
    assert theorems.overparameterisation_is_needed(softmax=mixed).value == pytest.approx(1 / 3)


def test_movement_is_that_of_all_blocks_and_of_the_worse_kernel():
    def run(moved: Any) -> xr.Dataset:
        return planted([0, 9], moved=moved, start_size=[0.0, 6.0, 8.0])

    near, far = run([[9.0, 9, 9], [3, 0, 4]]), run(by_seed(*[[[0, 0, 0], [6, 8, x]] for x in (0, 24, 0)]))
    assert theorems.weights_move_a_bit(softmax=near, gaussian=near).value == pytest.approx(0.5)
    assert theorems.weights_move_a_bit(softmax=near, gaussian=far).value == pytest.approx((1 + 2.6 + 1) / 3)
    notes = theorems.weights_move_a_bit(softmax=far, gaussian=near).notes
    assert notes == {"softmax": pytest.approx(4.6 / 3), "gaussian": pytest.approx(0.5)}


def test_concavity_is_the_most_negative_curvature_of_either_kernel():
    def run(*ends: Any) -> xr.Dataset:
        return planted([0, 1], curvature=ends)

    bent, convex = run([-1.0, 10], [-4, 20]), run([0.5, 3], [1, 7])
    assert theorems.start_is_near_convex(bent, convex).value == pytest.approx(0.2)
    assert theorems.start_is_near_convex(convex, bent).value == pytest.approx(0.2)
    found = theorems.start_is_near_convex(convex, convex, generic_softmax=bent)
    assert found.value == 0
    assert found.notes == {"generic_softmax": pytest.approx(0.2)}


# ---------------------------------------------------------------- kernels compared


def cells(losses: Any, slopes: Any = 1.0, steps: Any = (0, 10), **values: Any) -> xr.Dataset:
    """A run of one start whose losses and slopes are given by (seed,) step and step size."""
    losses = np.asarray(losses, float)
    slopes = np.broadcast_to(np.asarray(slopes, float), losses.shape)
    return planted(
        steps, losses=losses[..., None, None, None, :], slopes=slopes[..., None, None, None, :], **values
    )


def test_the_best_step_size_is_that_of_the_least_loss_in_the_end():
    losses = by_seed([[4, 4, 4], [1, 3, np.nan]], [[4, 4, 4], [np.nan, 2, 3]], [[4, 4, 4], [3, 2, 0.4]])
    slopes = by_seed([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]])
    run = cells(losses, slopes)
    chosen = theorems.best(run)
    assert chosen["losses"].isel(step=-1).values.ravel().tolist() == [1, 2, 0.4]
    assert chosen["slopes"].isel(step=-1).values.ravel().tolist() == [4, 5, 6]
    assert theorems.left(run).values.ravel() == pytest.approx([0.25, 0.5, 0.1])
    assert theorems.log_left(run) == pytest.approx(np.log10([0.25, 0.5, 0.1]))
    assert theorems.only(run)["losses"].isel(step=0).values.tolist() == [4, 4, 4]


def test_a_seed_that_no_step_size_keeps_finite_is_broken():
    run = cells(by_seed([[4, 4], [1, 2]], [[4, 4], [np.nan, np.nan]], [[4, 4], [np.inf, 1]]))
    assert theorems.only(run)["losses"].isel(step=-1).values.tolist() == [1, np.inf, 1]
    with pytest.raises(Broken, match="seed 1"):
        theorems.separation(run, cells([[4.0, 4.0], [1.0, 1.0]]))


def test_the_best_step_size_is_chosen_for_each_cell():
    losses = np.ones((2, 2, 2, 2, 2))
    losses[1] = np.arange(16).reshape(2, 2, 2, 2)[::-1]
    losses[1, 0, 0, 0] = [5, 0.5]
    run = planted([0, 1], losses=losses, slopes=losses)
    found = theorems.best(run)["losses"]
    assert set(found.dims) == {"seed", "step", "start", "delta", "scale"}
    ends = found.isel(step=-1, seed=0).transpose("start", "delta", "scale").values
    np.testing.assert_array_equal(ends, losses[1].min(axis=-1))


def test_what_is_solved_is_solved():
    run = cells([[2.0, 2.0], [1e-30, 1.0]])
    assert theorems.left(run).values.ravel().tolist() == [theorems.SOLVED] * SEEDS
    other = cells([[2.0, 2.0], [1e-9, 0.0]])
    assert theorems.advantage(run, other).tolist() == [0] * SEEDS
    assert theorems.separation(run, other).value == 0


def test_the_advantage_is_the_ratio_of_losses_and_not_of_what_is_left():
    softmax, gaussian = cells([[8.0, 8.0], [np.nan, 2.0]]), cells([[2.0, 2.0], [0.02, 0.5]])
    assert theorems.advantage(softmax, gaussian) == pytest.approx([2.0] * SEEDS)
    assert theorems.advantage(gaussian, softmax) == pytest.approx([-2.0] * SEEDS)
    # No further than to what is solved, a millionth of the larger loss.
    assert theorems.advantage(softmax, cells([[2.0], [1e-12]])) == pytest.approx([np.log10(2 / 8e-6)] * SEEDS)
    found = theorems.separation(softmax, gaussian, softmax_with_values=gaussian, gaussian_with_values=softmax)
    assert found.value == pytest.approx(2.0)
    assert found.notes == {
        "softmax": pytest.approx(np.log10(0.25)),
        "gaussian": pytest.approx(-2),
        "ratio_with_values": pytest.approx(-2),
        "softmax_at_largest_step": 1,
        "gaussian_at_largest_step": 0,
    }


def test_few_heads_leave_what_the_better_kernel_leaves():
    softmax, gaussian = cells([[1.0, 1.0], [0.1, 0.2]]), cells([[1.0, 1.0], [0.5, 0.01]])
    found = theorems.few_heads_do_not_fit(softmax=softmax, gaussian=gaussian)
    assert found.value == pytest.approx(-2)
    assert found.notes == {"softmax": pytest.approx(-1), "gaussian": pytest.approx(-2)}
    assert theorems.few_heads_do_not_fit(softmax=gaussian, gaussian=softmax).value == pytest.approx(-2)


def test_steepness_is_the_gradient_over_the_root_of_the_loss_at_the_best_step():
    run = cells([[2.0, 2.0], [0.5, 1.0]], [[9.0, 9.0], [0.3, 7.0]])
    assert theorems.steepness(run) == pytest.approx([0.3] * SEEDS)
    gone = cells([[2.0], [8e-6], [1e-21], [1e-24]], [[9.0], [4e-4], [1e-12], [5.0]], steps=(0, 1, 2, 3))
    assert theorems.steepness(gone) == pytest.approx([0.1] * SEEDS)
    still = cells([[2.0], [2.0]], [[0.0], [0.0]])
    assert theorems.steepness(still) == pytest.approx([1e-16 / 2] * SEEDS)
    found = theorems.softmax_gradients_vanish(softmax=run, gaussian=gone)
    assert found.value == pytest.approx(np.log10(0.1 / 0.3))
    assert found.notes["softmax"] == pytest.approx(np.log10(0.3))
    assert found.notes["gaussian"] == pytest.approx(-1)


def test_below_the_floor_counts_the_worst_record_against_that_of_softmax():
    loss = by_seed([4, 3, 2, 2.5], [4, 3, 3, 3], [4, 0, 4, 4])
    run = planted([0, 1, 2, 3], loss=loss, floor=[3.0, 0.0])
    found = theorems.softmax_respects_floor(run)
    assert found.value == pytest.approx((0.25 + 0 + 0.75) / 3)
    assert found.notes == {
        "floor": pytest.approx(0.75), "end_over_floor": pytest.approx(1.0), "seeds_without_floor": 0,
    }  # fmt: skip
    assert theorems.softmax_respects_floor(planted([0, 1], loss=[4.0, 3.0], floor=[3.0, 9.0])).value == 0


def test_seeds_without_a_floor_say_nothing_of_it():
    loss, floors = by_seed([4.0, 2.0], [4.0, 0.0], [4.0, 0.0]), by_seed([3.0, 0.0], [0.0, 0.0], [0.0, 0.0])
    run = planted([0, 1], loss=loss).assign(floor=(("seed", "kernel"), floors))
    found = theorems.softmax_respects_floor(run)
    assert found.seeds == 1
    assert found.value == pytest.approx(0.25)
    assert found.notes["seeds_without_floor"] == 2
    with pytest.raises(Broken, match="floor of softmax is 0"):
        theorems.softmax_respects_floor(run.isel(seed=[1, 2]))


@pytest.mark.parametrize(("less", "outcome"), [(0.0, Outcome.SUPPORTED), (1e-6, Outcome.REFUTED)])
def test_going_below_the_floor_is_refuted(less: float, outcome: Outcome):
    loss = by_seed(*[[4.0, 3.0 - less * x] for x in (1.0, 1.1, 1.2)])
    run = planted([0, 1], loss=loss, floor=[3.0, 0.0])
    assert judged("softmax_respects_floor", run=run).outcome == outcome


# ---------------------------------------------------------------- solutions

LABELS = np.array([3.0, 4.0, 0.0])  # |y| = 5, so that what is nearer than 0.25 is one


def ending(*records: Any) -> xr.Dataset:
    """A run of starts, each with these outputs in their first coordinate at the records."""
    first = np.asarray(records, float)
    outputs = np.zeros((*first.shape, 1, 1, 1, 3))
    outputs[..., 0, 0, 0, 0] = first
    losses = np.ones((*first.shape, 1, 1, 1))
    losses[-1] = 0.01
    # Stationary from the first record after the start on.
    slopes = np.ones_like(losses)
    slopes[1:] = 1e-4
    return planted(10 * np.arange(len(first)), outputs=outputs, labels=LABELS, losses=losses, slopes=slopes)


@pytest.mark.parametrize(
    ("ends", "count"),
    [
        ([0, 0, 0, 0], 1),
        ([0, 0.24, 0, 0.1], 1),
        ([0, 0.26, 0, 0], 2),
        ([0, 10, 20, 30], 4),
        ([7, 7.1, -2, -2.1], 2),
        # A chain of near neighbours is one.
        ([0, 0.2, 0.4, 0.6], 1),
    ],
)
def test_solutions_are_ends_that_are_apart(ends: list[float], count: int):
    assert theorems.ends(ending([0] * 4, ends), -1).solutions.tolist() == [count] * SEEDS


def test_ends_that_are_neither_solved_nor_stationary_do_not_count():
    run = ending([0] * 4, [0, 10, 20, 30])
    assert theorems.ends(run, 0).solutions.tolist() == [0] * SEEDS
    assert theorems.ends(run, 0).settled.tolist() == [0.0] * SEEDS
    run["slopes"][:, -1, 1:] = 1.0
    assert theorems.ends(run, -1).solutions.tolist() == [1] * SEEDS
    assert theorems.ends(run, -1).settled.tolist() == [0.25] * SEEDS
    run["losses"][:, -1, 1] = 1e-7
    assert theorems.ends(run, -1).solutions.tolist() == [2] * SEEDS


def test_solutions_are_counted_by_seed_and_in_units_of_its_own_labels():
    run = ending([0, 0, 0], [0, 1, 2])
    labels = by_seed(LABELS, 10 * LABELS, 3 * LABELS)
    run = run.assign(labels=(("seed", "position"), labels))
    assert theorems.ends(run, -1).solutions.tolist() == [3, 1, 3]
    run["outputs"][2, -1, 2] = run["outputs"][2, -1, 1]
    assert theorems.ends(run, -1).solutions.tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("half", "drift"), [([0, 9, 0, 0], (0, 1)), ([0, 9, 20, 0], (0, 0)), ([0, 9, 20, 40], (1, 0))]
)
def test_more_solutions_go_on_as_they_did_since_half_way(half: list[float], drift: tuple[float, float]):
    one = [0, 0, 0, 0]
    softmax, gaussian = ending(one, half, [0, 9, 20, 0]), ending(one, one, one)
    found = theorems.softmax_has_more_local_solutions(softmax, gaussian)
    assert found.value == 2
    assert found.notes["softmax"] == 3
    assert found.notes["gaussian"] == 1
    assert found.notes["softmax_settled"] == 1
    low, high = found.interval(0.95)
    assert (found.value - low, high - found.value) == pytest.approx(drift)
    back = theorems.softmax_has_more_local_solutions(gaussian, softmax)
    assert back.value == -2


def test_outputs_that_are_not_finite_are_broken():
    run = ending([0, 0], [0, np.nan])
    verdict = judged("softmax_has_more_local_solutions", softmax=run, gaussian=run)
    assert verdict.outcome == Outcome.BROKEN


def test_a_loss_of_zero_at_the_start_is_broken():
    with pytest.raises(Broken):
        theorems.pace(planted(loss=0.0, rate=RATE), np.full(SEEDS, CONSTANT))


# ---------------------------------------------------------------- mutants


def test_with_one_kernel_in_place_of_the_other_nothing_is_beaten():
    losses = {"softmax": [[8.0], [2.0]], "gaussian": [[8.0], [0.02]]}
    names = named("gaussian_beats_softmax_generic").runs
    spread = np.array([1.0, 1.01, 1.02])[:, None, None]
    data = {name: cells(spread * np.array(losses[name.split("_")[0]])) for name in names}
    assert judged("gaussian_beats_softmax_generic", **data).outcome == Outcome.SUPPORTED
    same = altered(theorems.SAME, data)
    assert same["gaussian_paired"] is data["softmax_paired"]
    assert judged("gaussian_beats_softmax_generic", **same).outcome == Outcome.REFUTED
