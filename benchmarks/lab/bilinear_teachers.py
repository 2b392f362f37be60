"""The laboratory's own runs of `bilinear_teachers`, timed, and what the reference needs to repeat them.

`export` writes the teacher, the weights after the first step, and the next batches of online descent; `run`
rolls seeds out, saves their records to an .npz and prints timings to standard output as JSON.
"""

import argparse
import json
import os
import sys
from pathlib import Path

if "--one-core" in sys.argv and hasattr(os, "sched_setaffinity"):  # before JAX counts the cores
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np
from timing import timings

from descentlab.papers import bilinear_teachers as paper
from descentlab.preset import SettingError, parse_settings


def export(p: paper.Preset, batches: int, out: Path) -> None:
    """Writes seed 0 as `rollout` makes it, from the same keys (System._seed)."""
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
    numbers = {"eta": p.eta, "noise": p.noise, "batch": p.batch}
    np.savez(out, **{name: np.asarray(x) for name, x in (arrays | numbers).items()})  # type: ignore[arg-type]


def run(p: paper.Preset, seeds: int, record: np.ndarray, out: Path | None) -> dict:
    """Timings of a rollout with records, compiling apart."""
    found, measured, _ = timings("bilinear_teachers", p, seeds, record)
    if out:
        names = [str(name) for name in found.data_vars if "step" in found[name].dims]
        np.savez(out, **{name: found[name].values for name in names})  # type: ignore[arg-type]
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("export", "run"))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from 0")
    parser.add_argument("--batches", type=int, default=0, help="batches to write, from step 1")
    parser.add_argument("--record", default="", help="recorded steps, separated by commas; else the paper's")
    parser.add_argument("--out", type=Path, help="where the instance or the records go (.npz)")
    parser.add_argument("--one-core", action="store_true", help="run on one core")
    args = parser.parse_args()
    try:
        p = paper.PRESETS["quick"].replace(parse_settings(args.set))
    except SettingError as wrong:
        parser.error(str(wrong))
    record = np.array([int(t) for t in args.record.split(",")]) if args.record else paper.records(p)
    if args.what == "export":
        export(p, args.batches, args.out)
        print(json.dumps({"settings": p.settings(), "record": record.tolist()}))
    else:
        print(json.dumps(run(p, args.seeds, record, args.out)))


if __name__ == "__main__":
    main()
