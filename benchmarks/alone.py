"""What has no twin in PyTorch: how fast the command line starts, and how long it takes to reproduce all."""

import subprocess
import sys
import tempfile
import time
from statistics import median
from typing import Any

from measuring import say
from sides import SetupError

# Seconds that a command may take.
GOALS = {"--help": 0.5, "papers": 1.0}


def seconds(*words: str) -> float:
    """How long a command of the laboratory takes, in a new process."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "descentlab", *words], capture_output=True, text=True)
    if done.returncode > 1:  # 1: a claim is BROKEN
        raise SetupError(f"descentlab {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
    return time.perf_counter() - began


def start_up(repeats: int) -> dict[str, Any]:
    """The seconds of commands that compute nothing; the first run, which fills caches, is not counted."""
    say("start_up: timing")
    found = {}
    for word, goal in GOALS.items():
        each = [seconds(word) for _ in range(max(repeats, 3) + 1)][1:]
        found[f"descentlab {word}"] = {
            "seconds": median(each), "low": min(each), "high": max(each), "goal": goal,
            "met": median(each) <= goal,
        }  # fmt: skip
    return found


def reproduce(repeats: int) -> dict[str, Any]:
    """The seconds of `descentlab reproduce` on all cores with an empty store, once."""
    say("reproduce: timing, on all cores")
    with tempfile.TemporaryDirectory(prefix="descentlab-bench-") as folder:
        took = seconds("reproduce", "--store", f"{folder}/store", "--out", f"{folder}/report")
    return {"descentlab reproduce": {"seconds": took, "low": took, "high": took}}


MEASURES = {"start_up": start_up, "reproduce": reproduce}
