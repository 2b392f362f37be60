"""The strip beside a verdict: the predicted interval as a band, the estimate and its interval as a bar.

Both lie on one scale, local to the claim. What goes on beyond the scale, or for ever, ends in an arrow.
"""

import math
from dataclasses import dataclass

from descentlab.judging import Number, Verdict

WIDTH, EDGE = 200.0, 12.0
# A finite prediction keeps at least a tenth of the scale, however wide the estimate's interval is.
REACH = 3.0
LEAST = 3.0


@dataclass(frozen=True)
class Piece:
    """A horizontal stretch; `left` and `right` say whether it goes on there."""

    start: float
    end: float
    left: bool
    right: bool

    @property
    def width(self) -> float:
        """Its length."""
        return round(self.end - self.start, 2)


@dataclass(frozen=True)
class Strip:
    """Band, bar and dot in pixels; no bar where nothing was measured, no dot where the value is infinite."""

    band: Piece
    bar: Piece | None
    dot: float | None


def strip(verdict: Verdict) -> Strip:
    """The strip of a verdict."""
    left, right = _scale(verdict)

    def place(x: Number) -> float:
        inside = min(max(x, left), right)
        return round(EDGE + (WIDTH - 2 * EDGE) * (inside - left) / (right - left), 2)

    def piece(low: Number, high: Number) -> Piece:
        start, end = place(low), place(high)
        middle = (start + end) / 2
        start, end = min(start, middle - LEAST / 2), max(end, middle + LEAST / 2)
        return Piece(round(start, 2), round(end, 2), low < left, high > right)

    band = piece(verdict.predicts.low, verdict.predicts.high)
    if math.isnan(verdict.value):
        return Strip(band, None, None)
    return Strip(
        band, piece(verdict.low, verdict.high), place(verdict.value) if math.isfinite(verdict.value) else None
    )


def _scale(verdict: Verdict) -> tuple[Number, Number]:
    """The least and the largest number on the strip."""
    ends = [x for x in (verdict.predicts.low, verdict.predicts.high) if math.isfinite(x)]
    core = [*ends, *[x for x in (verdict.value,) if math.isfinite(x)]] or [0.0]
    found = [x for x in (verdict.low, verdict.high) if math.isfinite(x)]
    low, high = min(core), max(core)
    reach = REACH * (high - low) if len(ends) == 2 and high > low else math.inf
    low, high = max(min([low, *found]), low - reach), min(max([high, *found]), high + reach)
    room = 0.15 * (high - low) or 0.15 * abs(low) or 1.0
    return low - room, high + room
