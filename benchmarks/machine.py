"""The machine: how many cores, which instructions, and how busy others keep it."""

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

BUSY = 0.1  # share of the processors taken by other processes beyond which a timing is not one
INSTRUCTIONS = ("avx512f", "avx2", "avx", "sve2", "sve", "asimd", "sse4_2")


def name() -> dict[str, object]:
    """The machine by its cores and instruction set, and nothing that tells whose it is."""
    try:
        flags = set(re.findall(r"\w+", Path("/proc/cpuinfo").read_text()))
    except OSError:
        flags = set()
    best = next((word for word in INSTRUCTIONS if word in flags), "")
    return {"cores": os.cpu_count(), "instructions": f"{platform.machine()} {best}".strip()}


@dataclass(frozen=True)
class Clock:
    """Processor seconds since the start of the machine: of all, and in use."""

    total: float
    used: float


def clock() -> Clock | None:
    """The counters of Linux; None elsewhere."""
    try:
        fields = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    tick = os.sysconf("SC_CLK_TCK")
    return Clock(sum(fields) / tick, (sum(fields) - fields[3] - fields[4]) / tick)


def busy(before: Clock | None, after: Clock | None, ours: float) -> float | None:
    """The share of the processors that others took meanwhile."""
    if before is None or after is None or after.total <= before.total:
        return None
    return max(0.0, after.used - before.used - ours) / (after.total - before.total)
