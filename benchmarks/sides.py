"""What every benchmark here shares: two sides in processes of their own, and whether they agree.

This module stays free of JAX on purpose: on Linux a child's peak memory starts from its parent's.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

HERE = Path(__file__).resolve().parent
TORCH = HERE.parent / ".venv-torch" / "bin" / "python"
TORCH_VERSION = "2.13.0"
BUSY = 0.1  # share of the processors taken by other processes beyond which a timing is not one


class DisagreementError(Exception):
    """The two sides do not compute the same trajectory."""


class SetupError(Exception):
    """The benchmark cannot run here; the message says what to do."""


@dataclass
class Sides:
    """The two sides of a workload, each a script, and how busy the machine was while they ran."""

    workload: str
    torch: Path
    busy: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.torch.exists():
            raise SetupError(
                f"there is no PyTorch interpreter at {self.torch}; run python benchmarks/torch_environment.py"
            )

    def lab(self, *args: str) -> dict:
        """The laboratory's answer. Its compiled programs are not kept, so compile times are cold."""
        command = [sys.executable, str(HERE / "lab" / f"{self.workload}.py"), *args]
        return self._answer(command, {"JAX_ENABLE_COMPILATION_CACHE": "false"})

    def reference(self, *args: str) -> dict:
        """PyTorch's answer."""
        script = str(HERE / "reference" / f"{self.workload}.py")
        answer = self._answer([str(self.torch), script, *args], {"PYTHONPATH": ""})
        engine = answer["engine"]
        if engine.removeprefix("torch ").split("+")[0] != TORCH_VERSION:
            raise SetupError(f"the reference is timed with torch {TORCH_VERSION}, {self.torch} has {engine}.")
        return answer

    def quiet(self) -> dict:
        """The largest share of the processors that others took, and whether that is little."""
        busy = max(self.busy, default=None)
        return {"busy": busy, "quiet": None if busy is None else busy <= BUSY}

    def _answer(self, command: list[str], environment: dict[str, str]) -> dict:
        before = _processor_seconds()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
        after = _processor_seconds()
        if done.returncode:
            raise SetupError(f"{' '.join(command[:3])} ... ended with exit code {done.returncode}.")
        if before and after and after.total > before.total:
            ours = after.children - before.children
            self.busy.append(max(0.0, after.used - before.used - ours) / (after.total - before.total))
        return json.loads(done.stdout)


@dataclass(frozen=True)
class Processors:
    """Processor seconds since the start of the machine, and of our children."""

    total: float
    used: float
    children: float


def _processor_seconds() -> Processors | None:
    """The counters of Linux; None elsewhere."""
    try:
        fields = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    tick = os.sysconf("SC_CLK_TCK")
    idle = fields[3] + fields[4]
    children = os.times()
    return Processors(
        sum(fields) / tick, (sum(fields) - idle) / tick, children.children_user + children.children_system
    )


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def commas(steps) -> str:
    return ",".join(str(int(t)) for t in steps)


def difference(lab: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """[seed, step]: the largest difference of a probe, relative to its largest entry there."""
    a, b = (x.astype(np.float64).reshape(*x.shape[:2], -1) for x in (lab, reference))
    scale = np.maximum(np.abs(a).max(-1), np.finfo(np.float64).tiny)
    return np.where(np.isfinite(b).all(-1), np.abs(a - b).max(-1) / scale, np.inf)


def compare(lab: Path, reference: Path, record: list[int], allowed: dict[str, float]) -> dict[str, float]:
    """The largest difference of every probe in `allowed`; beyond what is allowed, a DisagreementError."""
    found = {}
    with np.load(lab) as ours, np.load(reference) as theirs:
        for name, limit in allowed.items():
            gap = difference(ours[name], theirs[name])
            found[name] = float(gap.max())
            if not found[name] <= limit:
                seed, at = (int(i) for i in np.argwhere(~(gap <= limit))[0])
                raise DisagreementError(
                    f"{name} of seed {seed} at step {record[at]} differs by {gap[seed, at]:.1e} of its size; "
                    f"{limit:.0e} is allowed. No ratio: the two sides do not compute the same thing."
                )
    return found


def side(runs: list[dict], steps: int) -> dict:
    """One side: the median of its runs."""
    return {
        "engine": runs[0]["engine"],
        "threads": [r["threads"] for r in runs],
        "microseconds": 1e6 * median(r["seconds"] for r in runs) / steps,
        "cpu_microseconds": 1e6 * median(r["cpu_seconds"] for r in runs) / steps,
        "peak_megabytes": max(r["peak_kilobytes"] for r in runs) / 1024,
        "runs": [r["seconds"] for r in runs],
    }


def interleaved(label: str, lab, reference, steps: int, repeats: int) -> dict:
    """Both sides in turn, in microseconds a step, and the ratio pair by pair."""
    ours, theirs = [], []
    for repeat in range(repeats):
        say(f"timing {label}: {repeat + 1} of {repeats}")
        ours.append(lab())
        theirs.append(reference())
    pairs = [b["seconds"] / a["seconds"] for a, b in zip(ours, theirs, strict=True)]
    return {
        "steps": steps,
        "lab": side(ours, steps) | {"compile_seconds": median(a["compile_seconds"] for a in ours)},
        "torch": side(theirs, steps),
        "ratio": {"value": median(pairs), "low": min(pairs), "high": max(pairs)},
    }


def positive(word: str) -> int:
    value = int(word)
    if value < 1:
        raise argparse.ArgumentTypeError(f"takes a whole number >= 1, got {word}")
    return value


def disturbed(result: dict) -> list[str]:
    """A warning, where other processes disturbed the timing."""
    if result["quiet"] is not False:
        return []
    return [
        f"NOT A MEASUREMENT: other processes took up to {result['busy']:.0%} of the processors. "
        "PyTorch's threads wait for each other, so a busy machine flatters the lab. Run again when quiet."
    ]


def run(bench, table, args: argparse.Namespace) -> int:
    """Runs a benchmark and prints its document or table; the exit code."""
    try:
        result = bench(args)
    except DisagreementError as wrong:
        say(f"error: {wrong}")
        return 1
    except SetupError as wrong:
        say(f"error: {wrong}")
        return 2
    print(json.dumps(result, indent=2) if args.json else table(result))
    return 0
