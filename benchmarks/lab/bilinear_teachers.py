"""The laboratory's own runs of `bilinear_teachers`, timed, and what the reference needs to repeat them.

`export` writes the teacher, the weights after the first step, and the first batches of online descent; `run`
rolls seeds out, saves their records to an .npz and prints timings to standard output as JSON.
"""

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path

if "--one-core" in sys.argv:  # before JAX counts the cores
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np

from descentlab.paper import load
from descentlab.papers import bilinear_teachers as paper
from descentlab.preset import parse_settings
from descentlab.probe import log_spaced
from descentlab.rollout import rollout


def export(p: paper.Preset, batches: int, out: Path) -> dict:
    """Writes seed 0 as `rollout` makes it, from the same keys."""
    task_key, start_key, step_key = jax.random.split(jax.random.fold_in(jax.random.key(0), 0), 3)
    task = paper.make_task(task_key, p)
    assert isinstance(task, paper.Task)
    dynamics = paper.dynamics(task, p)
    after = dynamics.advance(step_key, dynamics.init(start_key), jnp.asarray(0), jnp.asarray(1))
    arrays = {"V": task.V, "S": task.S, "W_V": after.params.W_V, "A": after.params.A}
    drawn = [paper.sample(jax.random.fold_in(step_key, t), task, p.batch) for t in range(1, batches + 1)]
    if drawn:
        # A sample of the reference is a (d, D) matrix.
        arrays |= {
            name: jnp.stack([jnp.moveaxis(batch[i], 1, 0) for batch in drawn]) for i, name in enumerate("XY")
        }
    np.savez(out, **{name: np.asarray(x) for name, x in arrays.items()})  # type: ignore[arg-type]
    return {"settings": p.settings()}


def run(p: paper.Preset, seeds: int, out: Path | None, record: np.ndarray) -> dict:
    """Timings of a rollout with records, compiling apart."""
    system = load("bilinear_teachers").system

    def timed(steps: np.ndarray):
        began = time.perf_counter()
        found = rollout(system, p, range(seeds), steps)
        return found, time.perf_counter() - began

    short = np.arange(3)
    _, first = timed(short)
    _, again = timed(short)
    found, seconds = timed(record)
    if out:
        names = [str(name) for name in found.data_vars if "step" in found[name].dims]
        np.savez(out, step=record, **{name: found[name].values for name in names})  # type: ignore[arg-type]
    return {
        "engine": f"jax {jax.__version__}",
        "threads": len(jax.devices()),
        "seconds": seconds,
        "compile_seconds": first - again,
        "peak_kilobytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("export", "run"))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--batches", type=int, default=0)
    parser.add_argument("--dense", type=int, default=10, help="steps recorded one by one")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one-core", action="store_true")
    args = parser.parse_args()
    p = paper.PRESETS["quick"].replace(parse_settings(args.set))
    if args.what == "export":
        answer = export(p, args.batches, args.out)
    else:
        answer = run(p, args.seeds, args.out, log_spaced(p.steps, dense=args.dense, per_decade=10))
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
