"""The runs that claims and figures share, as overrides of a preset.

Two needs that name the same overrides share one stored run, so both take them from here.
"""

from collections.abc import Callable
from typing import Any

from descentlab.judging import Grid

Overrides = dict[str, Any]

# The six runs of the paper's Figures 2 and 3.
TEACHERS: dict[str, Overrides] = {
    "cnn_relu": {"teacher": "cnn", "activation": "relu"},
    "cnn_leaky_relu": {"teacher": "cnn", "activation": "leaky_relu"},
    "gcn_relu": {"teacher": "gcn", "activation": "relu"},
    "gcn_leaky_relu": {"teacher": "gcn", "activation": "leaky_relu"},
    "token_selection": {"teacher": "token_selection"},
    "group_sparse": {"teacher": "group_sparse"},
}
SIX: dict[str, Overrides] = {
    name: own | {"steps": lambda steps: max(steps // 10, 1)} for name, own in TEACHERS.items()
}
# What the paper's experiments run: fresh batches, no exact gradient; some T* long.
ONLINE: Overrides = {"algorithm": "online", "precision": 32, "steps": lambda steps: max(steps // 5000, 2000)}
# The full student on the smallest teacher with ReLU, some T* long: its steps are a thousand times dearer.
FULL: Overrides = TEACHERS["gcn_relu"] | {
    "student": "full", "algorithm": "online", "optimizer": "gd", "attention": "softmax", "precision": 32,
    "eta": lambda eta: 2 * eta, "steps": lambda steps: max(steps // 25_000, 400),
}  # fmt: skip
# All weights, without the reduction to two numbers.
ALL_WEIGHTS: Overrides = {"reduced": False, "detail": False, "steps": lambda steps: max(steps // 500, 1)}

# Exponents in sizes are those of the theorem's own setting, on the two numbers it reduces to.
EXACT: Overrides = {
    "student": "position_only", "inputs": "gaussian", "encoding": "orthogonal", "start": "zero",
    "train": "both", "optimizer": "gd", "attention": "softmax", "reduced": True, "detail": False,
    "precision": 64,
}  # fmt: skip
# Prefactors are read at 100 T*, and T* differs from seed to seed: a part of the preset's horizon is enough.
FLOW: Overrides = EXACT | {"algorithm": "flow", "steps": lambda steps: max(steps // 60, 1)}
DESCENT: Overrides = EXACT | {"algorithm": "population"}


def times(factor: float) -> Callable[[float], float]:
    """The preset's own value times a factor."""
    return lambda value: value * factor


def whole(factor: int) -> Callable[[int], int]:
    """The preset's own whole number times a factor."""
    return lambda value: value * factor


def steps(factor: float) -> Callable[[int], int]:
    """A sixtieth of the preset's horizon times a factor."""
    return lambda value: max(round(value * factor / 60), 1)


# T* goes like K D^2 / (eta |V*|^2). Each grid ends where the theorem speaks: D large against K, T* and 1/eta
# large. A flow knows eta only as its unit of time: it grows by as much as T* would.
START, LARGE = 4 * 3**2, 2**16
GRIDS = {
    "D": Grid(
        "D",
        [{"D": whole(START * 3**i), "eta": times(float(START**2 * 9**i))} for i in range(7)],
        FLOW,
    ),
    "K": Grid(
        "K",
        [
            {"D": whole(LARGE), "K": whole(4**i), "eta": times(float(LARGE**2 * 4**i))}
            for i in reversed(range(7))
        ],
        FLOW,
    ),
    "V": Grid("V", [{"V_scale": times(2.0**-i), "eta": times(4.0**i)} for i in range(7)], FLOW),
    "eta": Grid(
        "eta",
        [{"eta": times(2 ** (-2 * i / 3)), "steps": steps(2 ** (2 * i / 3))} for i in range(7)],
        DESCENT,
    ),
}
