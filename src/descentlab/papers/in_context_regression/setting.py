"""The setting of in_context_regression: presets, and when a run is recorded."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from descentlab.engine import OPTIMIZERS, Settings, log_spaced, parameter, preset
from descentlab.errors import SettingError

SPECTRA = ("identity", "power")
STARTS = ("theorem", "minus", "anywhere")
LENGTHS = (5, 10, 20, 40, 80, 160, 320)  # of test prompts


@preset
class Preset(Settings):
    """Linear self-attention on prompts of N labelled points and a query.

    Lambda is diagonal, which loses nothing: the start's law does not change under rotations.
    """

    d: int = parameter("dimension of x", default=5, low=1, high=64)
    N: int = parameter("labelled points of a training prompt", default=20, low=1, high=10**9)
    M: int = parameter("labelled points of a test prompt, for shifts", default=20, low=1, high=10**9)
    Lambda: str = parameter(
        "variances of x's coordinates: identity, power (i^-alpha), or d numbers such as 1,0.5,0.25",
        default="power",
    )
    alpha: float = parameter("exponent of Lambda=power", default=1.0, low=0, high=4)
    s: float = parameter("scale of the start", default=0.1, above=0, high=1e3)
    balance: float = parameter(
        "|W_KQ| over |W_PV| at the start; the theorem has 1", default=1.0, above=0, high=1e3
    )
    Theta: str = parameter(
        "Theta of the start: Gaussian, a multiple of I, or of rank one",
        default="gaussian",
        choices=("gaussian", "identity", "rank_one"),
    )
    start: str = parameter(
        "theorem: s Theta Theta'; minus: its negative; anywhere: Gaussian entries in all blocks",
        default="theorem",
        choices=STARTS,
    )
    noise: float = parameter("standard deviation of the labels' noise", default=0.0, low=0, high=1e3)
    c: float = parameter("covariate shift: test inputs are c times those of training", default=2.0, above=0)
    algorithm: str = parameter(
        "gradient flow or descent on the exact loss, or descent on fresh prompts",
        default="flow",
        choices=("flow", "descent", "online"),
    )
    optimizer: str = parameter(
        "gradient steps, which the flow is the limit of, or sign descent, Adam, or proximal steps with an l1 "
        "norm of W_KQ",
        default="gd",
        choices=OPTIMIZERS,
    )
    lam: float = parameter("optimizer=proximal: weight of the l1 norm", default=0.01, low=0)
    eta: float = parameter("step size; step t of a flow is time eta t", default=0.01, above=0)
    batch: int = parameter("prompts a step (online)", default=256, low=1, high=1_000_000)
    steps: int = parameter("training steps", default=40_000, low=1, high=10**12)
    samples: int = parameter("test prompts drawn of each length, 0: none", default=0, low=0, high=10**7)
    detail: bool = parameter("record W_PV and W_KQ along the run", default=False)
    precision: int = parameter("bits of a floating-point number", default=64, choices=(32, 64))

    def implied(self, changes):
        """Given variances belong to their dimension."""
        given = "d" in changes and self.Lambda not in SPECTRA
        return {"Lambda": "power"} if given else {}

    def conflicts(self) -> Iterator[str]:
        """Variances that are none, and flows in a precision that their tolerance is beyond."""
        variances(self)
        if self.algorithm == "flow" and self.precision == 32:
            yield "algorithm=flow takes precision=64: its tolerance is below 32-bit rounding."
        if self.optimizer != "gd" and self.algorithm == "flow":
            yield f"optimizer={self.optimizer} takes algorithm=descent or online, got algorithm=flow."
        if self.algorithm == "online" and self.N > 10_000:
            yield f"algorithm=online takes N <= 10000, got N={self.N}."

    @property
    def start_over_bound(self) -> float:
        """s^2 |Gamma| sqrt(d) / 2, which Theorem 4.1 wants below 1."""
        Lambda = variances(self)
        Gamma = (1 + 1 / self.N) * Lambda + (Lambda.sum() + self.noise**2) / self.N
        return float(self.s**2 * Gamma.max() * math.sqrt(self.d) / 2)


def variances(p: Any) -> np.ndarray:
    """The diagonal of Lambda; a SettingError if it is none."""
    if p.Lambda == "identity":
        return np.ones(p.d)
    if p.Lambda == "power":
        return np.arange(1.0, p.d + 1) ** -p.alpha
    try:
        found = np.array([float(word) for word in p.Lambda.split(",")])
    except ValueError:
        found = np.zeros(0)
    if found.size != p.d or not np.isfinite(found).all() or not found.min() > 0:
        raise SettingError(
            f"Lambda takes {', '.join(SPECTRA)}, or d = {p.d} positive numbers; got Lambda={p.Lambda}."
        )
    return found


PRESETS = {
    # For tests and a first look.
    "tiny": Preset(d=3, N=10, M=10, alpha=0.5, steps=20_000),
    # Some seconds a run.
    "quick": Preset(),
    # The dimension of the paper's experiments on transformers.
    "paper": Preset(d=20, N=40, M=40, steps=400_000),
}


def records(p: Preset) -> np.ndarray:
    """The first steps one by one, then log-spaced."""
    return log_spaced(p.steps, dense=10, per_decade=60)
