"""The runs that claims and figures share, as overrides of a preset.

Two needs that name the same overrides share one stored run, so both take them from here.
"""

from typing import Any

from descentlab.scaling import Grid, times

Overrides = dict[str, Any]

# Nothing is drawn where the exact error is enough.
EXACT: Overrides = {"samples": 0}
# All weights Gaussian: the blocks that the theorem's start leaves at zero are trained too.
ANYWHERE: Overrides = EXACT | {"start": "anywhere", "s": 0.5}
# A hundred times the preset's scale: ten thousand times s^2.
LARGE: Overrides = EXACT | {"s": times(100.0)}
# Training and test prompts of the same length, longer and longer.
LENGTHS = Grid("N", [{"N": times(4.0**i), "M": times(4.0**i)} for i in range(7)], EXACT)
# Ever smaller starts.
SCALES = Grid("s", [{"s": times(0.1**i)} for i in range(7)], EXACT)
# Figures.
STARTS: dict[str, Overrides] = {
    "small": EXACT | {"s": times(0.01)}, "own": {}, "larger": EXACT | {"s": times(10.0)}, "large": LARGE,
    "anywhere": ANYWHERE, "minus": EXACT | {"start": "minus"},
}  # fmt: skip
MATRICES: Overrides = EXACT | {"detail": True}
ONLINE: Overrides = EXACT | {
    "algorithm": "online", "precision": 32, "eta": 0.02, "batch": 256,
    "steps": lambda steps: min(steps, 5000),
}  # fmt: skip
