"""What the laboratory's side of every benchmark measures: rollouts, with compiling apart."""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if "--one-core" in sys.argv and hasattr(os, "sched_setaffinity"):  # before JAX counts the cores
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import numpy as np
import xarray as xr

from descentlab.paper import load
from descentlab.preset import SettingError, parse_settings
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


def first_keys() -> tuple[jax.Array, jax.Array, jax.Array]:
    """The keys of seed 0 as `rollout` makes them: of the task, the start and the steps (System._seed)."""
    task, start, step = jax.random.split(jax.random.fold_in(jax.random.key(0), 0), 3)
    return task, start, step


def command(paper: str, doc: str | None, export: Callable[[Any, int, Path], None]) -> None:
    """`export` writes what the reference needs of seed 0; `run` rolls seeds out and prints their timings."""
    module = load(paper).module
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("what", choices=("export", "run"))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from 0")
    parser.add_argument("--batches", type=int, default=0, help="how many batches to write")
    parser.add_argument("--record", default="", help="recorded steps, separated by commas; else the paper's")
    parser.add_argument("--out", type=Path, help="where the instance or the records go (.npz)")
    parser.add_argument("--one-core", action="store_true", help="run on one core")
    args = parser.parse_args()
    try:
        p = module.PRESETS["quick"].replace(parse_settings(args.set))
    except SettingError as wrong:
        parser.error(str(wrong))
    record = np.array([int(t) for t in args.record.split(",")]) if args.record else module.records(p)
    if args.what == "export":
        export(p, args.batches, args.out)
        print(json.dumps({"settings": p.settings(), "record": record.tolist()}))
        return
    found, measured, _ = timings(paper, p, args.seeds, record)
    if args.out:
        names = [str(name) for name in found.data_vars if "step" in found[name].dims]
        np.savez(args.out, **{name: found[name].values for name in names})  # type: ignore[arg-type]
    print(json.dumps(measured))
