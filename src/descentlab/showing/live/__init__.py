"""A local page that follows running experiments, whatever process or machine computes them.

It answers to this machine alone, and reads the store; no run is touched.
"""

from __future__ import annotations

import contextlib
import json
import signal
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from descentlab.errors import SettingError
from descentlab.showing.live.known import curves, state
from descentlab.showing.report.typeface import stylesheet
from descentlab.store import Store

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
FILES = {
    "/": ("descentlab.showing.live", "live.html", "text/html"),
    "/live.js": ("descentlab.showing.live", "live.js", "text/javascript"),
    "/page.css": ("descentlab.showing.report", "page.css", "text/css"),
    "/plotly.min.js": ("plotly", "package_data/plotly.min.js", "text/javascript"),
}  # fmt: skip


def serve(store: Store, port: int) -> None:
    """Serves the page until Ctrl-C."""
    with server(store, port) as httpd:
        print(
            f"http://{HOST}:{httpd.server_address[1]}/ follows {store.path.resolve()}; Ctrl-C stops it",
            flush=True,
        )
        # Ctrl-C too: a process that a script starts in the background is born deaf to it.
        for stop in (signal.SIGINT, signal.SIGTERM):
            signal.signal(stop, signal.default_int_handler)
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
        if path == "/typeface.css":
            self.answer(stylesheet().encode(), "text/css")
        elif path in FILES:
            package, name, kind = FILES[path]
            self.answer(resources.files(package).joinpath(name).read_bytes(), kind)
        elif path == "/state.json":
            self.answer(json.dumps(state(self.watched)).encode(), "application/json")
        elif path.startswith("/run/") and (found := curves(self.watched, path.removeprefix("/run/"))):
            self.answer(found, "application/json")
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
