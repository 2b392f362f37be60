"""The speed of `sign_descent` in the laboratory, against PyTorch as an author would write it.

Both sides run in processes of their own, on the same data, from the same full start weights, with
the same recorded steps. Before anything is timed they must compute the same trajectory, and every
timed run is compared again; where they disagree there is no ratio and the exit code is 1.

    python benchmarks/sign_descent.py [--seeds N] [--steps T] [--repeats R] [--precision 32|64] [--json]

This process stays small and free of JAX on purpose: on Linux a child's peak memory starts from its
parent's.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from sides import TORCH, Sides, commas, compare, disturbed, positive, run, say

CHECKED_SEEDS, CHECKED_STEPS = 2, 60
REPEATED_SEEDS = 2

# Largest difference relative to the probe's largest entry at that step. Sums of 2000 products in
# another order differ by a few units in the last place; queries and keys are stored in 32 bits.
ROUNDING = {64: 1e-12, 32: 1e-5}
STORED_IN_32 = {"query_noise": 1e-6, "key_noise": 1e-6}
# Late in the run one side loses signs to underflow (README.md), so only what does not depend on
# them must agree closely; the test loss does depend on them, weakly.
LATE = dict.fromkeys(("training_loss", "value_signal", "value_noise", "query_signal", "key_signal"), 1e-3)
LATE_TEST_LOSS = 0.1
WORKLOAD = ["optimizer=sign", "d=2000", "n=20", "s=20", "m_k=100", "m_v=100", "detail=true"]


@dataclass
class Bench(Sides):
    """The two sides with the folder of their instances, and what is run."""

    folder: Path = Path()
    seeds: int = 16
    precision: int = 64
    settings: list[str] = field(default_factory=list)

    def lab(self, *args: str) -> dict:
        """The laboratory's answer, with the settings."""
        what, *options = args
        return super().lab(what, *(word for s in self.settings for word in ("--set", s)), *options)

    def reference(self, *args: str) -> dict:
        """PyTorch's answer on the instances."""
        return super().reference("--instances", str(self.folder), "--precision", str(self.precision), *args)


def check_start(bench: Bench) -> dict[str, float]:
    """Both sides over the first steps, every step recorded: equal within rounding."""
    seeds, record = min(CHECKED_SEEDS, bench.seeds), list(range(CHECKED_STEPS + 1))
    say(f"checking seeds 0 to {seeds - 1} over {CHECKED_STEPS} steps")
    ours, theirs = bench.folder / "check_lab.npz", bench.folder / "check_torch.npz"
    options = ["--seeds", str(seeds), "--record", commas(record)]
    bench.lab("run", *options, "--out", str(ours))
    bench.reference(*options, "--out", str(theirs))
    with np.load(theirs) as file:
        probes = list(file.files)
    rounding = ROUNDING[bench.precision]
    allowed = {name: max(rounding, STORED_IN_32.get(name, 0.0)) for name in probes}
    return compare(ours, theirs, record, allowed)


def check_late(ours: Path, theirs: Path, record: list[int]) -> dict[str, float]:
    """A timed run of both sides, all records: equal where rounding does not decide."""
    return compare(ours, theirs, record, {**LATE, "test_loss": LATE_TEST_LOSS})


def measure(bench: Bench, record: list[int], steps: int, repeats: int) -> dict:
    """Interleaved timings: all seeds (lab, torch, lab), then `repeats` pairs on a few seeds."""

    def pair_options(seeds: int) -> list[str]:
        return ["--seeds", str(seeds), "--record", commas(record)]

    ours, theirs = bench.folder / "lab.npz", bench.folder / "torch.npz"
    say(f"timing all {bench.seeds} seeds")
    everything = pair_options(bench.seeds)
    lab = [bench.lab("run", *everything, "--out", str(ours))]
    torch = bench.reference(*everything, "--out", str(theirs))
    lab.append(bench.lab("run", *everything))
    late = check_late(ours, theirs, record)

    few, pairs = min(REPEATED_SEEDS, bench.seeds), []
    for repeat in range(repeats):
        say(f"repeat {repeat + 1} of {repeats}, {few} seeds")
        pairs.append((bench.lab("run", *pair_options(few)), bench.reference(*pair_options(few))))

    return {
        "lab": side(lab, bench.seeds * steps)
        | {"compile_seconds": median(run["compile_seconds"] for run in lab)},
        "torch": side([torch], bench.seeds * steps) | {"seconds_each": torch["seconds_each"]},
        "ratio": ratios(lab, torch, pairs, "seconds"),
        "ratio_training_only": ratios(lab, torch, pairs, "training_seconds"),
        # Cautious where other processes interfere: every seed of PyTorch as fast as its fastest.
        "ratio_fastest": bench.seeds * min(torch["seconds_each"]) / min(run["seconds"] for run in lab),
        "repeats": {
            "seeds": few,
            "lab_seconds": [a["seconds"] for a, _ in pairs],
            "torch_seconds": [b["seconds"] for _, b in pairs],
        },
        "late_difference": late,
    }


def side(runs: list[dict], seed_steps: int) -> dict:
    """One side over all seeds: the median of its runs."""
    seconds = median(run["seconds"] for run in runs)
    training = median(run["training_seconds"] for run in runs)
    return {
        "engine": runs[0]["engine"],
        "threads": runs[0]["threads"],
        "seconds": seconds,
        "training_seconds": training,
        "microseconds_per_seed_step": 1e6 * seconds / seed_steps,
        "training_microseconds_per_seed_step": 1e6 * training / seed_steps,
        "cpu_seconds": median(run["cpu_seconds"] for run in runs),
        "peak_megabytes": max(run["peak_kilobytes"] for run in runs) / 1024,
        "runs": [run["seconds"] for run in runs],
    }


def ratios(lab: list[dict], torch: dict, pairs: list[tuple[dict, dict]], what: str) -> dict:
    """Torch's time over the lab's on all seeds, and the range of that ratio over every pair measured."""
    over_all = torch[what] / median(run[what] for run in lab)
    on_few = [b[what] / a[what] for a, b in pairs]
    seen = [torch[what] / run[what] for run in lab] + on_few
    return {"value": over_all, "low": min(seen), "high": max(seen), "on_few_seeds": on_few}


def table(result: dict) -> str:
    """The result for reading."""
    s, lab, torch = result["settings"], result["lab"], result["torch"]
    ratio, training = result["ratio"], result["ratio_training_only"]

    def line(what: str, a: str, b: str, c: str = "") -> str:
        return f"{what:<40}{a:>14}{b:>14}  {c}".rstrip()

    def spread(r: dict) -> str:
        return f"{r['value']:.1f} x  ({r['low']:.1f} to {r['high']:.1f})"

    def per_step(of: dict, prefix: str = "") -> str:
        return f"{of[prefix + 'microseconds_per_seed_step']:.0f}"

    rows = [
        f"sign_descent, SignGD: d={s['d']} n={s['n']} s={s['s']} m_k={s['m_k']} m_v={s['m_v']}, "
        f"{result['seeds']} seeds, {s['steps']} steps, {s['precision']}-bit",
        line("", "lab", "torch eager", "torch / lab"),
        line("engine", lab["engine"].split("+")[0], torch["engine"].split("+")[0]),
        line("devices or threads", str(lab["threads"]), str(torch["threads"])),
        line(
            "seconds, all seeds, with records",
            f"{lab['seconds']:.2f}",
            f"{torch['seconds']:.2f}",
            spread(ratio),
        ),
        line(
            "seconds, all seeds, training only",
            f"{lab['training_seconds']:.2f}",
            f"{torch['training_seconds']:.2f}",
            spread(training),
        ),
        line("with records, torch at its fastest seed", "", "", f"{result['ratio_fastest']:.1f} x"),
        line("us a seed-step, with records", per_step(lab), per_step(torch)),
        line("us a seed-step, training only", per_step(lab, "training_"), per_step(torch, "training_")),
        line("seconds to compile, apart", f"{lab['compile_seconds']:.2f}", "0"),
        line("peak memory, MB", f"{lab['peak_megabytes']:.0f}", f"{torch['peak_megabytes']:.0f}"),
        f"Same trajectory: largest difference over the first {CHECKED_STEPS} steps "
        f"{max(result['start_difference'].values()):.0e} of a probe's size.",
    ]
    rows += disturbed(result)
    return "\n".join(rows)


def bench(args: argparse.Namespace) -> dict:
    """The whole benchmark as one document."""
    settings = [*WORKLOAD, f"steps={args.steps}", f"precision={args.precision}"]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="descentlab-bench-") as folder:
        b = Bench("sign_descent", args.torch, [], Path(folder), args.seeds, args.precision, settings)
        say(f"writing {args.seeds} instances")
        made = b.lab("export", "--instances", folder, "--seeds", str(args.seeds))
        start = check_start(b)
        b.busy.clear()
        measured = measure(b, made["record"], args.steps, args.repeats)
    return {
        "workload": "sign_descent",
        "settings": made["settings"],
        "seeds": args.seeds,
        "recorded_steps": len(made["record"]),
        **measured,
        "start_difference": start,
        **b.quiet(),
        "benchmark_seconds": time.monotonic() - began,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=positive, default=16, help="seeds of the full timing (16)")
    parser.add_argument("--steps", type=positive, default=2000, help="training steps (2000)")
    parser.add_argument("--repeats", type=positive, default=3, help="interleaved repeats on two seeds (3)")
    parser.add_argument("--precision", type=int, choices=(32, 64), default=64)
    parser.add_argument("--torch", type=Path, default=TORCH, help="interpreter with PyTorch (.venv-torch)")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    args = parser.parse_args()
    return run(bench, table, args)


if __name__ == "__main__":
    sys.exit(main())
