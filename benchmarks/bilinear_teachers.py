"""The speed of `bilinear_teachers` in the laboratory, against PyTorch as an author would write it.

The CNN teacher with ReLU at D = 36, K = 4, d = 10, M = 5: exact population gradient descent in 64 bits, and
online descent with batches of 100 in 64 and 32 bits. Both sides must compute the same trajectory first, the
online one on the same batches. Then they are timed in turn, each with its own generator.

    python benchmarks/bilinear_teachers.py [--steps T] [--long T] [--seeds N] [--repeats R] [--json]

All weights are trained on both sides. The reduction to two numbers, which makes the laboratory's exact runs
many times faster again, is left out of the comparison and timed apart.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sides import TORCH, Sides, commas, compare, disturbed, interleaved, positive, run, say

# What the laboratory is told; the reference reads its instance.
COMMON = (
    "teacher=cnn",
    "activation=relu",
    "D=36",
    "K=4",
    "d=10",
    "M=5",
    "eta=0.05",
    "noise=0.1",
    "batch=100",
)
PROBES = ("excess_loss", "attention_error", "value_error", "value_cosine")
# Largest difference relative to a probe's size: sums in another order, and cancellation in the plain formula
# of the loss, which the laboratory's avoids.
ROUNDING = {64: 1e-9, 32: 1e-3}


@dataclass(frozen=True)
class Workload:
    """One way of training, how many of its steps are checked, and which share of the steps is timed."""

    label: str
    algorithm: str
    precision: int
    checked: int
    share: float

    def settings(self, steps: int, reduced: bool = False) -> list[str]:
        """The workload as the laboratory's settings."""
        own = {"algorithm": self.algorithm, "precision": self.precision, "steps": steps}
        own |= {"reduced": str(reduced).lower(), "detail": "false"}
        chosen = [*COMMON, *(f"{name}={value}" for name, value in own.items())]
        return [word for setting in chosen for word in ("--set", setting)]

    def reference(self, sides: Sides, instance: Path, record: list[int], *more: str) -> dict:
        """PyTorch's run over the recorded steps, the last of which ends it."""
        options = {"instance": instance, "algorithm": self.algorithm, "precision": self.precision}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return sides.reference(*words, "--record", commas(record), *more)


WORKLOADS = {
    "exact": Workload("exact, 64-bit", "population", 64, checked=2000, share=1.0),
    "online": Workload("online, batch 100, 64-bit", "online", 64, checked=50, share=0.1),
    "online_32": Workload("online, batch 100, 32-bit", "online", 32, checked=50, share=0.1),
}


def check(sides: Sides, folder: Path, name: str) -> dict[str, float]:
    """Both sides on the same teacher, start and batches: equal within rounding."""
    work = WORKLOADS[name]
    say(f"checking {work.label}: {work.checked} steps")
    chosen = work.settings(work.checked)
    instance, ours, theirs = (folder / f"{name}_{what}.npz" for what in ("instance", "lab", "torch"))
    given = ["--given"] if work.algorithm == "online" else []
    batches = str(work.checked if given else 0)
    # The first step is the laboratory's: at W_V = 0 there is no gradient but by choice.
    record = sides.lab("export", *chosen, "--batches", batches, "--out", str(instance))["record"][1:]
    sides.lab("run", *chosen, "--record", commas([0, *record]), "--out", str(ours))
    with np.load(ours) as file:
        later = {probe: file[probe][:, 1:] for probe in PROBES}
    np.savez(ours, **later)
    work.reference(sides, instance, record, "--out", str(theirs), *given)
    return compare(ours, theirs, record, dict.fromkeys(PROBES, ROUNDING[work.precision]))


def measure(sides: Sides, folder: Path, name: str, steps: int, repeats: int) -> dict:
    """Interleaved timings of one seed, in microseconds a step; the laboratory on one core."""
    work = WORKLOADS[name]
    chosen, instance = work.settings(steps), folder / f"{name}_instance.npz"
    record = sides.lab("export", *chosen, "--out", str(instance))["record"]
    words = [*chosen, "--record", commas(record), "--one-core"]
    return {"recorded_steps": len(record)} | interleaved(
        work.label,
        lambda: sides.lab("run", *words),
        lambda: work.reference(sides, instance, record[1:]),
        steps,
        repeats,
    )


def alone(sides: Sides, steps: int, seeds: int) -> dict:
    """The laboratory's long exact runs, which would take PyTorch ten minutes a seed."""
    say(f"timing {steps} exact steps of the laboratory alone")

    def seconds(*more: str, reduced: bool = False) -> float:
        return sides.lab("run", *WORKLOADS["exact"].settings(steps, reduced), *more)["seconds"]

    return {
        "steps": steps,
        "seeds": seeds,
        "one_seed_one_core": seconds("--one-core"),
        "all_seeds_all_cores": seconds("--seeds", str(seeds)),
        "two_numbers_one_core": seconds("--one-core", reduced=True),
    }


def bench(args: argparse.Namespace) -> dict:
    """The whole benchmark as one document."""
    began = time.monotonic()
    sides = Sides("bilinear_teachers", args.torch)
    with tempfile.TemporaryDirectory(prefix="descentlab-bench-") as name:
        folder = Path(name)
        differences = {name: check(sides, folder, name) for name in WORKLOADS}
        sides.busy.clear()
        measured = {
            name: measure(sides, folder, name, max(round(work.share * args.steps), 100), args.repeats)
            | {"start_difference": differences[name]}
            for name, work in WORKLOADS.items()
        }
        long = alone(sides, args.long, args.seeds)
    document = {"workload": "bilinear_teachers", "settings": COMMON, "compared": measured, "alone": long}
    return document | sides.quiet() | {"benchmark_seconds": time.monotonic() - began}


def table(result: dict) -> str:
    """The result for reading."""
    first, long = result["compared"]["exact"], result["alone"]
    torch = first["torch"]["microseconds"]

    def line(label: str, lab: float, torch: float, ratio: str) -> str:
        return f"{label:<34}{lab:>10.1f}{torch:>14.1f}  {ratio}"

    rows = [
        "bilinear_teachers, " + " ".join(COMMON),
        f"{'microseconds a step of a seed':<34}{'lab':>10}{'torch eager':>14}  torch / lab",
    ]
    for name, own in result["compared"].items():
        r = own["ratio"]
        spread = f"{r['value']:.1f} x  ({r['low']:.1f} to {r['high']:.1f})"
        rows.append(
            line(WORKLOADS[name].label, own["lab"]["microseconds"], own["torch"]["microseconds"], spread)
        )
    for label, seeds, what in (
        (f"exact, {long['steps']} steps", 1, "one_seed_one_core"),
        (f"exact, {long['steps']} steps, {long['seeds']} seeds", long["seeds"], "all_seeds_all_cores"),
        ("exact, the two numbers instead", 1, "two_numbers_one_core"),
    ):
        own = 1e6 * long[what] / long["steps"] / seeds
        rows.append(line(label, own, torch, f"{torch / own:.0f} x"))
    threads = sorted({n for own in result["compared"].values() for n in own["torch"]["threads"]})
    compiling = max(own["lab"]["compile_seconds"] for own in result["compared"].values())
    rows += [
        f"{long['steps']} exact steps of one seed on one core: {long['one_seed_one_core']:.2f} s; "
        f"of the two numbers: {long['two_numbers_one_core']:.2f} s.",
        f"Compiling, apart: {compiling:.1f} s. {first['lab']['engine']} on one core but for several seeds; "
        f"{first['torch']['engine']} on its faster number of threads ({' or '.join(map(str, threads))}).",
        "Same trajectory: largest difference "
        + ", ".join(
            f"{max(own['start_difference'].values()):.0e} ({WORKLOADS[name].label})"
            for name, own in result["compared"].items()
        )
        + " of a probe's size.",
    ]
    return "\n".join(rows + disturbed(result))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--steps", type=positive, default=20_000, help="exact steps compared (20000); a tenth of them online"
    )
    parser.add_argument(
        "--long", type=positive, default=1_000_000, help="exact steps of the laboratory alone (1000000)"
    )
    parser.add_argument("--seeds", type=positive, default=8, help="seeds of its run on all cores (8)")
    parser.add_argument("--repeats", type=positive, default=3, help="interleaved repeats (3)")
    parser.add_argument("--torch", type=Path, default=TORCH, help="interpreter with PyTorch (.venv-torch)")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    return run(bench, table, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
