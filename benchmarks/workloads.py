"""The workloads: what is run, what must agree, what it takes at least, and what is aimed at.

Every workload is there once as the laboratory runs it (`lab/`) and once as a competent author would write it
in PyTorch (`reference/`). This file needs neither, so that both interpreters can read it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import counts
from counts import Counts, Sizes


@dataclass(frozen=True)
class Workload:
    """One workload.

    `allowed` has the largest difference of each recorded probe, relative to its size, over the steps
    `checked`; `late` the same over the timed run, where rounding leaves something to compare. `unchecked`
    probes are recorded on both sides and not compared. Goals are by number of seeds, or by variant.
    """

    name: str
    about: str
    paper: str
    settings: dict[str, Any]
    steps: int
    checked: tuple[int, ...]
    allowed: dict[str, float]
    counts: Callable[[Sizes], Counts] | None
    bytes: Callable[[Sizes, int], float]
    preset: str = "quick"
    kind: str = ""
    seeds: tuple[int, ...] = (1,)
    variants: tuple[str, ...] = ("eager", "compiled")
    goals: dict[str, float] = field(default_factory=dict)
    late: dict[str, float] = field(default_factory=dict)
    unchecked: tuple[str, ...] = ()
    recorded: tuple[int, ...] | None = None  # the paper's own steps unless given
    begins: int = 0  # the step whose weights the reference starts from
    precision: int = 64
    stands_in_the_way: str = ""  # of the machine's limit

    @property
    def sizes(self) -> Sizes:
        """The settings as far as formulas need them."""
        return self.settings | {"records": len(self.recorded) if self.recorded else 120}


# ---------------------------------------------------------------- sign_descent

# Sums of 2000 products in another order; queries and keys are stored in 32 bits.
_SIGN = {
    "training_loss": 1e-12, "test_loss": 1e-12, "test_error": 1e-12, "value_signal": 1e-12,
    "value_noise": 1e-12, "query_signal": 1e-12, "key_signal": 1e-12, "log_softmax_11": 1e-12,
    "log_softmax_21": 1e-12, "noise_alignment": 1e-12, "positive_share": 1e-12, "key_turned": 1e-12,
    "query_turned": 1e-12, "signals_oppose": 1e-12, "query_noise": 1e-6, "key_noise": 1e-6,
}  # fmt: skip
# Late in the run autograd loses signs to underflow (README.md): only what does not depend on them must agree
# closely; the test loss does depend on them, weakly.
_SIGN_LATE = dict.fromkeys(
    ("training_loss", "value_signal", "value_noise", "query_signal", "key_signal"), 1e-3
) | {"test_loss": 0.1}
_SMALL_PRODUCTS = (
    "products of {m_k} x {J} matrices with {n} columns: too small to fill the units, and some fifty small "
    "operations a step"
)


def _sign_descent(optimizer: str, goal: float, **more: Any) -> Workload:
    settings = {"optimizer": optimizer, "d": 2000, "n": 20, "s": 20, "m_k": 100, "m_v": 100, "n_test": 500}
    return Workload(
        name=f"sign_descent_{optimizer}",
        about=f"sign_descent, {'SignGD' if optimizer == 'sign' else 'GD'}, d=2000 n=20 m_k=m_v=100, 64-bit",
        paper="sign_descent", settings=settings | {"precision": 64, "detail": True}, steps=2000,
        checked=tuple(range(61)), allowed=_SIGN, counts=counts.sign_descent,
        bytes=counts.sign_descent_bytes, seeds=(1, 16), goals={"1": goal, "16": goal},
        stands_in_the_way=_SMALL_PRODUCTS.format(**settings, J=counts.moving(settings)), **more,
    )  # fmt: skip


# ---------------------------------------------------------------- all

_ALL = (
    _sign_descent("sign", 12.0, late=_SIGN_LATE),
    _sign_descent("gd", 50.0, late=dict.fromkeys(_SIGN, 1e-6)),
)
WORKLOADS = {work.name: work for work in _ALL}


def named(name: str) -> Workload:
    """A workload by its name."""
    return WORKLOADS[name]
