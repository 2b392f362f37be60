"""The laboratory against PyTorch, workload by workload; `descentlab bench` runs this.

    python benchmarks/bench.py [WORKLOAD ...] [--json] [--repeats N] [--check] [--list] [--write FILE]

Exit codes: 0 measured, 1 two sides do not compute the same thing, 2 it cannot run here. A workload that fails
has no ratio; the others are measured all the same.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import document
import machine
from agreement import DisagreementError
from alone import MEASURES
from measuring import measure, say
from sides import HERE, LAB, TORCH, SetupError, SideError, cores, require_torch
from workloads import ALONE, WORKLOADS


def measured_peaks() -> dict[str, float]:
    """What one core can do, measured in a process of its own on that core."""
    say("measuring what one core can do")
    command = [sys.executable, str(HERE / "lab" / "peaks.py")]
    free = cores()
    pinned = ["taskset", "-c", str(free[0])] if free else []
    done = subprocess.run(
        [*pinned, *command], stdout=subprocess.PIPE, text=True, env=os.environ | LAB, check=True
    )
    return json.loads(done.stdout)


def bench(names: list[str], repeats: int, torch: Path) -> dict[str, Any]:
    """The whole benchmark as one document; without repeats only whether the sides agree."""
    paired = [name for name in names if name in WORKLOADS]
    if paired:
        require_torch(torch)
    began = time.monotonic()
    peaks = measured_peaks() if paired and repeats else {}
    found = [one_workload(name, peaks, repeats, torch) for name in paired]
    alone = {name: MEASURES[name](repeats) for name in names if name in ALONE and repeats}
    sound = [one for one in found if "failed" not in one]
    busy = max((one["busy"] for one in sound if one.get("busy") is not None), default=None)
    return {
        "machine": machine.name(), "peaks": peaks, "repeats": repeats, "workloads": sound, "alone": alone,
        "failed": [one for one in found if "failed" in one],
        "busy": busy, "quiet": None if busy is None else busy <= machine.BUSY,
        "seconds": time.monotonic() - began,
    }  # fmt: skip


def one_workload(name: str, peaks: dict[str, float], repeats: int, torch: Path) -> dict[str, Any]:
    """The document of one workload; where it fails, why, and the exit code that this gives."""
    with tempfile.TemporaryDirectory(prefix="descentlab-bench-") as folder:
        try:
            return measure(WORKLOADS[name], peaks, repeats, torch, Path(folder))
        except SideError as error:
            logs = "".join(log.read_text()[-2000:] for log in Path(folder).glob("*.log"))
            why, code = f"{error}\n{logs}", 2
        except DisagreementError as error:
            why, code = str(error), 1
    say(f"descentlab: {name}: {why}")
    return {"workload": name, "about": WORKLOADS[name].about, "failed": why, "exit_code": code}


def positive(word: str) -> int:
    """A whole number >= 1."""
    if not (word.isdigit() and int(word)):
        raise argparse.ArgumentTypeError(f"takes a whole number >= 1, got {word}")
    return int(word)


def main() -> int:
    parser = argparse.ArgumentParser(prog="descentlab bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="workloads; all of them if none")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--repeats", type=positive, default=3, metavar="N", help="interleaved rounds (3)")
    parser.add_argument("--check", action="store_true", help="see whether both sides agree; time nothing")
    parser.add_argument("--list", action="store_true", help="list the workloads and stop")
    parser.add_argument(
        "--torch", type=Path, default=TORCH, metavar="PYTHON", help="(.venv-torch/bin/python)"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the result as a page too")
    args = parser.parse_args()
    every = {name: work.about for name, work in WORKLOADS.items()} | ALONE
    unknown = [name for name in args.workloads if name not in every]
    if unknown:
        say(f"descentlab: there is no workload {unknown[0]}; there are {', '.join(every)}.")
        return 2
    if args.write and (args.check or args.list or not args.write.parent.is_dir()):
        say(f"descentlab: --write takes a measurement and a file in an existing folder, got {args.write}.")
        return 2
    if args.list:
        print(
            json.dumps(every, indent=1) if args.json else "\n".join(f"{k:26s}{v}" for k, v in every.items())
        )
        return 0
    try:
        names = args.workloads or [name for name in every if name != "reproduce"]
        found = bench(names, 0 if args.check else args.repeats, args.torch)
    except SetupError as error:
        say(f"descentlab: {error}")
        return 2
    if args.json or args.check:
        print(json.dumps(found, indent=1))
    else:
        document.show(found)
    if args.write:
        args.write.write_text(document.markdown(found))
    return min((one["exit_code"] for one in found["failed"]), default=0)


if __name__ == "__main__":
    sys.exit(main())
