"""What a store knows just now: jobs from its progress files, curves from checkpoints and stored runs."""

from __future__ import annotations

import json
import threading
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from descentlab.drawing import colour_scale
from descentlab.engine import Checkpoint
from descentlab.errors import StoreError
from descentlab.running import jobs_in_progress
from descentlab.showing.report.looks import numbers
from descentlab.store import Store

RECENT = 12
LOCK = threading.Lock()  # each request has a thread of its own


def state(store: Store) -> dict[str, Any]:
    """What is being computed, and what was stored last."""
    jobs = jobs_in_progress(store)
    running = [{k: v for k, v in job.items() if k not in ("since", "records")} for job in jobs]
    found = list(store.path.glob("*/run.json")) if store.path.exists() else []
    latest = sorted(found, key=_written, reverse=True)[:RECENT]
    settings = [_settings(path) for path in latest]
    recent = [
        {"run": path.parent.name, "label": _differs(own, settings)}
        for path, own in zip(latest, settings, strict=True)
    ]
    return {"store": str(store.path.resolve()), "running": running, "recent": recent}


def _settings(path: Path) -> dict[str, Any]:
    """The paper and the settings of a stored run; nothing where its manifest cannot be read."""
    try:
        manifest = json.loads(path.read_bytes())
        return {"paper": manifest["paper"], **manifest["settings"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _differs(own: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """A run in a few words: its paper, and where it differs from others of that paper."""
    alike = [one for one in others if one.get("paper") == own.get("paper")]
    fields = [name for name in own if any(one.get(name) != own[name] for one in alike)]
    return " ".join([str(own.get("paper", "")), *(f"{name}={own[name]}" for name in fields)]).strip()


def curves(store: Store, name: str) -> bytes | None:
    """The curves of a run so far as JSON, null before its first checkpoint; None without such a run.

    They are read again only when a file of the run has changed, or its computing has begun or ended.
    """
    busy = tuple(job["pid"] for job in jobs_in_progress(store) if name in job["runs"])
    stored = name in store.ids()
    if not busy and not stored:
        return None
    files = list(store.folder(name).iterdir()) if stored else []
    with LOCK:
        return _encoded(store, name, busy, tuple(sorted((path.name, _written(path)) for path in files)))


@lru_cache(maxsize=1)  # a page looks at one run at a time: others would only take room
def _encoded(store: Store, name: str, *state: Any) -> bytes:
    return json.dumps(run(store, name)).encode()


def _written(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # it was replaced meanwhile
        return 0


def run(store: Store, name: str) -> dict[str, Any] | None:
    """The curves of a run so far, and its first matrix at the last record; None where there are none yet."""
    if name not in store.ids():
        return None
    for job in jobs_in_progress(store):
        if name in job["runs"]:
            return _unfinished(store, name, job)
    try:
        data = store.read(name)
    except StoreError:
        return None
    if data is None:
        return None
    along = {str(k): v.transpose("step", "seed", ...).values for k, v in data.items() if "step" in v.dims}
    return _shown(data["step"].values, along, "")


def _unfinished(store: Store, name: str, about: dict[str, Any]) -> dict[str, Any] | None:
    """The same from the latest checkpoint."""
    kept = store.kept(name, store.seeds(name), 2**31, mend=False)
    if kept is None:
        return None
    records = Checkpoint.from_arrays(kept[1]).records
    count = min(len(values) for values in records.values())
    return _shown(
        np.asarray(about["records"][:count]), {k: v[:count] for k, v in records.items()}, about["probe"]
    )


def _shown(steps: np.ndarray, along: dict[str, np.ndarray], first: str) -> dict[str, Any]:
    """Median and range over seeds of every number; the first matrix of the first seed."""
    curves = {
        name: _band(values)
        for name, values in sorted(along.items(), key=lambda item: item[0] != first)
        if values.ndim == 2
    }
    matrices = [
        (name, values) for name, values in along.items() if values.ndim == 4 and min(values.shape[2:]) > 1
    ]
    found: dict[str, Any] = {"steps": [int(step) for step in steps], "curves": curves, "matrix": None}
    if matrices:
        name, values = matrices[0]
        found["matrix"] = {
            "name": name, "z": [numbers(row) for row in values[-1, 0]], "colours": colour_scale("RdBu_r"),
        }  # fmt: skip
    return found


def _band(values: np.ndarray) -> dict[str, list[float | None]]:
    """Median and range over seeds, of those that are finite."""
    values = np.where(np.isfinite(values), values, np.nan).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # no seed may be finite any more
        ends = np.nanmedian(values, axis=1), np.nanmin(values, axis=1), np.nanmax(values, axis=1)
    return dict(zip(("middle", "low", "high"), map(numbers, ends), strict=True))
