"""The speed of `sparse_bigrams` in the laboratory, against PyTorch as an author would write it.

Online training of linear attention by preconditioned, projected SGD, in 32 bits, at T = 50 with batches of 64
and at T = 200 with batches of 1024. Both sides must compute the same trajectory on the same batches first.
Then they are timed in turn, each with its own generator.

    python benchmarks/sparse_bigrams.py [--steps T] [--seeds N] [--repeats R] [--json]

Steps are those of the large workload; the small one takes ten times as many.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from sides import TORCH, Sides, commas, compare, disturbed, interleaved, positive, run, say

COMMON = ("N=10", "Q=2", "algorithm=sgd", "refit=false", "switch=1e9", "eta_1=0.03", "precision=32")
WORKLOADS = {"small": ("T=50", "batch=64"), "large": ("T=200", "batch=1024")}
MORE_STEPS = {"small": 10, "large": 1}
PROBES = ("excess_loss", "a_V", "a_A", "Delta_V", "Delta_A")
CHECKED = 50
# Largest difference relative to a probe's size: 32-bit sums in another order.
ROUNDING = 1e-3


def settings(name: str, steps: int) -> list[str]:
    """A workload as the laboratory's settings."""
    return [word for one in (*COMMON, *WORKLOADS[name], f"steps={steps}") for word in ("--set", one)]


def check(sides: Sides, folder: Path, name: str) -> dict[str, float]:
    """Both sides on the same ground truth and batches: equal within rounding."""
    say(f"checking {name}: {CHECKED} steps")
    instance, ours, theirs = (folder / f"{name}_{what}.npz" for what in ("instance", "lab", "torch"))
    chosen, record = settings(name, CHECKED), list(range(0, CHECKED + 1, 5))
    sides.lab("export", *chosen, "--batches", str(CHECKED), "--out", str(instance))
    sides.lab("run", *chosen, "--record", commas(record), "--out", str(ours))
    sides.reference("--instance", str(instance), "--record", commas(record), "--given", "--out", str(theirs))
    # At step 0 distances are rounding on both sides.
    for file in (ours, theirs):
        with np.load(file) as found:
            later = {probe: found[probe][:, 1:] for probe in PROBES}
        np.savez(file, **later)
    return compare(ours, theirs, record[1:], dict.fromkeys(PROBES, ROUNDING))


def measure(sides: Sides, folder: Path, name: str, steps: int, seeds: int, repeats: int) -> dict:
    """Interleaved timings of one seed on one core, and the laboratory's of many seeds on all."""
    chosen, record = settings(name, steps), commas(range(0, steps + 1, max(1, steps // 20)))
    instance = str(folder / f"{name}_instance.npz")
    found = interleaved(
        name,
        lambda: sides.lab("run", *chosen, "--record", record, "--one-core"),
        lambda: sides.reference("--instance", instance, "--record", record),
        steps,
        repeats,
    )
    say(f"timing {name}: {seeds} seeds in one program")
    many = sides.lab("run", *chosen, "--record", record, "--seeds", str(seeds))
    return found | {"seeds": seeds, "many_microseconds": 1e6 * many["seconds"] / steps / seeds}


def bench(args: argparse.Namespace) -> dict:
    """The whole benchmark as one document."""
    began = time.monotonic()
    sides = Sides("sparse_bigrams", args.torch)
    with tempfile.TemporaryDirectory(prefix="descentlab-bench-") as name:
        folder = Path(name)
        differences = {name: check(sides, folder, name) for name in WORKLOADS}
        sides.busy.clear()
        measured = {
            name: measure(sides, folder, name, args.steps * MORE_STEPS[name], args.seeds, args.repeats)
            | {"start_difference": differences[name]}
            for name in WORKLOADS
        }
    document = {"workload": "sparse_bigrams", "settings": COMMON, "compared": measured}
    return document | sides.quiet() | {"benchmark_seconds": time.monotonic() - began}


def table(result: dict) -> str:
    """The result for reading."""
    rows = [
        "sparse_bigrams, " + " ".join(COMMON),
        f"{'microseconds a step of a seed':<34}{'lab':>10}{'torch eager':>14}  torch / lab",
    ]
    for name, own in result["compared"].items():
        r, torch = own["ratio"], own["torch"]["microseconds"]
        label = " ".join(WORKLOADS[name])
        rows.append(
            f"{label:<34}{own['lab']['microseconds']:>10.1f}{torch:>14.1f}  {r['value']:.1f} x  "
            f"({r['low']:.1f} to {r['high']:.1f})"
        )
        many = own["many_microseconds"]
        label = f"{label}, {own['seeds']} seeds, all cores"
        rows.append(f"{label:<34}{many:>10.1f}{torch:>14.1f}  {torch / many:.1f} x")
    compiling = max(own["lab"]["compile_seconds"] for own in result["compared"].values())
    threads = sorted({n for own in result["compared"].values() for n in own["torch"]["threads"]})
    first = result["compared"]["small"]
    rows += [
        f"Compiling, apart: {compiling:.1f} s. {first['lab']['engine']} on one core but for several seeds; "
        f"{first['torch']['engine']} on its faster number of threads ({' or '.join(map(str, threads))}).",
        "Peak memory, megabytes: "
        + ", ".join(
            f"{name} {own['lab']['peak_megabytes']:.0f} (lab) {own['torch']['peak_megabytes']:.0f} (torch)"
            for name, own in result["compared"].items()
        ),
        "Same trajectory on the same batches: largest difference "
        + ", ".join(
            f"{max(own['start_difference'].values()):.0e} ({name})"
            for name, own in result["compared"].items()
        )
        + " of a probe's size.",
    ]
    return "\n".join(rows + disturbed(result))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=positive, default=200, help="steps of the large workload (200)")
    parser.add_argument("--seeds", type=positive, default=16, help="seeds of the run on all cores (16)")
    parser.add_argument("--repeats", type=positive, default=3, help="interleaved repeats (3)")
    parser.add_argument("--torch", type=Path, default=TORCH, help="interpreter with PyTorch (.venv-torch)")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    return run(bench, table, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
