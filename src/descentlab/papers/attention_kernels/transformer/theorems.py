"""What the paper says of both kernels on real tasks: Gaussian attention trains faster and is smoother."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from descentlab.judging import Assumption, Broken, Datasets, Estimate, Mutant, at_least, mean, theorem

# ---------------------------------------------------------------- runs, as overrides of a preset

# Times the preset's learning rate, in the paper one for both kernels.
FACTORS = {"common": 1.0, "larger": 10.0}
KERNELS = {"softmax": "softmax", "gaussian": "Gaussian"}
BOTH: dict[str, dict[str, Any]] = {kernel: {"kernel": kernel} for kernel in KERNELS}
TRAINING: dict[str, dict[str, Any]] = {
    f"{kernel}_{rate}": {"kernel": kernel, "eta": lambda eta, factor=factor: factor * eta}
    for kernel in KERNELS
    for rate, factor in FACTORS.items()
}
TASKS = {"imdb": "IMDb", "pathfinder": "Pathfinder"}


def presets(stem: str) -> tuple[str, ...]:
    """The presets of a task, or of its landscapes, by the name that they share."""
    return (f"{stem}_tiny", stem, f"{stem}_paper")


# ---------------------------------------------------------------- training


def along(run: xr.Dataset, what: str) -> np.ndarray:
    """A series by seed, mean over the records after the start."""
    return run[what].transpose("seed", "step").values[:, 1:].mean(axis=1)


def tuned(kernel: str, runs: Mapping[str, xr.Dataset]) -> str:
    """The learning rate with the least training loss along the run, mean over seeds."""
    return min(FACTORS, key=lambda rate: float(along(runs[f"{kernel}_{rate}"], "training_loss").mean()))


def advantage(what: str, runs: Mapping[str, xr.Dataset], rates: Mapping[str, str]) -> np.ndarray:
    """What softmax attention has more of than Gaussian at equal steps, by seed."""
    soft, gauss = (along(runs[f"{kernel}_{rates[kernel]}"], what) for kernel in ("softmax", "gaussian"))
    return soft - gauss


def lead(**runs: xr.Dataset) -> Estimate:
    """Training loss of softmax minus Gaussian attention at equal steps, each at its own learning rate."""
    best = {kernel: tuned(kernel, runs) for kernel in KERNELS}
    common = dict.fromkeys(KERNELS, "common")
    notes: dict[str, Any] = {
        f"{where}_{what}_lead": sign * advantage(what, runs, rates).mean()
        for where, rates in (("tuned", best), ("common", common))
        for what, sign in (
            ("training_loss", 1), ("test_loss", 1), ("training_accuracy", -1), ("test_accuracy", -1),
        )
    }  # fmt: skip
    for kernel in KERNELS:
        run = runs[f"{kernel}_{best[kernel]}"].isel(step=-1)
        notes[f"{kernel}_tuned_factor"] = FACTORS[best[kernel]]
        for what in ("training_loss", "test_loss", "test_accuracy"):
            notes[f"{kernel}_final_{what}"] = float(run[what].mean())
    steps = runs["softmax_common"]["step"].values
    found = advantage("training_loss", runs, best)
    if not found.any():
        raise Broken("both kernels have the same training losses, seed by seed: were they different?")
    return mean(found, range={"steps": (steps[1], steps[-1])}, notes=notes)


def behind(data: Datasets) -> Datasets:
    """Gaussian runs that are a tenth of a nat behind those with softmax."""
    late = {rate: data[f"softmax_{rate}"]["training_loss"] + 0.1 for rate in FACTORS}
    runs = {f"gaussian_{rate}": data[f"gaussian_{rate}"].assign(training_loss=late[rate]) for rate in late}
    return {**data, **runs}


faster = theorem("Figure 1", kind="figure", bound="order")

for task, title in TASKS.items():
    faster.claim(
        name=f"gaussian_trains_faster_on_{task}",
        statement=f"On {title}, with each kernel at the better of two learning rates, the preset's and ten "
        "times that, the training loss of Gaussian attention is below that of softmax attention at equal "
        "steps.",
        predicts=at_least(0.0),
        margin="An order; the figure gives no number. The notes have the lead at the common rate, on test "
        "examples, and of accuracies.",
        runs=TRAINING,
        mutants=(Mutant("Gaussian attention a tenth of a nat behind", alter=behind),),
        presets=presets(task),
    )(lead)

# ---------------------------------------------------------------- landscapes

FLAT = 1e-6  # what a constant moves by in single precision, over its size


def roughness(plane: np.ndarray) -> float:
    """The share of a plane's standard deviation that no quadratic explains; 0 where it is flat."""
    a, b = np.meshgrid(*(np.linspace(-1, 1, n) for n in plane.shape), indexing="ij")
    terms = np.stack([x.ravel() for x in (np.ones_like(a), a, b, a * a, a * b, b * b)], axis=1)
    values = plane.ravel()
    if not np.isfinite(values).all():
        raise Broken("the loss is not finite all over the plane.")
    if np.ptp(values) <= FLAT * np.abs(values).max():
        return 0.0
    left = values - terms @ np.linalg.lstsq(terms, values, rcond=None)[0]
    return float(left.std() / values.std())


def negative_share(plane: np.ndarray) -> float:
    """The share of inner points at which the plane curves down in some direction."""
    aa = plane[2:, 1:-1] - 2 * plane[1:-1, 1:-1] + plane[:-2, 1:-1]
    bb = plane[1:-1, 2:] - 2 * plane[1:-1, 1:-1] + plane[1:-1, :-2]
    ab = (plane[2:, 2:] - plane[2:, :-2] - plane[:-2, 2:] + plane[:-2, :-2]) / 4
    least = (aa + bb) / 2 - np.sqrt(((aa - bb) / 2) ** 2 + ab**2)
    return float((least < 0).mean())


def planes(run: xr.Dataset, which: str) -> np.ndarray:
    """The planes of all seeds."""
    return run[which].transpose("seed", "along_Q", "along_K").values.astype(float)


def over_seeds(measure: Callable[[np.ndarray], float], run: xr.Dataset, which: str) -> np.ndarray:
    """A measure of the planes of all seeds."""
    return np.array([measure(plane) for plane in planes(run, which)])


def smoothness(softmax: xr.Dataset, gaussian: xr.Dataset) -> Estimate:
    """log(roughness with softmax / roughness with Gaussian attention) on the random plane, by seed."""
    runs = {"softmax": softmax, "gaussian": gaussian}
    rough = {name: over_seeds(roughness, run, "random_plane") for name, run in runs.items()}
    for name, found in rough.items():
        if not found.all():
            raise Broken(
                f"the loss of seed {int(found.argmin())} with {name} attention is flat on the plane."
            )
    notes = {}
    for name, run in runs.items():
        notes[f"{name}_roughness"] = rough[name].mean()
        notes[f"{name}_roughness_top_plane"] = over_seeds(roughness, run, "top_plane").mean()
        notes[f"{name}_negative_share"] = over_seeds(negative_share, run, "random_plane").mean()
        for what in ("training_loss", "test_accuracy"):  # has there been anything learned?
            notes[f"{name}_final_{what}"] = run[what].isel(step=-1).mean()
        for block, letter in enumerate("QK"):
            for end, word in enumerate(("least", "largest")):
                ends = run["eigenvalues"].isel(block=block, end=end)
                notes[f"{name}_{word}_eigenvalue_{letter}"] = ends.mean()
    if np.array_equal(rough["softmax"], rough["gaussian"]):
        raise Broken("both kernels have the same planes, seed by seed: were they different?")
    size = {"points": (1, softmax.sizes["along_Q"] ** 2)}
    return mean(np.log(rough["softmax"] / rough["gaussian"]), range=size, notes=notes)


def with_waves(data: Datasets) -> Datasets:
    """A Gaussian landscape with a wave on it, of ten times the loss's own deviation."""
    run = data["gaussian"]
    plane = run["random_plane"]
    wave = xr.DataArray(np.cos(np.pi * np.arange(plane.sizes["along_Q"])), dims="along_Q")
    size = 10 * plane.std(["along_Q", "along_K"])
    return {**data, "gaussian": run.assign(random_plane=plane + size * wave)}


TRAINED = Assumption(
    "softmax steps >= 20,000", lambda p: p.softmax_steps >= 20_000, lambda p: p.softmax_steps
)
smoother = theorem("Figure 3", kind="figure", bound="order", assumes=(TRAINED,))

for task, title in TASKS.items():
    smoother.claim(
        name=f"gaussian_landscape_is_smoother_on_{task}",
        statement=f"On {title}, after the same training with softmax attention and some more steps with "
        "either kernel, the loss on a random plane of W^Q and W^K is less rough with Gaussian attention: "
        "less of it is left over by the best quadratic.",
        predicts=at_least(0.0),
        margin="An order; the figure gives no number. The notes have the plane of the top eigenvectors, the "
        "share of points that curve down, and the extreme eigenvalues. The paper trains for 20,000 steps "
        "before; planes around random weights would differ too, and say nothing of training.",
        runs=BOTH,
        mutants=(Mutant("Gaussian landscape with waves", alter=with_waves),),
        presets=presets(f"{task}_landscape"),
    )(smoothness)
