"""Beacons: what is being computed just now, as small files in the store that anyone may look at.

Whoever performs a task lights one, whatever process and machine it is on; a view of a sweep reads them all.
"""

import contextlib
import json
import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from descentlab.store import WORK, Store


class Watcher:
    """What is told about work in progress; the command line shows it."""

    def begin(self, label: str, steps: int, seeds: int, cells: int = 1) -> None:
        """Some cells start together, or go on."""

    def recorded(self, steps: Sequence[int], loss: str) -> None:
        """They are recorded at these steps; `loss` names the probe that is their training loss."""

    def progress(self, step: int, loss: float) -> None:
        """They have reached a step."""

    def end(self) -> None:
        """They are whole."""

    def drop(self) -> None:
        """They were given up."""

    def say(self, message: str) -> None:
        """Something worth a line."""


EVERY_SECONDS = 0.5
STALE_SECONDS = 300.0  # of other machines: compiling does not light a beacon


class Beacon(Watcher):
    """Tells the store how far some runs are, and another watcher all it hears.

    A store that cannot be written says so elsewhere.
    """

    def __init__(self, store: Store, runs: Sequence[str], watcher: Watcher) -> None:
        self.path = store.path / WORK / f"{uuid.uuid4().hex}.json"
        self.runs, self.watcher, self.lit = list(runs), watcher, 0.0
        self.about: dict[str, Any] = {}

    def begin(self, label: str, steps: int, seeds: int, cells: int = 1) -> None:
        """Lights the beacon."""
        self.about = {
            "label": label, "runs": self.runs, "cells": cells, "seeds": seeds, "step": 0, "steps": steps,
            "loss": None, "pid": os.getpid(), "since": _since(os.getpid()), "host": os.uname().nodename,
        }  # fmt: skip
        self._light()
        self.watcher.begin(label, steps, seeds, cells)

    def recorded(self, steps: Sequence[int], loss: str) -> None:
        """Says what a view of the run's curves needs."""
        self.about |= {"records": list(steps), "probe": loss}
        self._light()
        self.watcher.recorded(steps, loss)

    def progress(self, step: int, loss: float) -> None:
        """Says how far it is."""
        self.about |= {"step": step, "loss": loss if abs(loss) < float("inf") else None}
        if time.monotonic() - self.lit > EVERY_SECONDS:
            self._light()
        self.watcher.progress(step, loss)

    def end(self) -> None:
        """Puts the beacon out."""
        self.path.unlink(missing_ok=True)
        self.watcher.end()

    def drop(self) -> None:
        """Puts the beacon out."""
        self.path.unlink(missing_ok=True)
        self.watcher.drop()

    def say(self, message: str) -> None:
        """Passes it on."""
        self.watcher.say(message)

    def _light(self) -> None:
        self.lit = time.monotonic()
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            temporary = self.path.with_suffix(".tmp")
            temporary.write_text(json.dumps(self.about))
            temporary.replace(self.path)


def burning(store: Store) -> list[dict[str, Any]]:
    """What is being computed on the store; what was left by processes that died is put out."""
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
    """Whether a process still runs; on other machines, whether it has said so of late."""
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
    """When a process began, in its system's own ticks; nothing where the system does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
