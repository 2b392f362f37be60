"""The runs that claims and figures share, as overrides of a preset.

Two needs that name the same overrides share one stored run, so both take them from here.
"""

from typing import Any

from descentlab.judging import Grid, times

Overrides = dict[str, Any]

# The error on drawn prompts, which elsewhere the exact error saves.
DRAWN: Overrides = {"samples": 2048}
# All weights Gaussian: the blocks that the theorem's start leaves at zero are trained too.
ANYWHERE: Overrides = {"start": "anywhere", "s": 0.5}
# A hundred times the preset's scale: ten thousand times s^2.
LARGE: Overrides = {"s": times(100.0)}
# Training and test prompts of the same length, longer and longer.
LENGTHS = Grid("N", [{"N": times(4.0**i), "M": times(4.0**i)} for i in range(7)])
# Ever smaller starts.
SCALES = Grid("s", [{"s": times(0.1**i)} for i in range(7)])
# Figures.
STARTS: dict[str, Overrides] = {
    "small": {"s": times(0.01)}, "own": {}, "larger": {"s": times(10.0)}, "large": LARGE,
    "anywhere": ANYWHERE, "minus": {"start": "minus"},
}  # fmt: skip
MATRICES: Overrides = {"detail": True}
ONLINE: Overrides = {
    "algorithm": "online", "precision": 32, "eta": 0.02, "batch": 256,
    "steps": lambda steps: min(steps // 8, 5000),
}  # fmt: skip
