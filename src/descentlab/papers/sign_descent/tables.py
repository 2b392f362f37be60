"""Table 1 of the slides, and the stage times beside the slides' own."""

from typing import Any

import numpy as np
import xarray as xr

from descentlab.judging import Broken
from descentlab.papers.sign_descent.stages import (
    EVENTS,
    SLIDES,
    SLIDES_RATIO,
    log_turning_ratio,
    stage_estimates,
    stage_times,
    until,
)

PATTERNS = ("K+, Q+", "K+, Q−", "K−, Q+", "K−, Q−")
# Table 1 as the slides print it.
SLIDES_TABLE_1 = np.array([[486, 1, 0, 25], [244, 4, 9, 250], [223, 10, 4, 221], [37, 2, 3, 481]])


def sign_contingency(run: xr.Dataset, step: int = 10) -> np.ndarray:
    """The number of pairs (s, i) with each sign pattern at the start and at `step`, by seed, (seed, 4, 4)."""
    part = until(run, step).isel(step=[0, -1]).transpose("seed", "step", ...)
    key, query = (part[name].values <= 0 for name in ("key_noise", "query_noise"))
    pattern = (2 * key + query).reshape(*key.shape[:2], -1)
    before, after = (pattern[:, i, None, :] == np.arange(4)[:, None] for i in (0, 1))
    return np.einsum("sap,sbp->sab", before.astype(int), after.astype(int))


def rows_table_1(run: xr.Dataset) -> tuple[list[str], list[list[Any]]]:
    """Sign patterns at the start against those at t = 10: mean over seeds, the first seed, the slides."""
    end = int(until(run, 10)["step"].values[-1])
    counts = sign_contingency(run)
    sources = {f"mean of {len(counts)} seeds": counts.mean(0)} if len(counts) > 1 else {}
    sources |= {"first seed": counts[0], "slides": SLIDES_TABLE_1}
    found: list[list[Any]] = []
    for source, table in sources.items():
        full = np.vstack([table, table.sum(0)])
        full = np.column_stack([full, full.sum(1)]).round(1).tolist()
        found += [[source, name, *line] for name, line in zip((*PATTERNS, "column sum"), full, strict=True)]
    return ["", f"t = 0 \\ t = {end}", *PATTERNS, "row sum"], found


def rows_stage_times(run: xr.Dataset) -> tuple[list[str], list[list[Any]]]:
    """Stage times over seeds beside those of the slides."""
    found: list[list[Any]] = []
    times = stage_times(run)
    for name, estimate in stage_estimates(run).items():
        low, high = estimate.interval()
        reached = times[name]
        middle = f"{estimate.value:.3g}" if np.isfinite(estimate.value) else "not reached"
        measured = [middle, span(low, high), span(reached.min(), reached.max())]
        found += [[name, EVENTS[name].words, *measured, str(SLIDES[name])]]
    with np.errstate(invalid="ignore"):
        ratios = times["T_query"] / times["T_key"]
    try:
        ratio = log_turning_ratio(run)
        low, high = np.exp(ratio.interval())
        shown = [f"{np.exp(ratio.value):.3g}", span(low, high), span(ratios.min(), ratios.max())]
    except Broken:
        shown = ["not reached", "–", "–"]
    return (
        ["time", "event", "measured", "95 % interval", "range of seeds", "slides"],
        [*found, ["T_query / T_key", "geometric mean", *shown, f"{SLIDES_RATIO:g}"]],
    )


def span(low: float, high: float) -> str:
    """An interval, open where it is unbounded and empty where it says nothing."""
    if not np.isfinite(low) and not np.isfinite(high):
        return "–"
    return f"{low:.3g} to {high:.3g}" if np.isfinite(high) else f"above {low:.3g}"
