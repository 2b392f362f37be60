"""Measures a workload: the sides agree first, then they are timed in turn."""

import contextlib
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import counts
import machine
from agreement import compare
from sides import Process, SideError, cores, lab, pin, reference
from workloads import Workload

# What the compiler takes while it works, beside what the workload holds.
COMPILER_BYTES = 400 * counts.MEGABYTE


def say(message: str) -> None:
    """Progress, on standard error."""
    print(message, file=sys.stderr, flush=True)


def measure(
    work: Workload, peaks: dict[str, float], repeats: int, torch: Path, folder: Path
) -> dict[str, Any]:
    """The document of one workload; without repeats only whether the sides agree, PyTorch eager."""
    free = cores()
    core, other = (free[0], free[-1]) if free else (None, None)
    with contextlib.ExitStack() as open_sides:
        say(f"{work.name}: preparing")
        labs = {n: open_sides.enter_context(lab(work.name, folder, n, core)) for n in work.seeds}
        compiling: dict[str, Any] = {}
        for seeds, side in labs.items():
            compiling[f"lab {seeds}"] = side.ask("prepare")
        torches = {
            variant: open_sides.enter_context(reference(work.name, folder, variant, other, torch))
            for variant in work.variants[: None if repeats else 1]
        }
        for side in torches.values():
            side.send("prepare")
        failed: dict[str, str] = {}
        for variant, side in list(torches.items()):
            try:
                compiling[variant] = side.answer()
            except SideError:
                if variant == "eager":
                    raise
                failed[variant] = last_line(folder / f"torch_{variant}.log")
                del torches[variant]
            else:
                pin(side.process.pid, core)
        differences = check(work, labs, torches, folder)
        if not repeats:
            return {"workload": work.name, "about": work.about, "difference": differences}
        rounds = [timed_round(work, labs, torches, folder, i, repeats) for i in range(repeats)]
        bare = {
            n: min(per_step(side.ask("time", recorded=False), "processor_seconds") for _ in range(2))
            for n, side in labs.items()
        }
        memory = {n: side.ask("memory") for n, side in labs.items()}
        torch_memory = {v: side.ask("memory") for v, side in torches.items()}
        spent: dict[int, Any] = {}
        for seeds, side in labs.items():
            with contextlib.suppress(SideError):  # without a profiler the timings stand all the same
                spent[seeds] = side.ask("explain")
    late = compare_late(work, labs, torches, folder)
    return {
        "workload": work.name,
        "about": work.about,
        "settings": work.settings,
        "steps": work.steps,
        "precision": work.precision,
        "difference": differences,
        "late_difference": late,
        "torch": {
            variant: timing(rounds, variant)
            | {
                "compile_seconds": compiling[variant]["compile_seconds"],
                "peak_megabytes": torch_memory[variant]["peak_bytes"] / counts.MEGABYTE,
            }
            for variant in torches
        }
        | {variant: {"failed": why} for variant, why in failed.items()},
        "lab": [
            of_lab(work, seeds, rounds, list(torches), bare[seeds], peaks)
            | {"compile_seconds": compiling[f"lab {seeds}"]["compile_seconds"]}
            | held(work, seeds, memory[seeds])
            | {"spent": spent.get(seeds)}
            for seeds in labs
        ],
        "stands_in_the_way": work.stands_in_the_way,
        "busy": max((r["busy"] for r in rounds if r["busy"] is not None), default=None),
    }


def last_line(log: Path) -> str:
    """The last thing a process said."""
    lines = [line for line in log.read_text().splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def check(
    work: Workload, labs: dict[int, Process], torches: dict[str, Process], folder: Path
) -> dict[str, Any]:
    """Every side over the first steps: the largest difference of each probe, or a DisagreementError."""
    say(f"{work.name}: checking {work.checked[-1]} steps")
    for variant, side in torches.items():
        side.ask("check", out=str(folder / f"check_{variant}.npz"))
    found: dict[str, Any] = {}
    for seeds, side in labs.items():
        ours = folder / f"check_lab_{seeds}.npz"
        side.ask("check", out=str(ours))
        for variant in torches:
            for name, gap in compare(
                ours, folder / f"check_{variant}.npz", work.allowed, work.compared_from
            ).items():
                found[name] = max(gap, found.get(name, 0.0))
    return found


def compare_late(
    work: Workload, labs: dict[int, Process], torches: dict[str, Process], folder: Path
) -> dict[str, float]:
    """The records of the timed runs, where there is anything left to compare."""
    if not work.late:
        return {}
    return compare(
        folder / f"late_lab_{min(labs)}.npz", folder / "late_eager.npz", work.late, work.compared_from
    )


def timed_round(
    work: Workload, labs: dict[int, Process], torches: dict[str, Process], folder: Path, i: int, repeats: int
) -> dict[str, Any]:
    """Every side once, one after another."""
    say(f"{work.name}: timing, round {i + 1} of {repeats}")
    before = machine.clock()
    every: dict[str, Process] = {f"lab_{n}": side for n, side in labs.items()} | torches
    took = {}
    for name, side in every.items():
        out = str(folder / f"late_{name}.npz") if work.late and i == 0 else None
        took[name] = side.ask("time", recorded=True, out=out)
    ours = sum(t["processor_seconds"] for t in took.values())
    return {"took": took, "busy": machine.busy(before, machine.clock(), ours)}


def per_step(answer: dict[str, float], what: str = "seconds") -> float:
    """Microseconds of a step of one seed."""
    return 1e6 * answer[what] / answer["seed_steps"]


def timing(rounds: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """A side's microseconds a step of a seed: the median round, all rounds, and on the processor."""
    each = [per_step(r["took"][name]) for r in rounds]
    processor = [per_step(r["took"][name], "processor_seconds") for r in rounds]
    return {"microseconds": median(each), "rounds": each, "processor_microseconds": min(processor)}


def of_lab(
    work: Workload,
    seeds: int,
    rounds: list[dict[str, Any]],
    variants: list[str],
    bare: float,
    peaks: dict[str, float],
) -> dict[str, Any]:
    """The laboratory's side: its time, the ratios, whether goals are met, and its share of the limit."""
    name = f"lab_{seeds}"

    def ratio(variant: str, what: str = "seconds") -> dict[str, float]:
        each = [per_step(r["took"][variant], what) / per_step(r["took"][name], what) for r in rounds]
        return {"value": median(each), "low": min(each), "high": max(each)}

    goals = {
        k: v for k, v in {"eager": work.goals.get(str(seeds)), "fused": work.goals.get("fused")}.items() if v
    }
    ratios = {variant: ratio(variant) for variant in variants}
    return {
        "seeds": seeds,
        **timing(rounds, name),
        "training_microseconds": bare,
        "ratio": ratios,
        "processor_ratio": {v: ratio(v, "processor_seconds")["value"] for v in variants},
        "goal": goals,
        "met": {v: ratios[v]["value"] >= goal for v, goal in goals.items() if v in ratios},
        "limit": limit(work, peaks, bare),
    }


def limit(work: Workload, peaks: dict[str, float], microseconds: float) -> dict[str, Any] | None:
    """The least time of a step by the machine's measured rates, what it consists of, and its share.

    Arithmetic, functions and random numbers share a core and add up; main memory works beside them.
    """
    if work.counts is None:
        return None
    own = work.counts(work.sizes)
    parts = {
        "products": own.flops / peaks["dgemm" if work.precision == 64 else "sgemm"],
        "functions": own.functions / peaks["functions_64" if work.precision == 64 else "functions_32"],
        "random": own.words / peaks["words"] + own.normals / peaks["normals"],
        "memory": own.bytes / peaks["copy"],
    }
    least = 1e6 * max(parts["products"] + parts["functions"] + parts["random"], parts["memory"])
    return {
        "counts": asdict(own),
        "microseconds": least,
        "parts": {name: 1e6 * value for name, value in parts.items() if value},
        "share": least / microseconds,
    }


def held(work: Workload, seeds: int, found: dict[str, int]) -> dict[str, Any]:
    """The laboratory's peak memory, and the bound that its formula gives."""
    bound = found["library_bytes"] + COMPILER_BYTES + work.bytes(work.sizes, seeds)
    return {
        "peak_megabytes": found["peak_bytes"] / counts.MEGABYTE,
        "library_megabytes": found["library_bytes"] / counts.MEGABYTE,
        "bound_megabytes": bound / counts.MEGABYTE,
        "within_bound": found["peak_bytes"] <= bound,
    }
