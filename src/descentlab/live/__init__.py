"""A local page that follows running experiments: progress from the store's beacons, curves from checkpoints.

It reads the store and changes nothing; whatever process or machine computes, the page sees it. It answers to
this machine alone.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

import numpy as np

from descentlab.beacon import burning
from descentlab.errors import SettingError
from descentlab.moving import colour_scale
from descentlab.rollout import Checkpoint
from descentlab.store import Store, StoreError

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
RECENT = 12
FILES = {
    "/": ("descentlab.live", "live.html", "text/html"),
    "/live.js": ("descentlab.live", "live.js", "text/javascript"),
    "/page.css": ("descentlab.report", "page.css", "text/css"),
    "/plotly.min.js": ("plotly", "package_data/plotly.min.js", "text/javascript"),
}  # fmt: skip


def serve(store: Store, port: int) -> None:
    """Serves the page until Ctrl-C."""
    with server(store, port) as httpd:
        print(
            f"http://{HOST}:{httpd.server_address[1]}/ follows {store.path.resolve()}; Ctrl-C stops it",
            flush=True,
        )
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            httpd.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("stopped")


def server(store: Store, port: int) -> ThreadingHTTPServer:
    """The server of a store's page, which listens and does not yet answer."""
    if not 0 <= port <= 65535:
        raise SettingError(f"port takes a whole number from 0 to 65535, got port={port}.")

    class Handler(_Handler):
        watched = store

    try:
        httpd = ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise SettingError(f"port takes one that is free, got port={port} ({error.strerror}).") from None
    httpd.daemon_threads = True
    return httpd


class _Handler(BaseHTTPRequestHandler):
    """Answers for the page's files, the state of the store, and the curves of a run."""

    watched: Store
    server_version = "descentlab"
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        # Another site's page may know the port, but not our name.
        if self.headers.get("Host", "").partition(":")[0] not in NAMES:
            self.send_error(HTTPStatus.FORBIDDEN, "this page is for this machine")
            return
        path = self.path.partition("?")[0]
        if path in FILES:
            package, name, kind = FILES[path]
            self.answer(resources.files(package).joinpath(name).read_bytes(), kind)
        elif path == "/state.json":
            self.answer(json.dumps(state(self.watched)).encode(), "application/json")
        elif (
            path.startswith("/run/") and (found := run(self.watched, path.removeprefix("/run/"))) is not None
        ):
            self.answer(json.dumps(found).encode(), "application/json")
        else:
            self.send_error(HTTPStatus.NOT_FOUND, "there is nothing here")

    def answer(self, content: bytes, kind: str) -> None:
        """Sends some content."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the page was closed meanwhile
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the page asks every second."""


def state(store: Store) -> dict[str, Any]:
    """What is being computed, and what was stored last."""
    running = [{k: v for k, v in one.items() if k not in ("since", "records")} for one in burning(store)]
    folders = list(store.path.glob("*/run.json")) if store.path.exists() else []
    latest = sorted(folders, key=_age)[:RECENT]
    recent = [{"run": path.parent.name, "seconds_ago": round(_age(path))} for path in latest]
    return {"store": str(store.path.resolve()), "running": running, "recent": recent}


def _age(path: Any) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")


def run(store: Store, name: str) -> dict[str, Any] | None:
    """The curves of a run so far, and its first matrix at the last record; None where there are none yet."""
    if name not in {path.name for path in store.path.iterdir() if path.is_dir()}:
        return None
    for one in burning(store):
        if name in one["runs"] and "records" in one:
            return _unfinished(store, name, one)
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
    kept = store.kept(name, store.seeds(name), 2**31)
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
        name: {
            "middle": _finite(np.nanmedian(values, axis=1)), "low": _finite(values.min(axis=1)),
            "high": _finite(values.max(axis=1)),
        }
        for name, values in sorted(along.items(), key=lambda item: item[0] != first)
        if values.ndim == 2
    }  # fmt: skip
    matrices = [
        (name, values) for name, values in along.items() if values.ndim == 4 and min(values.shape[2:]) > 1
    ]
    found: dict[str, Any] = {"steps": [int(step) for step in steps], "curves": curves, "matrix": None}
    if matrices:
        name, values = matrices[0]
        found["matrix"] = {
            "name": name, "z": [_finite(row) for row in values[-1, 0]], "colours": colour_scale("RdBu_r"),
        }  # fmt: skip
    return found


def _finite(values: np.ndarray) -> list[float | None]:
    return [float(f"{x:.5g}") if np.isfinite(x) else None for x in np.asarray(values, float)]
