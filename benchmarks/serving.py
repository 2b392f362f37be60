"""A side of a benchmark as a process that waits: one JSON command a line comes in, one JSON answer goes out.

    prepare     compiles and warms up                       {"compile_seconds"}
    check       saves the records of the first steps        {}
    time        runs the workload, or without its records   {"seconds", "processor_seconds", "steps"}
    memory      the most memory it ever took                {"peak_bytes", "library_bytes"}
    explain     where the time of a step goes (the lab)     {"microseconds", "parts", ...}

Both interpreters import this file, so it needs neither JAX nor PyTorch.
"""

import json
import os
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

LEAST_SECONDS = 0.25  # a shorter run is repeated until so much has passed


class Side(Protocol):
    """What a side can do."""

    @property
    def seed_steps(self) -> float:
        """How many steps of one seed a run has."""
        ...

    def prepare(self) -> dict[str, Any]:
        """Compiles and warms up; what there is to say of that."""
        ...

    def check(self, out: Path) -> None:
        """Saves the records of the steps that are compared."""
        ...

    def run(self, recorded: bool, out: Path | None) -> None:
        """The timed run, with its records or with the first and the last alone; saved if asked for."""
        ...


@runtime_checkable
class Explains(Protocol):
    """A side that can tell where its time goes."""

    def explain(self) -> dict[str, Any]:
        """The microseconds of a step of one seed, by what they are spent on."""
        ...


def memory(field: str) -> int:
    """Bytes of this process: VmRSS, what it holds, or VmHWM, the most it ever held."""
    try:
        found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return 1024 * int(found[1])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def timed(side: Side, recorded: bool, out: Path | None) -> dict[str, Any]:
    """Seconds of one run, and those that this process had a processor."""
    runs, began, processor = 0, time.perf_counter(), time.process_time()
    while runs == 0 or time.perf_counter() - began < LEAST_SECONDS:
        side.run(recorded, out)
        runs += 1
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    return {"seconds": seconds / runs, "processor_seconds": processor / runs, "seed_steps": side.seed_steps}


def serve(make: Callable[[], Side]) -> None:
    """Answers commands from standard input until it ends. What libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    library_bytes = memory("VmRSS")
    side = make()
    for line in sys.stdin:
        command = json.loads(line)
        out = Path(command["out"]) if command.get("out") else None
        match command["do"]:
            case "prepare":
                answer: dict[str, Any] = side.prepare()
            case "check":
                assert out is not None
                side.check(out)
                answer = {}
            case "time":
                answer = timed(side, command["recorded"], out)
            case "explain":
                assert isinstance(side, Explains)
                answer = side.explain()
            case _:
                answer = {"peak_bytes": memory("VmHWM"), "library_bytes": library_bytes}
        print(json.dumps(answer), file=answers, flush=True)
