"""What the claims of sparse_bigrams measure on stored runs.

Stage 1 may end in the mirror image, where both signals are negative: with too few samples the noise outweighs
the first drift, 1/T. Figures and Theorem 3.1 speak of what comes after stage 1, so these seeds are left out
there, and counted in the note `stage_one_failed`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import xarray as xr
from scipy import special

from descentlab.judging import Broken, Estimate, Student, mean, setting, share, size_exponent

HALF = 0.5  # a signal at which stage 2 has done its work
STAR = 0.1  # relative distance at which a pattern counts as recovered


# ---------------------------------------------------------------- seeds and stages


def passed(*runs: xr.Dataset) -> np.ndarray:
    """Which seeds end stage 1, and have a stage 2, in all of these runs."""
    began = [run["final_began"].values for run in runs]
    return np.all([(b[:, 1] >= 0) & (b[:, 1] != b[:, -1] if b.shape[1] > 2 else True) for b in began], axis=0)


def kept(*runs: xr.Dataset) -> tuple[list[xr.Dataset], dict[str, float]]:
    """The seeds that end stage 1 in all runs, and how many do not."""
    good = passed(*runs)
    if good.sum() == 0:
        raise Broken("Stage 1 ends for no seed: give it more steps, a larger batch or a smaller eta_1.")
    return [run.isel(seed=good) for run in runs], {"stage_one_failed": float((~good).sum())}


def good(run: xr.Dataset) -> xr.Dataset:
    """The seeds that end stage 1, or all where none does: what figures show."""
    found = passed(run)
    return run.isel(seed=found) if found.any() else run


def part(prefix: str, runs: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """The runs whose names begin so."""
    return {name: run for name, run in runs.items() if name.startswith(prefix)}


def last_of_stage_two(run: xr.Dataset) -> xr.Dataset:
    """The last record of each seed before A is rounded."""
    index = (run["stage"] <= 1).sum("step") - 1
    return run.isel(step=index)


def span(run: xr.Dataset) -> dict[str, tuple[float, float]]:
    """The range that a run tests."""
    T = float(setting(run, "T"))
    return {"step": (0.0, float(run["step"].values[-1])), "T": (T, T)}


def attention_length(run: xr.Dataset) -> xr.DataArray:
    """|Q|_mu, by seed."""
    return np.sqrt(run["attention_size"] ** 2 + 1 / setting(run, "T"))


def relative_errors(run: xr.Dataset, attention: str = "attention_error") -> tuple[xr.DataArray, xr.DataArray]:
    """|A - Q|/|Q| (or of the rounded A) and |V - P|/|P - mu1'|."""
    return run[attention] / attention_length(run), run["value_error"] / run["value_size"]


def worse_error(run: xr.Dataset, attention: str = "attention_error") -> xr.DataArray:
    """The larger of the two relative errors."""
    A, V = relative_errors(run, attention)
    return xr.where(A > V, A, V)


def final_errors(run: xr.Dataset) -> list[np.ndarray]:
    """Relative errors by seed: of A at the end of stage 2, of A rounded in the end, and of V in the end."""
    before, _ = relative_errors(last_of_stage_two(run))
    return [error.values for error in (before, *relative_errors(run.isel(step=-1), "star_error"))]


# ---------------------------------------------------------------- one task


def distance_from_line(full: xr.Dataset, line: xr.Dataset) -> Estimate:
    """The largest difference between signals of all weights and of two numbers, and distance off the line."""
    gaps = [abs(full[a] - line[a]) for a in ("a_V", "a_A")]
    gaps += [full["Delta_V"] / full["value_size"], full["Delta_A"] / full["attention_size"]]
    largest = np.max([gap.max("step").values for gap in gaps], axis=0)
    return mean(largest, range=span(full), notes={"final_a_V": full["a_V"][:, -1].mean()})


def value_noise(run: xr.Dataset) -> Estimate:
    """The largest |Delta_V| of a run, over |P - mu1'|."""
    (run,), notes = kept(run)
    return mean((run["Delta_V"] / run["value_size"]).max("step"), range=span(run), notes=notes)


def stage_one_share(run: xr.Dataset) -> Estimate:
    """The share of seeds that end stage 1."""
    return share(passed(run), range=span(run))


def advantage(sgd: xr.Dataset, proximal: xr.Dataset) -> Estimate:
    """The smaller log ratio of |A - Q|, SGD's over the proximal run's, before and after rounding."""
    (sgd, proximal), notes = kept(sgd, proximal)
    ends = [last_of_stage_two(run) for run in (sgd, proximal)]
    ratios = {
        name: np.log(ends[0][name].values / ends[1][name].values)
        for name in ("attention_error", "star_error")
    }
    notes |= {f"log_ratio_of_{name}": ratio.mean() for name, ratio in ratios.items()}
    return mean(np.minimum(*ratios.values()), range=span(sgd), notes=notes)


def recovery(run: xr.Dataset) -> Estimate:
    """The larger relative error of V and A at the end of the whole algorithm."""
    (run,), notes = kept(run)
    end = run.isel(step=-1)
    A, V = relative_errors(end)
    return mean(worse_error(end), range=span(run), notes={"attention": A.mean(), "value": V.mean(), **notes})


def failure(sgd: xr.Dataset) -> Estimate:
    """The relative error of A at the end of SGD; what rounding would make of it is in the notes."""
    (sgd,), notes = kept(sgd)
    end = sgd.isel(step=-1)
    A, V = relative_errors(end)
    star, _ = relative_errors(end, "star_error")
    notes |= {"value": V.mean(), "after_rounding": star.mean(), "excess_loss": end["excess_loss"].mean()}
    return mean(A, range=span(sgd), notes=notes)


def slowness(sgd: xr.Dataset, proximal: xr.Dataset) -> Estimate:
    """The relative error of A by SGD with a small step when the proximal run has its signals at one half."""
    (sgd, proximal), notes = kept(sgd, proximal)
    times = half_time(proximal)
    if not np.isfinite(times).all():
        raise Broken("The proximal run does not get its signals to one half: it needs more steps.")
    A, _ = relative_errors(sgd)
    steps = sgd["step"].values
    rows = A.transpose("seed", "step").values
    values = [np.interp(t, steps, row) for t, row in zip(times, rows, strict=True)]
    notes |= {"proximal_steps": times.mean(), "at_the_end": A[:, -1].mean()}
    return mean(values, range=span(sgd), notes=notes)


def normalisation(run: xr.Dataset) -> Estimate:
    """The error of A rounded over that of A itself, at the end of stage 2."""
    (run,), notes = kept(run)
    end = last_of_stage_two(run)
    notes |= {"before": end["attention_cosine"].mean(), "after": end["star_cosine"].mean()}
    return mean(end["star_error"] / end["attention_error"], range=span(run), notes=notes)


def noise_over_signal(run: xr.Dataset) -> xr.DataArray:
    """|Delta_A| over the signal's part of A, a_A |Q - 11'/T|."""
    return run["Delta_A"] / (run["a_A"] * run["attention_size"])


def noise_to_signal(run: xr.Dataset) -> Estimate:
    """|Delta_A| over the signal's part a_A |Q - 11'/T|, at the end of stage 2; its peak is in the notes."""
    (run,), notes = kept(run)
    ratio = noise_over_signal(run).where(run["stage"] == 1)
    end = last_of_stage_two(run)
    notes |= {"peak": ratio.max("step").mean(), "a_A": end["a_A"].mean(), "Delta_A": end["Delta_A"].mean()}
    return mean(noise_over_signal(end), range=span(run), notes=notes)


def likeness(softmax: xr.Dataset, linear: xr.Dataset) -> Estimate:
    """The smaller cosine, of the two attentions less uniform or the two V less mu1', at the end."""
    T = setting(linear, "T")
    found = []
    for a, b in zip(range(softmax.sizes["seed"]), range(linear.sizes["seed"]), strict=True):
        mu = linear["mu"].values[b]
        A = special.softmax(softmax["final_params_A"].values[a], axis=1) - 1 / T
        B = linear["final_params_A"].values[b] - 1 / T
        V, W = (run["final_params_V"].values[i] - mu[:, None] for run, i in ((softmax, a), (linear, b)))
        found.append(min(_cosine(A.T, B.T, mu), _cosine(V, W, mu)))
    losses = [run["excess_loss"][:, -1].mean() / run["excess_loss"][:, 0].mean() for run in (softmax, linear)]
    notes = {"loss_left_softmax": losses[0], "loss_left_linear": losses[1]}
    return mean(found, range=span(linear), notes=notes)


def _cosine(X: np.ndarray, Y: np.ndarray, mu: np.ndarray) -> float:
    inner = [np.sum(mu * a * b) for a, b in ((X, Y), (X, X), (Y, Y))]
    return float(inner[0] / max(math.sqrt(inner[1] * inner[2]), 1e-30))


SIGNALS = ("a_V", "a_A", "Delta_A")


def simulation(*names: str) -> Callable[..., Estimate]:
    """The largest |log ratio| of some quantities, simulated over real, each averaged over stage 2.

    Seeds share the task but not the noise, so each side has its own spread; the interval is that of the
    quantity that may be farthest off. The others are in the notes.
    """

    def measure(real: xr.Dataset, simulated: xr.Dataset) -> Estimate:
        (real,), failed = kept(real)
        (simulated,), failed_too = kept(simulated)
        found = {}
        for name in (*SIGNALS, "Delta_V"):
            means = [run[name].where(run["stage"] == 1).mean("step").values for run in (simulated, real)]
            logs = [np.log(np.abs(one)) for one in means]
            error = math.hypot(*(x.std(ddof=1) / x.size**0.5 if x.size > 1 else math.inf for x in logs))
            found[name] = (float(logs[0].mean() - logs[1].mean()), error)
        gap, error = max((found[name] for name in names), key=lambda pair: abs(pair[0]) + 3 * pair[1])
        seeds = min(run.sizes["seed"] for run in (real, simulated))
        notes = {f"log_ratio_of_{name}": value for name, (value, _) in found.items()}
        notes |= failed | {"simulated_stage_one_failed": failed_too["stage_one_failed"]}
        return Estimate(abs(gap), seeds, Student(abs(gap), error * seeds**0.5, seeds), span(real), notes)

    return measure


# ---------------------------------------------------------------- over sizes


def samples_a_step(run: xr.Dataset) -> float:
    """The batch, or the one whose noise is simulated."""
    noise = setting(run, "noise")
    return setting(run, "batch") / noise if noise > 0 else math.inf


def half_time(run: xr.Dataset) -> np.ndarray:
    """The first time both signals are one half and rounding gives Q up to a tenth; +inf if there is none."""
    signal = xr.where(run["a_V"] < run["a_A"], run["a_V"], run["a_A"])
    good = (signal >= HALF) & (run["star_error"] <= STAR * attention_length(run))
    steps, times = run["step"].values.astype(float), []
    for hit, a in zip(*(x.transpose("seed", "step").values for x in (good, signal)), strict=True):
        i = int(hit.argmax())
        if not hit.any():
            times.append(np.inf)
        elif i > 0 and a[i - 1] < HALF:  # between two records
            times.append(np.interp(HALF, a[i - 1 : i + 1], steps[i - 1 : i + 1]))
        else:
            times.append(steps[i])
    return np.array(times)


def grouped(over: str, runs: dict[str, xr.Dataset]) -> dict[float, list[xr.Dataset]]:
    """The runs by their size, those of one size differing in the batch."""
    found: dict[float, list[xr.Dataset]] = {}
    for run in runs.values():
        found.setdefault(float(setting(run, over)), []).append(run)
    return found


def least_samples(group: Sequence[xr.Dataset]) -> np.ndarray:
    """Samples, by seed, to bring both signals to one half, at the cheapest batch that serves all seeds."""
    return min((samples_a_step(run) * half_time(run) for run in group), key=np.mean)


def first_stage_samples(group: Sequence[xr.Dataset]) -> np.ndarray:
    """Samples of stage 1 with the batch at which the noise in A, at its end, is as large as the signal.

    |Delta_A| over a_A |Q - 11'/T| is a power of the batch, fitted by seed through the batches at hand.
    """
    batches, ratios, steps = [], [], []
    for run in group:
        end = run.isel(step=-1)
        ratio = noise_over_signal(end)
        # a_V alone may end stage 1.
        ratios.append(np.where(passed(run) & (end["a_A"].values > 0), ratio.values, np.nan))
        steps.append(np.where(passed(run), run["final_began"].values[:, 1], np.nan))
        batches.append(samples_a_step(run))
    x, y, t = np.log(batches), np.log(np.array(ratios)), np.array(steps)
    found = []
    for seed in range(y.shape[1]):
        ok = np.isfinite(y[:, seed])
        if ok.sum() < 2:
            raise Broken(f"Stage 1 ends with fewer than two batches for seed {seed}.")
        slope, level = np.polyfit(x[ok], y[ok, seed], 1)
        if slope >= 0:
            raise Broken(f"The noise in A of seed {seed} does not fall as the batch grows.")
        found.append(np.exp(-level / slope) * np.mean(t[ok, seed]))
    return np.array(found)


def exponent(
    over: str, group_samples: Callable[[Sequence[xr.Dataset]], np.ndarray]
) -> Callable[..., Estimate]:
    """The exponent in a size of the samples that a group of runs, alike but for the batch, needs."""

    def measure(**runs: xr.Dataset) -> Estimate:
        groups = grouped(over, runs)
        values = [group_samples(group) for group in groups.values()]
        sizes = [np.full(v.shape, size) for size, v in zip(groups, values, strict=True)]
        estimate = size_exponent(over, sizes, values)
        notes = {
            "samples_at_smallest": float(values[0].mean()),
            "samples_at_largest": float(values[-1].mean()),
            "prefers_power_to_log": power_against_log(list(groups), values),
        }
        return replace(estimate, notes={**estimate.notes, **notes})

    return measure


def power_against_log(sizes: Sequence[float], values: Sequence[np.ndarray]) -> float:
    """½ log(RSS of a + b log(size) / RSS of a size^p), fitted to log samples: positive favours the power."""
    x, y = np.log(np.array(sizes)), np.log(np.array(values)).mean(axis=1)

    def rest(shape: np.ndarray) -> float:
        return float(np.sum((y - shape - np.mean(y - shape)) ** 2))

    power = float(np.sum((y - np.polyval(np.polyfit(x, y, 1), x)) ** 2))
    # Up to its factor, a + b log(size) is r + log(size) with r above -log of the smallest size.
    shifts = -x[0] + np.geomspace(1e-3, 1e3, 400)
    logarithm = min(rest(np.log(r + x)) for r in shifts)
    return 0.5 * math.log(max(logarithm, 1e-12) / max(power, 1e-12))


def noise_over_lam(run: xr.Dataset) -> float:
    """The noise of an off-support entry in one step, where both signals are one half, over lam.

    For uniform mu: a_V sqrt(N <PSP', S>/batch) to leading order.
    """
    mu, P = run["mu"].values, run["P"].values
    S = [np.diag(m) - np.outer(m, m) for m in mu]
    variance = np.mean([np.sum((p @ s @ p.T) * s) * m.size for p, s, m in zip(P, S, mu, strict=True)])
    return HALF * math.sqrt(variance / samples_a_step(run)) / max(setting(run, "lam"), 1e-300)


def second_stage_in_T(**runs: xr.Dataset) -> Estimate:
    """The exponent in T of the samples of stage 2 at one batch, and the noise of a step over lam."""
    estimate = exponent("T", least_samples)(**runs)
    noise = max(noise_over_lam(run) for run in runs.values())
    return replace(estimate, notes={**estimate.notes, "noise_over_lam": noise})


def errors_and_samples(runs: dict[str, xr.Dataset]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The samples of each run, and the larger relative error at its end, by seed."""
    samples = [samples_a_step(run) * float(run["step"].values[-1]) for run in runs.values()]
    return np.array(samples), [worse_error(run.isel(step=-1)).values for run in runs.values()]


def error_in_samples(**runs: xr.Dataset) -> Estimate:
    """The exponent, in the samples, of the larger relative error at the end: -1/degree of the polynomial."""
    samples, errors = errors_and_samples(runs)
    sizes = [np.full(own.shape, n) for n, own in zip(samples, errors, strict=True)]
    estimate = size_exponent("samples", sizes, errors)
    return replace(estimate, notes={**estimate.notes, "degree": -1 / min(estimate.value, -1e-9)})


def saved_exponent(**runs: xr.Dataset) -> Estimate:
    """The exponent in T of the samples of stage 1 from scratch over all samples of fine-tuning, by seed."""
    scratch, tuned = (grouped("T", part(prefix, runs)) for prefix in ("scratch", "tuned"))
    one = [first_stage_samples(group) for group in scratch.values()]
    other = [least_samples(group) for group in tuned.values()]
    sizes = [np.full(v.shape, size) for size, v in zip(scratch, one, strict=True)]
    estimate = size_exponent("T", sizes, [a / b for a, b in zip(one, other, strict=True)])
    saved = {
        f"saved_at_{which}": float(np.mean(one[i] / other[i]))
        for which, i in (("smallest", 0), ("largest", -1))
    }
    return replace(estimate, notes={**estimate.notes, **saved})
