"""Verdicts: from an estimate and a prediction to an outcome, one claim by itself or a family of them.

SUPPORTED: the estimate's interval lies inside the prediction. REFUTED: it is disjoint from it. UNDECIDED:
neither, with what it would take. OUT_OF_REGIME: an exact assumption is not met. BROKEN: nothing to measure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from html import escape
from typing import Any, cast

from descentlab.judging._estimates import Estimate
from descentlab.judging._intervals import Bounds, Interval
from descentlab.words import html_table, interval, number

# Below this, a significance is a statement about rounding.
LEAST_ALPHA = 1e-12
MOST_SEEDS = 4096


class Outcome(StrEnum):
    """What a verdict says."""

    SUPPORTED = "SUPPORTED"
    REFUTED = "REFUTED"
    UNDECIDED = "UNDECIDED"
    OUT_OF_REGIME = "OUT_OF_REGIME"
    BROKEN = "BROKEN"


# Of the outcomes in a notebook; BROKEN and REFUTED are not told apart by red and green alone.
COLOURS = {
    Outcome.SUPPORTED: "#00707f", Outcome.REFUTED: "#b84700", Outcome.UNDECIDED: "#5f6872",
    Outcome.OUT_OF_REGIME: "#7b3f98", Outcome.BROKEN: "#b3001b",
}  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """The outcome of a claim, with the estimate, its 95 % interval, the range tested and the seeds.

    `level` is the confidence level that decided the outcome, which Holm's procedure may have raised.
    """

    claim: str
    cite: str
    statement: str
    outcome: Outcome
    predicts: Interval
    level: float
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    seeds: int = 0
    unmet: tuple[str, ...] = ()
    range: Mapping[str, Bounds] = field(default_factory=dict[str, Bounds])
    runs: tuple[str, ...] = ()
    reason: str = ""
    assumptions: Mapping[str, float] = field(default_factory=dict[str, float])
    notes: Mapping[str, float] = field(default_factory=dict[str, float])
    kind: str = "ours"

    def as_json(self) -> dict[str, Any]:
        """The verdict in JSON's types; what is not finite becomes null."""
        named = asdict(self) | {"outcome": str(self.outcome)}
        return _plain(named | {"predicts": [self.predicts.low, self.predicts.high]})

    def _repr_html_(self) -> str:
        measured = "nothing"
        if not math.isnan(self.value):
            measured = (
                f"{number(self.value)}, 95 % interval {interval(self.low, self.high)}, {self.seeds} seeds"
            )
        badge = f"background:{COLOURS[self.outcome]};color:#fff;padding:0 .4em;border-radius:3px"
        head = f'<b style="{badge}">{self.outcome}</b> <code>{self.claim}</code> ({escape(self.cite)})'
        predicted = interval(self.predicts.low, self.predicts.high)
        rows = {"measured": measured, "predicted": predicted, "why": self.reason, "statement": self.statement}
        return head + html_table(rows)

    def __str__(self) -> str:
        words = f"{self.outcome} {self.claim} ({self.cite}): "
        if not math.isnan(self.value):
            words += f"{self.value:.4g} in {Interval(self.low, self.high)}, predicted {self.predicts}, "
            words += f"{self.seeds} seeds" + ("; " if self.reason else "")
        return words + self.reason


def outcome(predicts: Interval, estimate: Estimate, level: float) -> Outcome:
    """What the interval at this level says about the prediction."""
    bounds = estimate.interval(level)
    if predicts.holds(*bounds):
        return Outcome.SUPPORTED
    return Outcome.REFUTED if predicts.misses(*bounds) else Outcome.UNDECIDED


def significance(predicts: Interval, estimate: Estimate) -> float:
    """The smallest alpha whose (1 - alpha)-interval decides; 1 if none does.

    Intervals are nested in the level, so that bisection on log alpha finds it.
    """

    def decides(alpha: float) -> bool:
        return predicts.decides(*estimate.interval(1 - alpha))

    if not decides(1.0):
        return 1.0
    if decides(LEAST_ALPHA):
        return LEAST_ALPHA
    low, high = math.log(LEAST_ALPHA), 0.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        low, high = (low, middle) if decides(math.exp(middle)) else (middle, high)
    return math.exp(high)


def holm(significances: Sequence[float], level: float = 0.95) -> list[float]:
    """The confidence level at which Holm's procedure judges each of m claims.

    The k-th smallest significance is compared with (1 - level)/(m - k + 1), up to the first that exceeds
    its bound. The claims after that one are as undecided as it is, and share its level.
    """
    adjusted, alpha, failed = [level] * len(significances), 1 - level, False
    for k, i in enumerate(sorted(range(len(significances)), key=lambda i: significances[i])):
        if not failed:
            alpha = (1 - level) / (len(significances) - k)
            failed = significances[i] > alpha
        adjusted[i] = 1 - alpha
    return adjusted


def needs(predicts: Interval, estimate: Estimate, level: float) -> str:
    """What would decide: so many seeds, or a longer horizon where no number of seeds would."""
    low, high = estimate.interval(0.0, seeds=math.inf)
    if estimate.seeds == 1 and math.isinf(low) and math.isinf(high):
        return "needs more seeds: one shows no spread"
    if not predicts.decides(low, high):
        return f"needs {estimate.lacks}: any number of seeds would leave {Interval(low, high)}"
    seeds = estimate.seeds
    while seeds < MOST_SEEDS and not predicts.decides(*estimate.interval(level, seeds=seeds)):
        seeds += 1 + seeds // 16
    return f"needs about {seeds} seeds" if seeds < MOST_SEEDS else f"needs over {MOST_SEEDS} seeds"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast(Mapping[str, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast(list[Any], value)]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
