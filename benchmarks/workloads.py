"""The workloads: what is run, what must agree, what it takes at least, and what is aimed at.

Every workload is there once as the laboratory runs it (`lab/`) and once as a competent author would write it
in PyTorch (`reference/`). This file needs neither, so that both interpreters can read it.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import counts
from counts import Counts, Sizes


@dataclass(frozen=True)
class Workload:
    """One workload.

    `allowed` has the largest difference of each recorded probe, relative to its size, over the steps
    `checked`; `late` the same over the timed run, where rounding leaves something to compare.
    Goals are by number of seeds, or by variant.
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
    over: tuple[str, ...] = ()  # the axes of a sweep
    seeds: tuple[int, ...] = (1,)
    variants: tuple[str, ...] = ("eager", "compiled")
    goals: dict[str, float] = field(default_factory=dict)
    late: dict[str, float] = field(default_factory=dict)
    recorded: tuple[int, ...] | None = None  # the paper's own steps unless given
    begins: int = 0  # the step whose weights the reference starts from
    compared_from: int = 0  # the first step that is compared
    lengths: dict[str, int] = field(default_factory=dict)  # sizes that follow from the settings
    precision: int = 64
    stands_in_the_way: str = ""  # of the machine's limit

    @property
    def sizes(self) -> Sizes:
        """The settings as far as formulas need them."""
        return self.settings | self.lengths | {"records": len(self.recorded) if self.recorded else 120}


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


# ---------------------------------------------------------------- the other papers


def _bigrams(name: str, T: int, batch: int, steps: int, goal: float) -> Workload:
    settings = {"T": T, "N": 10, "Q": 2, "batch": batch, "algorithm": "sgd", "refit": False, "switch": 1e9}
    return Workload(
        name=f"sparse_bigrams_{name}", about=f"sparse_bigrams, online, T={T} batch={batch} N=10, 32-bit",
        paper="sparse_bigrams", kind="online", settings=settings | {"eta_1": 0.03, "precision": 32},
        steps=steps, recorded=tuple(range(0, steps + 1, steps // 20)), checked=tuple(range(0, 51, 5)),
        # 32-bit sums in another order; at step 0 distances are rounding on both sides.
        allowed=dict.fromkeys(("excess_loss", "a_V", "a_A", "Delta_V", "Delta_A"), 1e-3), compared_from=5,
        counts=counts.sparse_bigrams, bytes=counts.sparse_bigrams_bytes, seeds=(1, 16), precision=32,
        goals={"1": goal, "16": goal},
        stands_in_the_way="a pass over all positions for each of N tokens is slower than a product",
    )  # fmt: skip


_TEACHER = {
    "teacher": "cnn",
    "activation": "relu",
    "D": 36,
    "K": 4,
    "d": 10,
    "M": 5,
    "noise": 0.1,
    "batch": 100,
}
_BILINEAR = ("excess_loss", "attention_error", "value_error", "value_cosine")


def _bilinear(name: str, algorithm: str, precision: int, steps: int, **more: Any) -> Workload:
    settings = {**_TEACHER, "eta": 0.05, "algorithm": algorithm, "precision": precision}
    return Workload(
        name=f"bilinear_{name}", about=f"bilinear_teachers, {algorithm}, D=36 d=10 M=5, {precision}-bit",
        paper="bilinear_teachers", kind=algorithm, precision=precision, steps=steps,
        settings=settings | {"reduced": False, "detail": False}, begins=1,
        # Sums in another order, and cancellation in the plain formula of the loss, which the lab's avoids.
        allowed=dict.fromkeys(_BILINEAR, 1e-9 if precision == 64 else 1e-3),
        bytes=counts.bilinear_bytes, **more,
    )  # fmt: skip


_TRANSFORMER = {"task": "pathfinder", "n_train": 128, "n_test": 8, "D": 64, "H": 2, "width": 128, "layers": 2}


def _transformer(kernel: str, length: int, steps: int, goals: dict[str, float]) -> Workload:
    own = {"kernel": kernel, "patch": {256: 2, 1024: 1}[length], "batch": 32, "eta": 1e-3, "horizon": 1000}
    fused = ("fused",) if kernel == "softmax" else ()
    return Workload(
        name=f"transformer_{kernel}_{length}",
        about=f"attention_kernels, two-layer transformer, {kernel}, length {length}, batch 32, 32-bit",
        paper="attention_kernels", kind="transformer", preset="pathfinder",
        settings={**_TRANSFORMER, **own, "warmup": 2.0}, steps=steps, recorded=(0, steps),
        checked=(0, 1, 2, 3),
        # Adam divides gradients by their size, so rounding of small ones shows in the loss.
        allowed={"training_loss": 1e-4, "test_loss": 1e-4}, lengths={"length": length},
        counts=counts.transformer, bytes=counts.transformer_bytes, precision=32, goals=goals,
        variants=("eager", "compiled", *fused),
        stands_in_the_way="elementwise passes over the scores between their products, and scores made again",
    )  # fmt: skip


_SCALE = {
    "T": 100_000, "N": 100, "batch": 25_600, "algorithm": "simulated", "precision": 32, "start": "line",
    "switch": 20.0, "lam": 0.02, "refit": False,
}  # fmt: skip

_exact = _bilinear("", "population", 64, 1, checked=(0,), counts=None).settings

# ---------------------------------------------------------------- all

_ALL = (
    _sign_descent("sign", 12.0, late=_SIGN_LATE),
    _sign_descent("gd", 50.0, late=dict.fromkeys(_SIGN, 1e-6)),
    _bigrams("small", 50, 64, 2000, 25.0),
    _bigrams("large", 200, 1024, 100, 30.0),
    _bilinear(
        "population", "population", 64, 20_000, seeds=(1, 64), checked=(0, *range(1, 2001, 50)),
        counts=counts.bilinear_population, goals={"64": 80.0}, late=dict.fromkeys(_BILINEAR, 1e-6),
        stands_in_the_way="arcsines and square roots of few numbers, and thirty small operations a step",
    ),
    *(
        _bilinear(
            name, "online", precision, 1500, checked=tuple(range(51)), goals={"1": 2.5},
            counts=counts.bilinear_online,
            stands_in_the_way="products with 5 rows are below full speed",
        )
        for name, precision in (("online", 64), ("online_32", 32))
    ),
    Workload(
        name="decision_lists_flow", 
        about="decision_lists, exact population flow, L=12 n=5 M=4 with repeats, 64-bit",
        paper="decision_lists", preset="repeats", steps=10**10,
        settings={"L": 12, "n": 5, "M": 4, "law": "iid", "c": 20.0},
        checked=(0, *(round(10 ** (k / 4)) for k in range(41))),
        # Two error-controlled solvers agree to their tolerance, 1e-6 a step, and not to rounding.
        allowed={"loss": 1e-4, "error": 1e-6, "hit": 1e-4}, compared_from=1,
        counts=None, bytes=counts.lengths_bytes,
        stands_in_the_way="a solver chooses its own steps: there is no count to compare with",
    ),
    Workload(
        name="attention_theory", about="attention_kernels, theory problem, N=8 n=4 D=16 d=8 H=4, 64-bit",
        paper="attention_kernels", kind="theory", steps=3000, checked=(*range(50), 100),
        settings={"N": 8, "n": 4, "D": 16, "d": 8, "H": 4, "kernel": "softmax", "algorithm": "descent"},
        allowed=dict.fromkeys(("loss", "gradient", "moved", "length", "energy", "beta", "gamma"), 1e-9),
        compared_from=1, counts=counts.theory, bytes=counts.theory_bytes,
        stands_in_the_way="batched products of 4 x 8 matrices are far below full speed",
    ),
    _transformer("softmax", 256, 8, {}),
    _transformer("gaussian", 256, 8, {}),
    _transformer("softmax", 1024, 2, {"1": 2.0, "fused": 1 / 1.2}),
    _transformer("gaussian", 1024, 2, {"1": 3.0}),
    dataclasses.replace(
        _bilinear("sweep", "population", 64, 2000, checked=(0,), counts=counts.bilinear_population),
        name="sweep", about="a sweep of 256 cells, bilinear_teachers, all weights by exact descent, 64-bit",
        kind="sweep", over=("eta=logspace(0.01,0.1,16)", "V_scale=logspace(0.5,2,16)"), begins=0,
        settings=_exact | {"start": "gaussian"},
        goals={"1": 20.0}, stands_in_the_way="every cell is a run of its own in the store",
    ),
    Workload(
        name="simulation", about="sparse_bigrams, simulation at T=100000 N=100, 32-bit",
        paper="sparse_bigrams", preset="scale", kind="simulated", settings=_SCALE, steps=20,
        recorded=(0, 10, 20), checked=(0, 1, 2, 3), precision=32, compared_from=1,
        allowed=dict.fromkeys(("excess_loss", "a_V", "a_A", "Delta_V", "Delta_A"), 1e-3),
        counts=counts.simulation, bytes=counts.simulation_bytes,
        stands_in_the_way="noise is drawn row by row in the cache; A, 40 MB, is passed over several times",
    ),
)  # fmt: skip
# What has no counterpart in PyTorch, and is timed alone.
ALONE = {
    "start_up": "descentlab --help and descentlab papers",
    "reproduce": "descentlab reproduce, all papers at quick scale, on all cores; only where it is named",
}
WORKLOADS = {work.name: work for work in _ALL}


def named(name: str) -> Workload:
    """A workload by its name."""
    return WORKLOADS[name]
