"""The speed of `bilinear_teachers` in the laboratory, against PyTorch as an author would write it.

Two workloads, CNN teacher with ReLU at D = 36, K = 4, d = 10, M = 5: exact population gradient descent, and
online descent with batches of 100. Both sides must compute the same trajectory first: the population run
within rounding, the online run on the same batches. Then they are timed in turn, each with its own generator.

    python benchmarks/bilinear_teachers.py [--steps T] [--long T] [--repeats R] [--precision 32|64] [--json]

All weights are trained on both sides. The reduction to two numbers, which makes the laboratory's exact runs
another hundred times faster, is left out and timed apart.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

from sides import TORCH, Sides, commas, compare, disturbed, positive, run, say

ETA, NOISE = 0.05, 0.1
CHECKED = {"population": 2000, "online": 50}
# Largest difference relative to a probe's size: sums in another order, over so many steps.
ROUNDING = {64: 1e-9, 32: 1e-3}
PROBES = ("excess_loss", "attention_error", "value_error")


def settings(algorithm: str, steps: int, precision: int, reduced: bool = False) -> list[str]:
    """The workload as the laboratory's settings."""
    chosen = [
        "teacher=cnn", "activation=relu", "D=36", "K=4", "d=10", "M=5", "detail=false", f"eta={ETA}",
        f"noise={NOISE}", f"algorithm={algorithm}", f"steps={steps}", f"precision={precision}",
        f"reduced={str(reduced).lower()}",
    ]  # fmt: skip
    return [word for setting in chosen for word in ("--set", setting)]


def reference(sides: Sides, instance: Path, algorithm: str, steps: int, precision: int, *more: str) -> dict:
    """PyTorch's run, recorded as the laboratory's."""
    options = {"instance": instance, "algorithm": algorithm, "steps": steps, "precision": precision}
    options |= {"eta": ETA, "noise": NOISE}
    return sides.reference(*(word for k, v in options.items() for word in (f"--{k}", str(v))), *more)


def check(sides: Sides, folder: Path, algorithm: str, precision: int) -> dict[str, float]:
    """Both sides on the same teacher, start and batches: equal within rounding."""
    steps = CHECKED[algorithm]
    say(f"checking {algorithm} over {steps} steps")
    chosen = settings(algorithm, steps, precision)
    instance, ours, theirs = (folder / f"{algorithm}_{name}.npz" for name in ("instance", "lab", "torch"))
    batches = steps if algorithm == "online" else 0
    sides.lab("export", *chosen, "--batches", str(batches), "--out", str(instance))
    sides.lab("run", *chosen, "--dense", "50", "--out", str(ours))
    with np.load(ours) as file:
        record = [int(t) for t in file["step"]][1:]
        np.savez(ours, **{name: file[name][:, 1:] for name in PROBES})  # type: ignore[arg-type]
    given = ["--given"] if batches else []
    reference(
        sides, instance, algorithm, steps, precision, "--record", commas(record), "--out", str(theirs), *given
    )
    return compare(ours, theirs, record, dict.fromkeys(PROBES, ROUNDING[precision]))


def measure(sides: Sides, folder: Path, algorithm: str, steps: int, precision: int, repeats: int) -> dict:
    """Interleaved timings of one seed, in microseconds a step."""
    chosen, instance = settings(algorithm, steps, precision), folder / f"{algorithm}_instance.npz"
    record = commas(np.unique(np.geomspace(1, steps, 30).astype(int)))
    lab, torch = [], []
    for repeat in range(repeats):
        say(f"timing {algorithm}, {repeat + 1} of {repeats}")
        lab.append(sides.lab("run", *chosen, "--one-core"))
        torch.append(reference(sides, instance, algorithm, steps, precision, "--record", record))
    pairs = [b["seconds"] / a["seconds"] for a, b in zip(lab, torch, strict=True)]
    return {
        "steps": steps,
        "lab_microseconds": 1e6 * median(a["seconds"] for a in lab) / steps,
        "torch_microseconds": 1e6 * median(b["seconds"] for b in torch) / steps,
        "ratio": {"value": median(pairs), "low": min(pairs), "high": max(pairs)},
        "compile_seconds": median(a["compile_seconds"] for a in lab),
        "peak_megabytes": {
            k: max(r["peak_kilobytes"] for r in side) / 1024 for k, side in (("lab", lab), ("torch", torch))
        },
        "engines": {"lab": lab[0]["engine"], "torch": torch[0]["engine"]},
        "threads": {"lab": lab[0]["threads"], "torch": torch[0]["threads"]},
    }


def bench(args: argparse.Namespace) -> dict:
    """The whole benchmark as one document."""
    sides = Sides("bilinear_teachers", args.torch)
    result: dict = {"workload": "bilinear_teachers", "precision": args.precision}
    with tempfile.TemporaryDirectory(prefix="descentlab-bench-") as name:
        folder = Path(name)
        differences = {a: check(sides, folder, a, args.precision) for a in CHECKED}
        sides.busy.clear()
        for algorithm, steps in (("population", args.steps), ("online", max(args.steps // 5, 100))):
            result[algorithm] = measure(sides, folder, algorithm, steps, args.precision, args.repeats)
            result[algorithm]["start_difference"] = differences[algorithm]
        say(f"timing {args.long} exact steps of one seed on one core")
        for what, reduced in (("all_weights", False), ("two_numbers", True)):
            chosen = settings("population", args.long, args.precision, reduced)
            result[what] = {"steps": args.long, "seconds": sides.lab("run", *chosen, "--one-core")["seconds"]}
    return result | sides.quiet()


def table(result: dict) -> str:
    """The result for reading."""
    what = f"CNN, ReLU, D=36 K=4 d=10 M=5, one seed, {result['precision']}-bit"
    rows = [f"bilinear_teachers, {what}; lab on one core"]
    rows.append(f"{'':<34}{'lab':>12}{'torch eager':>14}  torch / lab")
    for algorithm, label in (("population", "us a step, exact"), ("online", "us a step, online, batch 100")):
        own = result[algorithm]
        r = own["ratio"]
        rows.append(
            f"{label:<34}{own['lab_microseconds']:>12.1f}{own['torch_microseconds']:>14.1f}"
            f"  {r['value']:.1f} x  ({r['low']:.1f} to {r['high']:.1f})"
        )
    for what, label in (("all_weights", "all weights"), ("two_numbers", "the two numbers of Lemma D.2")):
        rows.append(f"{result[what]['steps']} exact steps, {label}: {result[what]['seconds']:.2f} s")
    return "\n".join(rows + disturbed(result))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=positive, default=5000, help="steps of the comparison (5000)")
    parser.add_argument(
        "--long", type=positive, default=1_000_000, help="exact steps of the laboratory alone"
    )
    parser.add_argument("--repeats", type=positive, default=3, help="interleaved repeats (3)")
    parser.add_argument("--precision", type=int, choices=(32, 64), default=64)
    parser.add_argument("--torch", type=Path, default=TORCH, help="interpreter with PyTorch (.venv-torch)")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    return run(bench, table, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
