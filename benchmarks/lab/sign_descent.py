"""The laboratory's own run of `sign_descent`, timed, and its instances written out for the reference.

`export` writes the data and the full start weights of every seed as `seed_<k>.npz`; `run` rolls the
same seeds out, saves their records to an .npz and prints timings to standard output as JSON.
"""

import argparse
import json
import sys
from pathlib import Path

import jax
import numpy as np
from timing import timings

from descentlab.papers import sign_descent as paper
from descentlab.preset import SettingError, parse_settings


def export(folder: Path, p: paper.Preset, seeds: int) -> None:
    """Writes the instances that `rollout` makes of the seeds, from the same keys, with all coordinates.

    The labels, which the laboratory absorbs into the noise, are drawn here: any will do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        task_key = jax.random.split(jax.random.fold_in(jax.random.key(0), seed), 3)[0]  # System._seed
        instance = paper.make_instance(task_key, p)
        arrays: dict[str, np.ndarray] = {"eta": np.array(p.eta), "signal": np.array(p.signal)}
        labels = np.random.default_rng(seed)
        for part, zeta in (("train", np.asarray(instance.zeta)), ("test", np.asarray(instance.zeta_test))):
            y = labels.choice([-1.0, 1.0], len(zeta)).astype(zeta.dtype)
            arrays |= {f"{part}_noise": y[:, None] * zeta, f"{part}_y": y}
        w = instance.start
        arrays |= {"W_Q": np.asarray(w.Q), "W_K": np.asarray(w.K), "W_V": np.asarray(w.V)}
        np.savez(folder / f"seed_{seed}.npz", **arrays)  # type: ignore[arg-type]


def run(p: paper.Preset, seeds: int, record: np.ndarray, out: Path | None) -> dict:
    """Timings of the rollout with all records and with the first and last only; compiling apart."""
    found, measured, timed = timings("sign_descent", p, seeds, record)
    _, training, _ = timed(record[[0, -1]])
    print(f"lab, {seeds} seeds: {measured['seconds']:.1f} s", file=sys.stderr, flush=True)
    if out:
        np.savez(out, **{str(name): found[name].values for name in found.data_vars})  # type: ignore[arg-type]
    return measured | {"training_seconds": training}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("export", "run"))
    parser.add_argument("--instances", type=Path, help="folder that `export` fills")
    parser.add_argument("--seeds", type=int, required=True, help="how many seeds, from 0")
    parser.add_argument("--record", default="", help="recorded steps, separated by commas; else the paper's")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting")
    parser.add_argument("--out", type=Path, help="where the records go (.npz)")
    args = parser.parse_args()
    try:
        p = paper.PRESETS["quick"].replace(parse_settings(args.set))
    except SettingError as wrong:
        parser.error(str(wrong))
    record = np.array([int(t) for t in args.record.split(",")]) if args.record else paper.records(p)
    if args.what == "export":
        export(args.instances, p, args.seeds)
        print(json.dumps({"settings": p.settings(), "record": record.tolist()}))
    else:
        print(json.dumps(run(p, args.seeds, record, args.out)))


if __name__ == "__main__":
    main()
