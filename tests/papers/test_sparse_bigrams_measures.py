"""sparse_bigrams: what claims measure, on data whose every number is planted."""

import json
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr

from descentlab.judging import Broken, Claim, Outcome, judge
from descentlab.papers import load
from descentlab.papers import sparse_bigrams as sb
from descentlab.papers.sparse_bigrams import theorems

SEEDS = 4
P = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])
SIZES = (125, 250, 500, 1000, 2000, 4000, 8000)
RNG = np.random.default_rng(0)
SPREAD = np.exp(0.02 * RNG.normal(size=SEEDS))


def planted(steps: Any, began: Any = (0, 10, 100), seeds: int = SEEDS, **values: Any) -> xr.Dataset:
    """A run with these settings (numbers and words) and series (arrays over seeds and steps)."""
    steps = np.asarray(steps)
    p = sb.Preset()
    settings = p.settings() | {k: v for k, v in values.items() if k in p.settings()}
    began = np.broadcast_to(np.asarray(began), (seeds, len(np.asarray(began).T))).copy()
    stage = sum(((steps[None, :] >= b) & (b >= 0)).astype(int) for b in began.T[1:, :, None])
    series: dict[str, Any] = {
        "a_V": 0.0, "a_A": 0.0, "Delta_V": 0.0, "Delta_A": 0.0, "star_error": 1.0, "attention_error": 1.0,
        "value_error": 1.0, "excess_loss": 1.0, "attention_cosine": 0.5, "star_cosine": 0.5, "stage": stage,
    }  # fmt: skip
    series |= {k: v for k, v in values.items() if k not in settings}
    data: dict[str, Any] = {
        name: (("seed", "step"), np.broadcast_to(np.asarray(x), (seeds, len(steps))))
        for name, x in series.items()
    }
    T = settings["T"]
    data["attention_size"] = ("seed", np.full(seeds, np.sqrt(0.5 - 1 / T)))
    data["value_size"] = ("seed", np.full(seeds, 0.4))
    data["final_began"] = (("seed", "part"), began)
    data["P"] = (("seed", "next", "token"), np.broadcast_to(P, (seeds, 3, 3)))
    data["mu"] = (("seed", "token"), np.full((seeds, 3), 1 / 3))
    about = {"about": json.dumps({"settings": settings})}
    return xr.Dataset(data, {"seed": np.arange(seeds), "step": steps}, about)


SIZE = np.sqrt(0.5)  # |Q|_mu of two equal weights


# ---------------------------------------------------------------- seeds and stages


def test_seeds_that_do_not_end_stage_one_are_left_out_and_counted():
    began = np.array([[0, 10, 100], [0, -1, -1], [0, 20, 100], [0, -1, -1]])
    run = planted([0, 50, 90, 120], began, Delta_V=np.array([[1.0], [50.0], [3.0], [70.0]]))
    (kept,), notes = theorems.kept(run)
    assert kept["seed"].values.tolist() == [0, 2]
    assert notes == {"stage_one_failed": 2.0}
    estimate = theorems.value_noise_stays_small(run)
    assert estimate.value == pytest.approx((1 + 3) / 2 / 0.4)
    assert estimate.notes["stage_one_failed"] == 2
    assert estimate.seeds == 2
    other = planted([0, 50], np.array([[0, -1, -1], [0, 5, 9], [0, 5, 9], [0, -1, -1]]))
    both, notes = theorems.kept(run, other)
    assert [x["seed"].values.tolist() for x in both] == [[2], [2]]
    assert notes == {"stage_one_failed": 3.0}


def test_without_any_seed_past_stage_one_nothing_is_measured():
    run = planted([0, 50], (0, -1, -1))
    for measure in (
        theorems.value_noise_stays_small,
        theorems.recovery,
        theorems.sgd_fails_with_large_step,
        theorems.normalisation_helps,
    ):
        with pytest.raises(Broken, match=r"Stage 1 .* seed"):
            measure(run)


def test_the_end_of_stage_two_is_the_last_record_before_rounding():
    began = np.array([[0, 10, 100], [0, 10, 60]])
    run = planted([0, 50, 90, 120], began, seeds=2, a_A=np.array([[1.0, 2, 3, 4], [5, 6, 7, 8]]))
    assert theorems.last_of_stage_two(run)["a_A"].values.tolist() == [3, 6]


# ---------------------------------------------------------------- one task


def test_the_line_is_as_far_as_the_largest_gap():
    line = planted([0, 10, 20], a_V=[0.0, 0.5, 1.0], a_A=[0.0, 0.2, 1.0])
    for name, series, gap in (
        ("a_V", [0.0, 0.5, 1.3], 0.3),
        ("a_A", [0.0, 0.1, 1.0], 0.1),
        ("Delta_V", [0.0, 0.02, 0.0], 0.02 / 0.4),
        ("Delta_A", [0.0, 0.0, 0.5], 0.5 / np.sqrt(0.5 - 1 / 1000)),
    ):
        full = line.copy().assign({name: (("seed", "step"), np.broadcast_to(series, (SEEDS, 3)))})
        assert theorems.population_stays_on_the_line(full, line).value == pytest.approx(gap), name
    assert theorems.population_stays_on_the_line(line, line).value == 0


def test_recovery_and_failure_are_the_last_records():
    run = planted(
        [0, 50, 120], attention_error=SIZE * np.array([9, 9, 0.3]), value_error=0.4 * np.array([9, 9, 0.2]),
        star_error=SIZE * np.array([9, 9, 0.07]),
    )  # fmt: skip
    found = theorems.recovery(run)
    assert found.value == pytest.approx(0.3)
    assert (found.notes["attention"], found.notes["value"]) == (pytest.approx(0.3), pytest.approx(0.2))
    worse = theorems.recovery(run.assign(value_error=run["value_error"] * 2))
    assert worse.value == pytest.approx(0.4)
    failed = theorems.sgd_fails_with_large_step(run)
    assert failed.value == pytest.approx(0.3)
    assert failed.notes["after_rounding"] == pytest.approx(0.07)


def test_slowness_is_read_when_the_proximal_run_is_half_done():
    rising = np.array([0.0, 0.3, 0.6, 0.9])
    proximal = planted([0, 20, 60, 80], a_V=rising, a_A=rising, star_error=0.0)
    sgd = planted([0, 40, 80], attention_error=SIZE * np.array([1.0, 0.8, 0.4]))
    found = theorems.sgd_is_slow_with_small_step(sgd, proximal)
    half = 20 + 40 * (0.5 - 0.3) / 0.3
    assert found.value == pytest.approx(0.8 - 0.4 * (half - 40) / 40)  # between 40 and 80
    assert found.notes["proximal_steps"] == pytest.approx(half)
    with pytest.raises(Broken, match="does not get its signals to one half"):
        theorems.sgd_is_slow_with_small_step(sgd, planted([0, 20], a_V=0.4, a_A=0.9, star_error=0.0))


def test_normalisation_compares_the_error_before_and_after_rounding():
    run = planted([0, 50, 90, 120], attention_error=[1.0, 1.0, 0.5, 7.0], star_error=[1.0, 1.0, 0.1, 7.0])
    found = theorems.normalisation_helps(run)
    assert found.value == pytest.approx(0.2)


def test_noise_to_signal_is_read_at_the_end_of_stage_two():
    size = np.sqrt(0.5 - 1 / 1000)
    run = planted([0, 50, 90, 120], Delta_A=[9.0, 0.8, 0.3, 9.0], a_A=[0.01, 0.4, 0.6, 0.1])
    found = theorems.noise_to_signal(run)
    assert found.value == pytest.approx(0.3 / (0.6 * size))
    assert found.notes["peak"] == pytest.approx(0.8 / (0.4 * size)), "stage 2 alone"
    assert found.notes["a_A"] == pytest.approx(0.6)


def test_likeness_is_the_cosine_of_what_was_learned():
    rng, T = np.random.default_rng(4), 6
    mu, seeds = np.full(3, 1 / 3), 2
    A = rng.dirichlet(np.ones(T), size=(seeds, 3))
    V = rng.normal(size=(seeds, 3, 3))
    linear = planted([0, 10], seeds=seeds, T=T).assign(
        final_params_A=(("seed", "k", "t"), A), final_params_V=(("seed", "i", "j"), V)
    )
    logits = np.log(A) + rng.normal(size=(seeds, 3, 1))
    softmax = linear.assign(final_params_A=(("seed", "k", "t"), logits))
    assert theorems.softmax_matches_linear(softmax, linear).value == pytest.approx(1.0)
    turned = softmax.assign(final_params_V=(("seed", "i", "j"), 2 * mu[None, :, None] - V))
    assert theorems.softmax_matches_linear(turned, linear).value == pytest.approx(-1.0)
    half = softmax.assign(final_params_A=(("seed", "k", "t"), logits + rng.normal(size=logits.shape)))
    other = np.exp(half["final_params_A"].values)
    other = other / other.sum(axis=2, keepdims=True) - 1 / T
    own = A - 1 / T
    cosines = [
        np.sum(a * b) / np.sqrt(np.sum(a * a) * np.sum(b * b)) for a, b in zip(own, other, strict=True)
    ]
    assert theorems.softmax_matches_linear(half, linear).value == pytest.approx(np.mean(cosines))


def test_the_simulation_is_as_far_as_its_farthest_quantity():
    spread = np.linspace(-0.1, 0.1, SEEDS)[:, None]
    base = {"a_V": 0.4, "a_A": 0.2, "Delta_A": 0.1, "Delta_V": 0.05}
    steps = [0, 20, 60, 99, 150]

    def with_factor(**factors: float) -> xr.Dataset:
        series: dict[str, Any] = {
            k: v * factors.get(k, 1.0) * np.exp(spread + 0 * np.arange(5.0)) for k, v in base.items()
        }
        # Records outside stage 2 do not count.
        outside = np.isin(steps, [0, 150])
        return planted(steps).assign(
            {k: (("seed", "step"), np.where(outside, 1e3, x)) for k, x in series.items()}
        )

    def measure(real, simulated):
        return theorems.simulated_over_real(real, simulated, *theorems.SIGNALS)

    found = measure(with_factor(), with_factor(a_A=1.2, Delta_A=0.7))
    assert found.value == pytest.approx(-np.log(0.7))
    assert found.notes["log_ratio_of_a_A"] == pytest.approx(np.log(1.2))
    assert found.notes["log_ratio_of_Delta_A"] == pytest.approx(np.log(0.7))
    assert measure(with_factor(), with_factor(Delta_V=3.0)).value == pytest.approx(0, abs=1e-12)
    both = theorems.simulated_over_real(with_factor(), with_factor(Delta_V=3.0), "a_V", "Delta_V")
    assert both.value == pytest.approx(np.log(3))
    low, high = both.interval(0.95)
    error = spread.std(ddof=1) * np.sqrt(2 / SEEDS)
    assert high - low == pytest.approx(2 * 3.182446 * error, rel=1e-5)


# ---------------------------------------------------------------- over sizes


def test_half_times_need_both_signals_and_the_pattern():
    up = np.array([0.0, 0.6, 0.7, 0.8])
    late = np.array([0.0, 0.1, 0.55, 0.8])
    steps, good = [0, 10, 20, 30], 0.05 * SIZE
    # Between records, on a straight line.
    early, later = 10 * 0.5 / 0.6, 10 + 10 * 0.4 / 0.45
    for a_V, a_A, time in ((up, up, early), (up, late, later), (late, up, later)):
        found = theorems.half_time(planted(steps, a_V=a_V, a_A=a_A, star_error=good))
        assert found.tolist() == pytest.approx([time] * SEEDS)
    pattern = np.array([1, 1, 1, 0.09]) * SIZE
    assert theorems.half_time(planted(steps, a_V=up, a_A=up, star_error=pattern)).tolist() == [30] * SEEDS
    assert theorems.half_time(planted(steps, a_V=up, a_A=up, star_error=SIZE)).tolist() == [np.inf] * SEEDS


def reaching(time: Any, last: float = 1e9, **values: Any) -> xr.Dataset:
    """A run whose seeds get both signals to one half at times of their own."""
    time = np.broadcast_to(np.asarray(time, float), (SEEDS,))
    steps = np.unique(np.concatenate([[0.0], time[np.isfinite(time)], [last]]))
    done = np.where(steps[None, :] >= time[:, None], theorems.HALF, 0.0)
    return planted(steps, a_V=done, a_A=done, star_error=0.0, **values)


def test_the_least_samples_are_those_of_the_cheapest_batch_that_serves_all_seeds():
    group = [
        reaching([100, 100, np.inf, 50], batch=64, noise=2.0),
        reaching([10, 40, 30, 40], batch=64, noise=0.5),
    ]
    assert theorems.samples_a_step(group[0]) == 32
    assert theorems.least_samples(group).tolist() == [1280, 5120, 3840, 5120], "a seed fails with the first"
    assert theorems.least_samples([reaching(20.0, batch=64, noise=2.0), group[1]]).tolist() == [640] * SEEDS


def over_sizes(power: float, batches: tuple[float, ...] = (1.0, 2.0), **values: Any) -> dict[str, xr.Dataset]:
    """Runs whose least samples are 640 T^power, at the second batch."""
    found = {}
    for T in SIZES:
        for i, b in enumerate(batches):
            time = (10 if i == 1 else 30) / b * T**power * SPREAD
            found[f"T_{len(found)}"] = reaching(time, T=T, batch=64, noise=1 / b, **values)
    return found


@pytest.mark.parametrize("power", [0.3, 1.0])
def test_the_exponent_of_the_least_samples_is_recovered(power: float):
    found = theorems.exponent_in("T", theorems.least_samples, **over_sizes(power))
    assert found.value == pytest.approx(power, abs=1e-9)
    assert found.notes["samples_at_smallest"] == pytest.approx(640 * 125**power * SPREAD.mean())
    assert found.notes["samples_at_largest"] == pytest.approx(640 * 8000**power * SPREAD.mean())
    assert found.notes["prefers_power_to_log"] > 1


def first_stages(power: float, in_batch: float = -0.5) -> dict[str, xr.Dataset]:
    """Noise over signal is (batch/(7 T^power))^in_batch after 50 steps."""
    found = {}
    for T in SIZES:
        for b in (1.0, 2.0, 4.0):
            batch = 64 * b * T / 1000
            ratio = (batch / (7 * T**power * SPREAD)) ** in_batch
            a_A = 0.05
            noise = ratio * a_A * np.sqrt(0.5 - 1 / T)
            series = np.stack([99 * noise, noise], axis=1)
            found[f"scratch_{len(found)}"] = planted(
                [0, 1500], (0, 50), T=T, batch=64, noise=64 / batch, Delta_A=series, a_A=a_A
            )
    return found


@pytest.mark.parametrize(("power", "in_batch"), [(1.0, -0.5), (0.5, -0.7)])
def test_the_samples_of_stage_one_are_those_where_noise_equals_signal(power: float, in_batch: float):
    data = first_stages(power, in_batch)
    group = theorems.grouped("T", data)
    assert list(group) == list(SIZES)
    np.testing.assert_allclose(
        theorems.first_stage_samples(group[500.0]), 50 * 7 * 500**power * SPREAD, rtol=1e-9
    )
    found = theorems.exponent_in("T", theorems.first_stage_samples, **data)
    assert found.value == pytest.approx(power, abs=1e-9)


def test_stage_one_needs_two_batches_at_which_it_ends():
    group = list(first_stages(1.0).values())[:3]
    failed = group[0].copy(deep=True)
    failed["final_began"][2, 1] = -1
    samples = theorems.first_stage_samples([failed, *group[1:]])
    np.testing.assert_allclose(samples, 50 * 7 * 125 * SPREAD, rtol=1e-9)
    other = group[1].copy(deep=True)
    other["final_began"][2, 1] = -1
    with pytest.raises(Broken, match="fewer than two batches for seed 2"):
        theorems.first_stage_samples([failed, other, group[2]])


def test_a_signal_of_A_that_is_still_negative_does_not_count():
    # a_V alone may end stage 1.
    group = list(first_stages(1.0).values())[:3]
    negative = group[0].assign(a_A=group[0]["a_A"].where(group[0]["seed"] != 1, -0.05))
    samples = theorems.first_stage_samples([negative, *group[1:]])
    np.testing.assert_allclose(samples, 50 * 7 * 125 * SPREAD, rtol=1e-9)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_powers_and_logarithms_are_told_apart(noise: float):
    rng = np.random.default_rng(1)
    T = np.array(SIZES, float)
    shaken = np.exp(noise * rng.normal(size=(7, SEEDS)))
    assert theorems.power_against_log(list(T), list(3 * T[:, None] ** 0.7 * shaken)) > 0
    assert theorems.power_against_log(list(T), list(5 * (2 + np.log(T))[:, None] * shaken)) < 0
    assert theorems.power_against_log(list(T), list(5 * (np.log(T) - 4)[:, None] * shaken)) < 0


def test_noise_over_lam_is_the_leading_order():
    run = planted([0, 1], batch=64, noise=0.25, lam=0.02)
    S = np.eye(3) / 3 - 1 / 9
    variance = 3 * np.sum((P @ S @ P.T) * S)
    assert theorems.noise_over_lam(run) == pytest.approx(0.5 * np.sqrt(variance / 256) / 0.02)


def test_stage_two_in_T_notes_the_noise_over_lambda():
    quiet, noisy = (theorems.second_stage_in_T(**over_sizes(0.1, lam=lam)) for lam in (10.0, 1e-3))
    assert quiet.value == noisy.value == pytest.approx(0.1, abs=1e-9)
    assert quiet.notes["noise_over_lam"] < 1 < noisy.notes["noise_over_lam"]
    low, high = quiet.interval(0.95)
    assert low <= 0.1 <= high < 0.25


def test_the_batch_of_stage_two_has_noise_below_lambda():
    for preset in ("tiny", "quick", "paper"):
        p = sb.PRESETS[preset].replace(theorems.STAGE_TWO_IN_T.runs["T_3"])
        task = sb.make_task(jax.random.key(0), p)
        run = planted([0, 1], batch=p.batch, noise=p.noise, lam=p.lam).assign(
            P=(("seed", "next", "token"), np.repeat(np.asarray(task.P)[None], SEEDS, axis=0))
        )
        assert 0.3 < theorems.noise_over_lam(run) < 0.7


def test_the_share_of_seeds_that_end_stage_one():
    run = planted([0, 1], a_V=1.0).copy(deep=True)
    assert theorems.stage_one_ends(run).value == 1
    run["final_began"][0, 1] = -1
    assert theorems.stage_one_ends(run).value == pytest.approx(1 - 1 / SEEDS)


def test_proximal_must_beat_sgd_before_and_after_rounding():
    sgd = planted([0, 50, 90, 120], attention_error=[1.0, 1.0, 0.8, 7.0], star_error=[1.0, 1.0, 0.1, 7.0])
    proximal = planted(
        [0, 50, 90, 120], attention_error=[1.0, 1.0, 0.4, 7.0], star_error=[1.0, 1.0, 0.2, 7.0]
    )
    found = theorems.proximal_beats_sgd(sgd, proximal)
    assert found.value == pytest.approx(np.log(0.5))
    assert found.notes["log_ratio_of_attention_error"] == pytest.approx(np.log(2))


def left_over(error: Any) -> dict[str, xr.Dataset]:
    """Runs of nine batches that leave, of V or A, an error that is a function of all their samples."""
    found = {}
    for j in range(-1, 8):
        left = error(64 * 2.0**j * 1000) * SPREAD
        series = np.stack([np.full(SEEDS, 9.0), left], axis=1)
        parts = {"value_error": 0.4 * series, "attention_error": SIZE * series / 3}
        if j % 2:
            parts = {"value_error": 0.4 * series / 3, "attention_error": SIZE * series}
        found[f"noise_{j + 1}"] = planted([0, 1000], (0, 0, 800), batch=64, noise=2.0**-j, **parts)
    return found


@pytest.mark.parametrize("power", [-0.5, -0.125])
def test_the_exponent_of_the_error_in_the_samples_is_recovered(power: float):
    found = theorems.stage_two_samples_in_accuracy(**left_over(lambda samples: 20 * samples**power))
    assert found.value == pytest.approx(power, abs=1e-9)
    assert found.notes["degree"] == pytest.approx(-1 / power)
    low, high = found.interval(0.95)
    assert low <= power + 1e-9
    assert high >= power - 1e-9
    assert found.range["samples"] == (pytest.approx(32_000), pytest.approx(64_000 * 128))


def test_errors_that_do_not_fall_are_measured_as_such():
    found = theorems.stage_two_samples_in_accuracy(**left_over(lambda samples: 1.0))
    assert found.value == pytest.approx(0, abs=1e-9)


def test_what_is_saved_is_the_ratio_of_scratch_and_fine_tuning():
    tuned = {f"tuned_{i}": run for i, run in enumerate(over_sizes(0.25).values())}
    found = theorems.transfer_skips_stage_one(**first_stages(1.0), **tuned)
    assert found.value == pytest.approx(0.75, abs=1e-9)
    assert found.notes["saved_at_smallest"] == pytest.approx(350 * 125 / (640 * 125**0.25))
    assert found.notes["saved_at_largest"] == pytest.approx(350 * 8000 / (640 * 8000**0.25))


# ---------------------------------------------------------------- claims and runs

BY_NAME: dict[str, Claim] = {c.name: c for c in load("sparse_bigrams").claims}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("stage_one_samples_in_T", first_stages(1.0), first_stages(0.1)),
        ("stage_two_samples_in_T", over_sizes(0.05, (1.0,), lam=10.0), over_sizes(0.6, (1.0,), lam=10.0)),
        (
            "stage_two_samples_in_accuracy",
            left_over(lambda samples: 20 * samples**-0.5),
            left_over(lambda samples: 20 * samples**-0.1),
        ),
    ],
)
def test_claims_are_supported_and_refuted_by_planted_data(name: str, good: Any, bad: Any):
    named = [dict(zip(BY_NAME[name].runs, list(data.values()) * 2, strict=False)) for data in (good, bad)]
    assert judge(BY_NAME[name], named[0]).outcome == Outcome.SUPPORTED
    assert judge(BY_NAME[name], named[1]).outcome == Outcome.REFUTED


@pytest.mark.parametrize("preset", ["tiny", "quick", "paper", "scale"])
def test_the_runs_of_every_claim_can_be(preset: str):
    base = sb.PRESETS[preset]
    for claim in BY_NAME.values():
        if preset not in claim.presets:
            continue
        for overrides in claim.runs.values():
            base.replace(overrides)
            for mutant in claim.mutants:
                base.replace({**overrides, **mutant.settings})


def test_grids_range_over_their_sizes_around_the_preset():
    base = sb.PRESETS["quick"]
    for grid, field, batches in (
        (theorems.STAGE_ONE_IN_T, "T", 3),
        (theorems.STAGE_TWO_IN_T, "T", 1),
        (theorems.CHEAPEST_IN_T, "T", 3),
        (theorems.STAGE_TWO_IN_N, "N", 3),
        (theorems.STAGE_TWO_IN_Q, "Q", 3),
    ):
        presets = [base.replace(overrides) for overrides in grid.runs.values()]
        values = list(dict.fromkeys(getattr(p, field) for p in presets))
        assert len(values) == 7
        assert values == sorted(values)
        assert len(presets) == batches * len(values)
        assert getattr(base, field) in values
        for value in values:
            noises = {p.noise for p in presets if getattr(p, field) == value}
            assert len(noises) == batches
    assert base.replace(theorems.STAGE_ONE_IN_T.runs["T_0"]).T == 125


@pytest.mark.parametrize("preset", sb.PRESETS)
def test_the_runs_of_every_figure_can_be(preset: str):
    # A report looks for all of them in the store, whatever the preset.
    for figure in load("sparse_bigrams").figures:
        for overrides in figure.runs.values():
            sb.PRESETS[preset].replace(overrides)
