"""Progress: what `complete` reports, and the files in a store that say which jobs are in progress.

The process that computes a job writes its file, on whatever machine it runs; displays read the files of all.
"""

import contextlib
import json
import math
import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from descentlab.engine import Settings
from descentlab.errors import RunError
from descentlab.store import WORK, Store

EVERY_SECONDS = 0.5  # between two writes of a file
STALE_SECONDS = 300.0  # after which a silent job of another machine counts as dead; compiling is silent


@dataclass
class Tally:
    """How many of the requested cells were in the store before, are done since, and failed.

    `failed` has the error of each cell that raised, `runs` the names of all cells.
    """

    cells: int
    stored: int = 0
    done: int = 0
    failed: dict[Settings, str] = field(default_factory=dict)
    runs: frozenset[str] = frozenset()
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> int:
        """The number of cells that are still to come."""
        return self.cells - self.stored - self.done - len(self.failed)

    def raise_failures(self) -> None:
        """Raises a RunError if any cell failed."""
        if self.failed:
            errors = "; ".join(self.failed.values())
            raise RunError(f"{len(self.failed)} of {self.cells} runs failed: {errors}")


class Progress:
    """What `complete` reports while it works. Here every method does nothing; a display overrides some.

    `forecast` asks `complete` to say beforehand how much there is to do and about how long it takes.
    """

    forecast = False

    def say(self, message: str) -> None:
        """Takes a message of one line."""

    def overview(self, tally: Tally) -> None:
        """Takes the tally, at the beginning and whenever it has changed."""

    def tick(self) -> None:
        """Is called about twice a second while other processes compute."""

    def begin(self, label: str, steps: int, seeds: int, cells: int) -> None:
        """Is called when this process begins to compute some cells together, or goes on with them."""

    def step(self, step: int, loss: float) -> None:
        """Is called when the cells that this process computes have reached a step."""


class ProgressFile:
    """A file in the store that says how far a job is, from entering the context until leaving it.

    `runs` are the names of the job's cells, `records` the steps at which they are recorded, and `probe` is
    the name of their training loss. Errors of the disk are left to those who store results.
    """

    def __init__(
        self,
        store: Store,
        runs: Sequence[str],
        label: str,
        steps: int,
        seeds: int,
        records: Sequence[int] = (),
        probe: str = "",
    ) -> None:
        self.path = store.path / WORK / f"{uuid.uuid4().hex}.json"
        self.about: dict[str, Any] = {
            "label": label, "runs": list(runs), "cells": len(runs), "seeds": seeds, "step": 0, "steps": steps,
            "loss": None, "seconds_left": None, "records": list(records), "probe": probe,
            "pid": os.getpid(), "since": _since(os.getpid()), "host": os.uname().nodename,
        }  # fmt: skip
        self.written = 0.0
        self.first: tuple[float, int] | None = None

    def __enter__(self) -> "ProgressFile":
        self.write()
        return self

    def __exit__(self, *exception: object) -> None:
        self.path.unlink(missing_ok=True)

    def step(self, step: int, loss: float) -> None:
        """Notes the step that is reached, the loss, and the time left at the pace so far."""
        now = time.monotonic()
        if self.first is None:  # compiling came before, and does not count
            self.first = (now, step)
        began, start = self.first
        if step > start:
            self.about["seconds_left"] = (self.about["steps"] - step) * (now - began) / (step - start)
        self.about |= {"step": step, "loss": loss if math.isfinite(loss) else None}
        if now - self.written > EVERY_SECONDS:
            self.write()

    def write(self) -> None:
        """Writes the file."""
        self.written = time.monotonic()
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            temporary = self.path.with_suffix(".tmp")
            temporary.write_text(json.dumps(self.about))
            temporary.replace(self.path)


def jobs_in_progress(store: Store) -> list[dict[str, Any]]:
    """What the progress files of a store say; files of processes that died are removed."""
    found = []
    for path in sorted((store.path / WORK).glob("*.json")):
        with contextlib.suppress(OSError, ValueError):
            about = json.loads(path.read_text())
            if _alive(about, time.time() - path.stat().st_mtime):
                found.append(about)
            else:
                path.unlink(missing_ok=True)
    return found


def _alive(about: dict[str, Any], age: float) -> bool:
    """Whether the process of a file still runs; on another machine, whether it wrote the file lately."""
    if about["host"] != os.uname().nodename:
        return age < STALE_SECONDS
    try:
        os.kill(about["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return about["since"] == _since(about["pid"])  # another process may have got the number since


def _since(pid: int) -> str:
    """When a process began, in ticks of the system; empty where the system does not say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
