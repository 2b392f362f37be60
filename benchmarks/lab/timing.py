"""What the laboratory's side of every benchmark measures: rollouts, with compiling apart."""

import resource
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import xarray as xr

from descentlab.paper import load
from descentlab.rollout import rollout

Timed = tuple[xr.Dataset, float, float]


def timings(
    paper: str, preset: Any, seeds: int, record: np.ndarray
) -> tuple[xr.Dataset, dict[str, Any], Callable[[np.ndarray], Timed]]:
    """The records of a run and its timings; and the clock itself: steps -> records, seconds, CPU seconds."""
    system = load(paper).system

    def timed(steps: np.ndarray) -> Timed:
        began, cpu = time.perf_counter(), time.process_time()
        found = rollout(system, preset, range(seeds), steps)
        return found, time.perf_counter() - began, time.process_time() - cpu

    short = np.arange(3)
    _, first, _ = timed(short)
    _, again, _ = timed(short)
    found, seconds, cpu = timed(record)
    measured = {
        "engine": f"jax {jax.__version__}",
        "threads": len(jax.devices()),
        "seconds": seconds,
        "cpu_seconds": cpu,
        "compile_seconds": first - again,
        "peak_kilobytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    return found, measured, timed
