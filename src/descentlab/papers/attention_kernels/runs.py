"""The runs behind claims and figures, as changes to a preset.

The preset starts where Theorem 1 works: W^V = 0, so that W^Q and W^K stay until W^V has grown, and W^O of
length ten, so that it need not grow much. Theorem 2 works from paired heads with values of the same size.
"""

from collections.abc import Mapping
from typing import Any

from descentlab.papers.attention_kernels.model import KERNELS

Overrides = dict[str, Any]

ONE: Overrides = {"starts": 1, "rates": 1, "grid": 0, "detail": True}  # start and step size, recorded in full


def named(**groups: Mapping[str, Any]) -> dict[str, Any]:
    """The runs of both kernels in several groups, as kernel_group."""
    return {f"{kernel}_{name}": run for name, group in groups.items() for kernel, run in group.items()}


# ---------------------------------------------------------------- the theorems' starts

ALL: dict[str, Overrides] = {kernel: {"kernel": kernel, "train": "qkv", **ONE} for kernel in KERNELS}
QUERY: dict[str, Overrides] = {
    kernel: {
        "kernel": kernel, "train": "q", "value_scale": 1.0, **ONE,
        # A start of one's own stays.
        "init": lambda init: "paired" if init == "generic" else init,
    }
    for kernel in KERNELS
}  # fmt: skip
# The same problem with labels and outputs divided by ten: the step, in units of 1/L, follows.
DIVIDED = {
    **QUERY["softmax"], "label_scale": lambda s: s / 10, "output_scale": lambda s: s / 10,
}  # fmt: skip

# ---------------------------------------------------------------- generic starts

GENERIC: Overrides = {"init": "generic", "value_scale": 1.0, "output_scale": 1.0}
GENERIC_ALL = {kernel: {**run, **GENERIC} for kernel, run in ALL.items()}
GENERIC_QUERY = {kernel: {**run, **GENERIC} for kernel, run in QUERY.items()}

# ---------------------------------------------------------------- kernels compared, each at its best step

DESCENT: Overrides = {"algorithm": "descent", "optimizer": "gd", "step": "curvature"}
TUNED: Overrides = {**DESCENT, "eta": 0.25, "rates": 5}
GENERIC_TUNED = {kernel: {**run, **TUNED} for kernel, run in GENERIC_QUERY.items()}
PAIRED_TUNED = {kernel: {**run, "init": "paired"} for kernel, run in GENERIC_TUNED.items()}
VALUES_TUNED = {kernel: {**run, "train": "qkv"} for kernel, run in GENERIC_TUNED.items()}
FEW_HEADS = {kernel: {**run, "H": 1} for kernel, run in VALUES_TUNED.items()}
STARTS = {kernel: {**run, **DESCENT, "eta": 1.0, "starts": 16} for kernel, run in GENERIC_QUERY.items()}

# ---------------------------------------------------------------- the construction that separates

SEPARATING = {
    kernel: {
        "kernel": kernel, "train": "q", "init": "separating", "tokens": "biased", "output_scale": 1.0,
        **ONE,
    }
    for kernel in KERNELS
}  # fmt: skip
SEPARATING_TUNED = {kernel: {**run, **TUNED} for kernel, run in SEPARATING.items()}
# One couple of heads, as the construction was calibrated.
MAP = {
    kernel: {**run, "H": 2, "grid": 12, "steps": lambda steps: min(steps, 1000)}
    for kernel, run in SEPARATING_TUNED.items()
}

# ---------------------------------------------------------------- how large values must be for Theorem 2

SIZES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
OVER_VALUES = {
    f"{kernel}_{i}": {**run, "init": "paired", "output_scale": size}
    for kernel, run in QUERY.items()
    for i, size in enumerate(SIZES)
}
