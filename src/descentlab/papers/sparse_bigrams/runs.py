"""The runs behind claims and figures, as changes to a preset.

Sizes range over seven values around the preset's own, with simulated batches, whose cost does not depend on
their size. `noise` divides the batch, which leaves the compiled program as it is.
"""

from typing import Any

from descentlab.judging import Grid, times

# ---------------------------------------------------------------- one task

GD: dict[str, Any] = {"optimizer": "gd"}  # whose stages these are
PROXIMAL = {**GD, "algorithm": "proximal"}
SGD = {**GD, "algorithm": "sgd", "refit": False}
SMALL_STEP = {**SGD, "eta_2": lambda eta: eta / 10}
SGD_ROUNDED = {**GD, "algorithm": "sgd", "refit": True}
POPULATION = {**GD, "algorithm": "population", "refit": False, "reduced": True}
ALL_WEIGHTS = {**POPULATION, "reduced": False}
SIMULATED = {**GD, "algorithm": "simulated"}
LAMBDAS = {
    f"lam_{i}": {**PROXIMAL, "lam": lambda lam, f=factor: f * lam}
    for i, factor in enumerate((0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0))
}

# ---------------------------------------------------------------- softmax against linear attention. Figure 2

LINEAR = {
    **SGD, "T": 50, "N": 10, "Q": 2, "batch": 256, "eta_1": 0.03, "eta_2": 0.03, "steps": 2000,
}  # fmt: skip
SOFTMAX = {**LINEAR, "attention": "softmax", "logit_rate": 1 / 0.03}

# ---------------------------------------------------------------- at scale. Figure 5

AT_SCALE = {
    **SIMULATED, "at_scale": True, "precision": 32, "steps": lambda steps: steps * 3 // 5,
}  # fmt: skip
SGD_AT_SCALE = {**AT_SCALE, "lam": 0.0, "refit": False}
# A few steps of real batches from the end of stage 1, and the same simulated.
REAL_AT_SCALE = {
    **PROXIMAL, "at_scale": True, "precision": 32, "batch": 256, "start": "line", "steps": 20,
    "refit": False,
}  # fmt: skip
SAME_SIMULATED = {**REAL_AT_SCALE, "algorithm": "simulated"}

# ---------------------------------------------------------------- over sizes

DOUBLINGS = range(7)
# Batches in units of the preset's: around the cheapest, and with the noise of a step at half of lambda.
BATCHES, ABOVE_NOISE = (1 / 8, 1 / 4, 1 / 2), 32.0
SHORT = {**SIMULATED, "refit": False, "steps": 500}
STAGE_ONE = {**SHORT, "steps": 1500, "lam": 0.0, "eta_2": 1e-12}  # and stays where it ends
# With few tokens and positions signals of 1/(QN) are the largest that a run can start from.
STAGE_TWO = {**SHORT, "start": "line", "switch": lambda switch: min(switch, 1.0)}
FINE_TUNED = {**SHORT, "start": "transfer"}


def over_T(settings: dict[str, Any], power: float, batches: tuple[float, ...]) -> Grid:
    """Sizes T/8, ..., 8T, each with batches that grow like a power of T."""
    cells = [
        {"T": times(2.0**j / 8), "noise": 1 / (b * (2.0**j / 8) ** power)} for j in DOUBLINGS for b in batches
    ]
    return Grid("T", cells, settings)


def over_N(batches: tuple[float, ...]) -> Grid:
    """N from 3 to 40 with lambda in proportion to its bound a_V K_P/Q."""
    cells = []
    for tokens in (3, 4, 6, 9, 14, 24, 40):
        shrink = (3 / tokens) * (1 / 2 - 1 / tokens) / (1 / 2 - 1 / 3)
        for b in batches:
            cells.append({"N": tokens, "lam": times(shrink), "noise": 1 / (b * (tokens / 3) ** 0.75)})
    return Grid("N", cells, STAGE_TWO)


def over_Q(batches: tuple[float, ...]) -> Grid:
    """Q from 2 to 12 with lambda in proportion to its bound a_V K_P/Q, which falls like Q^-2."""
    cells = [
        {"Q": places, "lam": times(4 / places**2), "noise": 1 / (b * (places / 2) ** 1.8)}
        for places in (2, 3, 4, 5, 6, 8, 12)
        for b in batches
    ]
    return Grid("Q", cells, {**STAGE_TWO, "steps": 1500})


STAGE_ONE_IN_T = over_T(STAGE_ONE, 1.0, (1.0, 2.0, 4.0))
STAGE_TWO_IN_T = over_T(STAGE_TWO, 0.0, (ABOVE_NOISE,))
CHEAPEST_IN_T = over_T(STAGE_TWO, 0.5, BATCHES)
FINE_TUNED_IN_T = over_T(FINE_TUNED, 0.5, BATCHES)
STAGE_TWO_IN_N = over_N(BATCHES)
STAGE_TWO_IN_Q = over_Q(BATCHES)
SCRATCH_AND_TUNED = {
    **{f"scratch_{i}": cell for i, cell in enumerate(STAGE_ONE_IN_T.runs.values())},
    **{f"tuned_{i}": cell for i, cell in enumerate(FINE_TUNED_IN_T.runs.values())},
}
ACCURACY = Grid(
    "noise",
    [{"noise": 2.0**-j} for j in range(-1, 10)],
    {**SIMULATED, "start": "line", "steps": 1000},
)
CORRELATIONS = Grid(
    "correlation", [{"correlation": c} for c in (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)],
    {**PROXIMAL, "start": "transfer"},
)  # fmt: skip
