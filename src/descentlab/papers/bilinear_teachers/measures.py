"""What the claims of bilinear_teachers measure on recorded runs.

T* is the first step with |S - S*|_F below half its start, of each seed. Exponents in T are read from
100 T* on, prefactors of exponents in sizes at 100 T*.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import xarray as xr

from descentlab.judging import (
    Broken,
    Estimate,
    Unsettled,
    crossing,
    exponent,
    mean,
    read,
    setting,
    size_exponent,
)

SETTLED = 100  # multiples of T* from which a rate is read
LATE = 100  # multiples of T* at which a prefactor is read
HALF = 0.5
# Printed exponents of T in what is multiplied away to leave a prefactor.
RATES = {"attention_error": 0.5, "value_error": 0.5, "excess_loss": 1.0}


def hitting_time(run: xr.Dataset, share: float = HALF) -> np.ndarray:
    """The step at which |S - S*|_F falls below a share of its start, by seed; a flow has it as its event."""
    if share == HALF and "final_hit" in run and np.all(run["final_hit"].values >= 0):
        return run["final_hit"].values.astype(float)
    error = run["attention_error"]
    return crossing(error, share * error.isel(step=0).values)


# ---------------------------------------------------------------- one run


def late_exponent(series: xr.DataArray, run: xr.Dataset) -> Estimate:
    """The exponent of a series in T, from 100 T* on, or over the last decade if the run is shorter."""
    end = float(run["step"].values[-1])
    reached = hitting_time(run)
    begin = min(SETTLED * float(np.max(reached)), end / 10)
    estimate = exponent(series, window=(begin, end))
    notes = {"T_star": float(np.median(np.minimum(reached, end))), **estimate.notes}
    notes["multiple_of_T_star"] = end / notes["T_star"]
    if not np.isfinite(reached).all():
        # Before T* no rate is promised: whatever the slope is now, it says nothing.
        return replace(estimate, spread=Unsettled(), notes=notes)
    return replace(estimate, notes=notes)


def rate(name: str) -> Callable[[xr.Dataset], Estimate]:
    """The exponent of a recorded quantity in T."""
    return lambda run: late_exponent(run[name], run)


def ood_rate(run: xr.Dataset) -> Estimate:
    """The exponent of the excess OOD loss in T, with those for other labels in the notes."""
    estimate = late_exponent(run["ood_excess"], run)
    others = {
        "unrelated_labels": abs(run["ood_excess_unrelated"]),
        "100_noisy_samples": abs(run["ood_excess_100"]).clip(min=1e-300),
        "worst_labels": worst_case(run),
    }
    notes = {f"slope_{name}": late_exponent(series, run).value for name, series in others.items()}
    return replace(estimate, notes={**estimate.notes, **notes})


def worst_case(run: xr.Dataset) -> xr.DataArray:
    """The excess for the worst labels with E|Y - f*|^2 = xi^2: xi sqrt(2 e) + e, e that of the teacher.

    E<f* - TF, Y - f*> is at most xi sqrt(E|f* - TF|^2), with equality for Y - f* parallel to f* - TF.
    Labels are taken to differ from the teacher's by the size of these: xi^2 = E|f*|^2.
    """
    own = run["ood_excess"]
    cross = (2 * own * squared_scale(run)) ** 0.5
    return (cross + own).rename("worst excess OOD loss")


def squared_scale(run: xr.Dataset) -> xr.DataArray:
    """xi^2 = E|f*(X)|_F^2 out of distribution."""
    return 2 * run["teacher_ood_loss"]


def ood_bound(run: xr.Dataset) -> Estimate:
    """The exponent of the excess for the worst labels: the bound says at most -1/2.

    The notes hold the constant that the bound would need, eps sqrt(eta T) / (sqrt(K) D^3 xi |V*|_F).
    """
    worst = worst_case(run)
    estimate = late_exponent(worst, run)
    D, K, eta, T = (setting(run, name) for name in ("D", "K", "eta", "steps"))
    scale = np.sqrt(squared_scale(run)) * run["teacher_norm"]
    constant = worst.isel(step=-1) * np.sqrt(eta * T / K) / D**3 / scale
    return replace(estimate, notes={**estimate.notes, "constant_needed": float(constant.max())})


def direction(run: xr.Dataset) -> Estimate:
    """The smallest cosine of W_V and V* from T*/10 on."""
    begin = np.minimum(hitting_time(run) / 10, float(run["step"].values[-1]))
    late = run["step"].values[None, :] >= begin[:, None]
    cosine = run["value_cosine"].transpose("seed", "step").values
    least = np.where(late, cosine, np.inf).min(axis=1)
    notes = {"first_step": float(cosine[:, 1].mean()), "last": float(cosine[:, -1].mean())}
    return mean(least, range={"step": (float(begin.min()), float(run["step"].values[-1]))}, notes=notes)


def heatmap(run: xr.Dataset) -> Estimate:
    """|S - S*|_F / |S*|_F at the end."""
    D, K = run.sizes["row"], setting(run, "K")
    error = run["attention_error"].isel(step=-1).values / np.sqrt(D / K)
    last = float(run["step"].values[-1])
    entry = float(np.abs(run["attention"] - run["teacher_attention"]).max() * K)
    return mean(error, range={"step": (last, last)}, notes={"largest_entry_over_1_K": entry})


def distance_from_line(run: xr.Dataset) -> Estimate:
    """The largest relative distance from Lemma D.2's form over the run."""
    last = float(run["step"].values[-1])
    return mean(run["off_line"].max("step").values, range={"step": (0.0, last)})


def other_blocks(run: xr.Dataset) -> Estimate:
    """The larger share of norm that W_V and W_KQ hold outside their main blocks, at the end."""
    shares = {name: run[name].isel(step=-1).values for name in ("other_value_share", "other_attention_share")}
    last = float(run["step"].values[-1])
    notes = {name: float(share.mean()) for name, share in shares.items()}
    notes["value_cosine"] = float(run["value_cosine"].isel(step=-1).mean())
    notes["attention_error_over_start"] = float(
        (run["attention_error"].isel(step=-1) / run["attention_error"].isel(step=0)).mean()
    )
    return mean(np.maximum(*shares.values()), range={"step": (last, last)}, notes=notes)


# ---------------------------------------------------------------- over sizes


def sizes(over: str, runs: dict[str, xr.Dataset]) -> list[np.ndarray]:
    """The size of each run, by seed; |V*|_F is the seed's own."""
    if over == "V":
        return [run["teacher_norm"].values for run in runs.values()]
    return [np.full(run.sizes["seed"], float(setting(run, over))) for run in runs.values()]


def regime(over: str, runs: dict[str, xr.Dataset]) -> list[np.ndarray] | None:
    """D / K, which the theorem takes to be large."""
    if over not in ("D", "K"):
        return None
    return [D / K for D, K in zip(sizes("D", runs), sizes("K", runs), strict=True)]


def prefactor(name: str, run: xr.Dataset, with_eta: bool) -> tuple[np.ndarray, bool]:
    """What is left of a quantity at 100 T* when its rate in eta T (or in T, `with_eta`) is divided out.

    Also whether the run got that far; where not, it is read at its end.
    """
    times, last = LATE * hitting_time(run), float(run["step"].values[-1])
    settled = bool(np.all(times <= last))
    times = np.minimum(times, last)
    eta = 1.0 if with_eta else setting(run, "eta")
    return read(run[name], times) * (eta * times) ** RATES[name], settled


def in_size(name: str, over: str) -> Callable[..., Estimate]:
    """The exponent in a size of a quantity's prefactor."""

    def measure(**runs: xr.Dataset) -> Estimate:
        read_off = [prefactor(name, run, with_eta=over == "eta") for run in runs.values()]
        values = [value for value, _ in read_off]
        estimate = size_exponent(over, sizes(over, runs), values, regime(over, runs))
        estimate = replace(
            estimate, notes={**estimate.notes, **_constant(name, over, runs, values, estimate)}
        )
        return estimate if all(done for _, done in read_off) else replace(estimate, spread=Unsettled())

    return measure


def _constant(
    name: str, over: str, runs: dict[str, xr.Dataset], values: list[np.ndarray], estimate: Estimate
) -> dict[str, float]:
    """The constant c of value = c size^p at the last size, p the half-integer nearest to the measured one."""
    p = round(2 * estimate.value) / 2
    return {
        "suggested_exponent": p,
        "suggested_constant": float(np.mean(values[-1] / sizes(over, runs)[-1] ** p)),
    }


def hitting_in_size(over: str) -> Callable[..., Estimate]:
    """The exponent of T* in a size, times eta unless that is the size; other thresholds in the notes."""

    def measure(**runs: xr.Dataset) -> Estimate:
        x = sizes(over, runs)

        def fit(share: float) -> tuple[Estimate, list[np.ndarray]]:
            times = [
                hitting_time(run, share) * (1.0 if over == "eta" else setting(run, "eta"))
                for run in runs.values()
            ]
            if not np.isfinite(times).all():
                raise Broken(
                    f"|S - S*|_F does not fall to {share:g} of its start at all sizes: steps is too small."
                )
            return size_exponent(over, x, times, regime(over, runs)), times

        estimate, times = fit(HALF)
        notes = {f"exponent_at_{share:g}": fit(share)[0].value for share in (0.75, 0.25, 0.1)}
        notes |= _constant("hitting_time", over, runs, times, estimate)
        return replace(estimate, notes={**estimate.notes, **notes})

    return measure


def start_exponents(**runs: xr.Dataset) -> Estimate:
    """How the printed right-hand sides at T = T* grow with D against what any S and the start allow.

    They are, up to constants, D^{5/2}/(|V*| sqrt(eta T*)) for |S - S*|_F, which no S exceeds
    sqrt(D (1 + 1/K)) by; D^2 sqrt(K/(eta T*)) for |W_V - V*|_F and K D^4/(eta T*) for the excess loss,
    which start at |V*|_F and at the first record. A quotient that grows with D contradicts a two-sided
    bound from T* on. The estimate is the largest of the three exponents.
    """
    found = {"attention": [], "value": [], "loss": []}
    for run in runs.values():
        D, K = float(setting(run, "D")), float(setting(run, "K"))
        time = setting(run, "eta") * hitting_time(run)
        norm = run["teacher_norm"].values
        found["attention"].append(D**2.5 / (norm * np.sqrt(time)) / np.sqrt(D * (1 + 1 / K)))
        found["value"].append(D**2 * np.sqrt(K / time) / norm)
        found["loss"].append(K * D**4 / time / run["excess_loss"].isel(step=0).values)
    fits = {
        name: size_exponent("D", sizes("D", runs), values, regime("D", runs))
        for name, values in found.items()
    }
    largest = max(fits.values(), key=lambda fit: fit.value)
    notes = {f"exponent_{name}": fit.value for name, fit in fits.items()}
    return replace(largest, notes={**largest.notes, **notes})
