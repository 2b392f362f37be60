"""Cells of the atlas: what a task does under an optimiser and a kernel.

Every pair of an optimiser and a kernel is a cell, swept over its rates and over seeds, and answers three
questions: does it learn, how fast, does it recover the truth. A rate is chosen by one half of the seeds and
judged by the other, and the other way round: no seed speaks of a rate that it had a part in choosing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from descentlab.judging import Broken, Estimate, hitting_time, median, share
from descentlab.papers import FEWEST_SEEDS, Crossing


@dataclass(frozen=True)
class Answer:
    """A share of seeds at rates they did not choose, with what lies behind it."""

    share: Estimate
    detail: Estimate
    rates: tuple[float, ...]
    at_the_edge: bool

    @property
    def word(self) -> str:
        """yes or no where the interval lies on one side of one half, else unclear."""
        low, high = self.share.interval()
        return "yes" if low > 0.5 else "no" if high < 0.5 else "unclear"


@dataclass(frozen=True)
class Cell:
    """What a task does under an optimiser and a kernel.

    `learns` has the steps it takes as its detail, `recovers` the quantity at the end. `shares` gives the
    share of all seeds that learn, their median steps, and the share that recovers, at every rate.
    """

    learns: Answer
    recovers: Answer
    shares: Mapping[float, tuple[float, float, float]]


def judged(crossing: Crossing, runs: Mapping[float, xr.Dataset]) -> Cell:
    """The answers of a cell, from the run at each of its rates."""
    rates = sorted(runs)
    if (seeds := runs[rates[0]].sizes["seed"]) < FEWEST_SEEDS:
        raise Broken(
            f"A cell takes {FEWEST_SEEDS} seeds or more, got {seeds}: one half chooses for the other."
        )
    learning = [crossing.learns.series(runs[rate]) for rate in rates]
    knowing = [crossing.recovers.series(runs[rate]) for rate in rates]
    times = [crossing.learns.first_steps(one) for one in learning]

    def speed(i: int, half: slice) -> tuple[float, ...]:
        last = crossing.learns.lacks(learning[i].values[half, -1])
        hits = np.isfinite(times[i][half])
        return -float(hits.mean()), median(times[i][half]).value, float(np.median(last))

    def truth(i: int, half: slice) -> tuple[float, ...]:
        last = crossing.recovers.lacks(knowing[i].values[half, -1])
        # Of rates that recover alike, the fastest.
        return -float(np.mean(last <= 0)), float(np.median(np.maximum(last, 0.0))), speed(i, half)[1]

    fast, safe = _chosen(speed, len(rates)), _chosen(truth, len(rates))
    steps, ends = _exchanged(learning, fast), _exchanged(knowing, safe).isel(step=-1).values
    bounds = {"below": crossing.learns.below, "above": crossing.learns.above}
    shares = {
        rate: (
            float(np.isfinite(times[i]).mean()),
            median(times[i]).value,
            float((crossing.recovers.lacks(knowing[i].values[:, -1]) <= 0).mean()),
        )
        for i, rate in enumerate(rates)
    }

    def answer(hits: np.ndarray, detail: Estimate, chosen: tuple[int, int]) -> Answer:
        edge = len(rates) > 1 and any(i in (0, len(rates) - 1) for i in chosen)
        return Answer(share(hits), detail, tuple(rates[i] for i in sorted(set(chosen))), edge)

    learns = answer(np.isfinite(crossing.learns.first_steps(steps)), hitting_time(steps, **bounds), fast)
    recovers = answer(crossing.recovers.lacks(ends) <= 0, median(crossing.recovers.told(ends)), safe)
    return Cell(learns, recovers, shares)


def _chosen(score: Callable[[int, slice], tuple[float, ...]], count: int) -> tuple[int, int]:
    """The best rate of the even seeds, and that of the odd ones."""
    even, odd = (min(range(count), key=lambda i: score(i, slice(h, None, 2))) for h in (0, 1))
    return even, odd


def _exchanged(series: Sequence[xr.DataArray], chosen: tuple[int, int]) -> xr.DataArray:
    """The even seeds at the rate that the odd ones chose, and the odd seeds at that of the even ones."""
    even, odd = chosen
    parts = [series[odd].isel(seed=slice(0, None, 2)), series[even].isel(seed=slice(1, None, 2))]
    return xr.concat(parts, "seed")
