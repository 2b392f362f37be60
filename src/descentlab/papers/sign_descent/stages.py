"""The four stages as hitting times, and the times that the slides give.

A stage time is the first step of its event (`EVENTS`). Steps depend on sizes that the slides do not give; the
ratio T_query / T_key does not scale with them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import xarray as xr

from descentlab.judging import first_step

# Ends of stages I, II, III, of s_21's fall, and of the turns of negative key and query noise.
SLIDES = {"T1": 2, "T2": 10, "T3": 40, "T4": 150, "T_key": 300, "T_query": 600}


@dataclass(frozen=True)
class Event:
    """What is watched for one time, the level it must cross, and the event in words."""

    series: Callable[[xr.Dataset], xr.DataArray]
    words: str
    above: float | None = None
    below: float | None = None


def softmax(run: xr.Dataset, which: str) -> xr.DataArray:
    """The softmax outputs of every sample: s_{i,11} for "11", s_{i,21} for "21"."""
    return xr.DataArray(np.exp(run[f"log_softmax_{which}"]), name=f"s_{which}")


EVENTS = {
    "T1": Event(
        lambda run: run["value_noise"].min("sample"),
        "all value noises positive",
        above=float(np.nextafter(0.0, 1.0)),  # >= the least positive number is > 0
    ),
    "T2": Event(lambda run: run["noise_alignment"], "95 % of query and key noise agree in sign", above=0.95),
    "T3": Event(lambda run: run["signals_oppose"], "95 % of query and key signals opposite", above=0.95),
    "T4": Event(
        lambda run: softmax(run, "21").mean("sample"), "s_21 at most 0.05, mean over samples", below=0.05
    ),
    "T_key": Event(lambda run: run["key_turned"], "99 % of key noise has query signal's sign", above=0.99),
    "T_query": Event(lambda run: run["query_turned"], "99 % of query noise has it", above=0.99),
}


def stage_times(run: xr.Dataset) -> dict[str, np.ndarray]:
    """The stage times of every seed; +inf where a time is not reached."""
    return {name: first_step(e.series(run), above=e.above, below=e.below) for name, e in EVENTS.items()}


def stage_time(name: str, run: xr.Dataset) -> np.ndarray:
    """When each seed reaches a stage, between records by interpolation in log t; nan where it does not."""
    event = EVENTS[name]
    level, sign = (event.above, 1) if event.above is not None else (event.below, -1)
    above = sign * (event.series(run).transpose("seed", "step").values - level)
    steps = run["step"].values.astype(float)
    times = np.full(above.shape[0], np.nan)
    for seed, own in enumerate(above):
        if (own >= 0).any():
            i = int((own >= 0).argmax())
            times[seed] = steps[i]
            if i > 0 and steps[i - 1] > 0:
                share = own[i - 1] / (own[i - 1] - own[i])
                times[seed] = steps[i - 1] * (steps[i] / steps[i - 1]) ** share
    return times


# What a sweep reads off a run, beside its probes.
READINGS = {name: partial(stage_time, name) for name in EVENTS}


def until(run: xr.Dataset, step: int) -> xr.Dataset:
    """The records up to a step."""
    return run.isel(step=run["step"].values <= step)
