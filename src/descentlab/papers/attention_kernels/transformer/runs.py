"""The runs on real tasks, as overrides of a preset: each kernel at the common and at a larger rate."""

from typing import Any

FACTORS = {
    "common": 1.0,
    "larger": 10.0,
}  # times the preset's learning rate, in the paper one for both kernels
KERNELS = {"softmax": "softmax", "gaussian": "Gaussian"}
BOTH: dict[str, dict[str, Any]] = {kernel: {"kernel": kernel} for kernel in KERNELS}
TRAINING: dict[str, dict[str, Any]] = {
    f"{kernel}_{rate}": {"kernel": kernel, "eta": lambda eta, factor=factor: factor * eta}
    for kernel in KERNELS
    for rate, factor in FACTORS.items()
}
TASKS = {"imdb": "IMDb", "pathfinder": "Pathfinder"}


def presets(task: str, kind: str = "") -> tuple[str, ...]:
    """The presets of a task, or of its landscapes."""
    stem = f"{task}_{kind}" if kind else task
    return (f"{stem}_tiny", stem, f"{stem}_paper")
