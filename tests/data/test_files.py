"""Look-up, checksums and downloads, against a server on this machine; and the command that shows them."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from descentlab.cli import main
from descentlab.data import files, look, mnist
from descentlab.data.files import File
from descentlab.errors import DataError, SettingError
from descentlab.showing import doctor
from descentlab.showing.doctor import examine

CONTENT = bytes(range(256)) * 1000


class Handler(BaseHTTPRequestHandler):
    """/good, /short (cut short), /altered, /endless, /stalls, /slow; all else is not found."""

    def do_GET(self) -> None:
        kind = self.path.split("/")[1]
        if kind not in ("good", "short", "altered", "endless", "stalls", "slow"):
            self.send_error(404)
            return
        self.send_response(200)
        if kind != "endless":
            self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        if kind == "short":
            self.wfile.write(CONTENT[:1000])
        elif kind == "altered":
            self.wfile.write(b"x" + CONTENT[1:])
        elif kind == "endless":
            for _ in range(100):
                self.wfile.write(CONTENT)
        elif kind == "stalls":
            self.wfile.write(CONTENT[:1000])
            self.wfile.flush()
            time.sleep(5)
        elif kind == "slow":
            for i in range(0, len(CONTENT), 64_000):
                self.wfile.write(CONTENT[i : i + 64_000])
                time.sleep(0.05)
        else:
            self.wfile.write(CONTENT)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address) -> None:
        """Clients that go away are part of the tests."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no folder of data."""
    monkeypatch.setenv("DESCENTLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DESCENTLAB_DATA", raising=False)
    monkeypatch.delenv("DESCENTLAB_OFFLINE")  # these fetch from a server of their own
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    return tmp_path / "cache" / "descentlab" / "data"


def made_up(*addresses: str) -> File:
    return File("made/up.bin", len(CONTENT), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", addresses)


def left(folder: Path) -> list[Path]:
    return [path for path in folder.parents[1].rglob("*") if path.is_file()]


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_a_download_is_kept(server: str, cache: Path, capsys: pytest.CaptureFixture[str]):
    file = made_up(f"{server}/good")
    assert files.find(file) is None
    assert files.content(file) == CONTENT
    assert left(cache) == [cache / "made" / "up.bin"]
    assert files.find(file) == cache / "made" / "up.bin"
    assert files.content(made_up("http://nowhere.invalid")) == CONTENT  # nothing is fetched again
    out, err = capsys.readouterr()
    assert (out, err) == ("", "getting made/up.bin (0.3 MB) from 127.0.0.1 ...\n")


def test_the_folder_that_is_named_comes_first(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    for folder in (tmp_path / "named", cache):
        (folder / "made").mkdir(parents=True)
        (folder / "made" / "up.bin").write_bytes(CONTENT)
    assert files.find(made_up()) == cache / "made" / "up.bin"
    monkeypatch.setenv("DESCENTLAB_DATA", str(tmp_path / "named"))
    assert files.find(made_up()) == tmp_path / "named" / "made" / "up.bin"
    (tmp_path / "named" / "made" / "up.bin").write_bytes(CONTENT[:-1])
    with pytest.raises(DataError, match=r"named/made/up.bin is damaged"):  # though the cache has it whole
        files.content(made_up())


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert files.cache_folder() == tmp_path / "cache" / "descentlab" / "data"
    monkeypatch.delenv("DESCENTLAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert files.cache_folder() == tmp_path / "xdg" / "descentlab" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert tmp_path / "home" in files.cache_folder().parents


@pytest.mark.parametrize("kind", ["short", "altered", "endless", "nosuch"])
def test_a_bad_address_gives_way_to_the_next(server: str, cache: Path, kind: str):
    assert files.content(made_up(f"{server}/{kind}", f"{server}/good")) == CONTENT
    assert left(cache) == [cache / "made" / "up.bin"]


def test_a_refused_connection_gives_way_to_the_next(server: str, cache: Path):
    assert files.content(made_up(f"http://127.0.0.1:{closed_port()}", f"{server}/good")) == CONTENT


def test_a_server_that_stalls_is_given_up(server: str, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "TIMEOUT", 0.2)
    with pytest.raises(DataError, match="timed out"):
        files.content(made_up(f"{server}/stalls"))
    assert left(cache) == []


def test_what_cannot_be_fetched_says_where_it_was_looked_for_and_what_to_do(
    server: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    refused = f"http://127.0.0.1:{closed_port()}/up.bin"
    kinds = ("short", "altered", "nosuch")
    with pytest.raises(DataError) as caught:
        files.content(made_up(*(f"{server}/{kind}" for kind in kinds), refused))
    message = str(caught.value)
    expected = hashlib.sha256(CONTENT).hexdigest()
    for words in (
        "made/up.bin is missing.",
        f"Looked in DESCENTLAB_DATA (not set) and {cache} (the cache).",
        f"{server}/short: sha256 {hashlib.sha256(CONTENT[:1000]).hexdigest()} instead of {expected}, "
        "1000 bytes instead of 256000.",
        f"{server}/altered: sha256 {hashlib.sha256(b'x' + CONTENT[1:]).hexdigest()} instead of {expected}.",
        f"{server}/nosuch: 404 Not Found.",
        f"{refused}: Connection refused.",
        f"`descentlab data made` gets it. Or fetch {server}/short by hand and\n",
        f"put it into {cache / 'made'}, or",
    ):
        assert words in message
    assert caught.value.exit_code == 1
    assert left(cache) == []
    monkeypatch.setenv("DESCENTLAB_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"nowhere \(DESCENTLAB_DATA; there is no such folder\)"):
        files.content(made_up(refused))


def test_a_damaged_file_is_refused_by_name_and_sum(cache: Path):
    (cache / "made").mkdir(parents=True)
    (cache / "made" / "up.bin").write_bytes(CONTENT[:-1])
    found = hashlib.sha256(CONTENT[:-1]).hexdigest()
    with pytest.raises(DataError) as caught:
        files.content(made_up())
    assert str(caught.value) == (
        f"{cache / 'made' / 'up.bin'} is damaged: sha256 {found} instead of "
        f"{hashlib.sha256(CONTENT).hexdigest()}, 255999 bytes instead of 256000. Remove it; "
        "`descentlab data made` gets it again."
    )


def test_a_cache_that_cannot_be_written_is_named(server: str, tmp_path: Path):
    (tmp_path / "cache").write_text("not a folder")
    with pytest.raises(DataError, match=r"cannot be written: Not a directory.*DESCENTLAB_CACHE"):
        files.content(made_up(f"{server}/good"))


def test_a_write_that_fails_leaves_nothing(server: str, cache: Path, monkeypatch: pytest.MonkeyPatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="No space left on device"):
        files.content(made_up(f"{server}/good"))
    assert left(cache) == []


FETCH = """
import signal, sys
from descentlab.data import files
signal.signal(signal.SIGINT, signal.default_int_handler)  # also below a shell that ignores it
files.content(files.File("made/up.bin", int(sys.argv[1]), sys.argv[2], (sys.argv[3],)))
"""


def fetching(address: str) -> subprocess.Popen[str]:
    """Another process that fetches the file."""
    file = made_up()
    command = [sys.executable, "-c", FETCH, str(file.size), file.checksum, address]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_an_interrupted_download_leaves_nothing(server: str, cache: Path):
    with fetching(f"{server}/stalls") as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("getting made/up.bin")
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.stderr.read()
    assert left(cache) == []


@pytest.mark.slow
def test_processes_that_fetch_at_once_leave_a_whole_file(server: str, cache: Path):
    with fetching(f"{server}/slow") as a, fetching(f"{server}/slow") as b:
        assert (a.wait(60), b.wait(60)) == (0, 0)
    assert left(cache) == [cache / "made" / "up.bin"]
    assert files.content(made_up()) == CONTENT


def descentlab(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "descentlab", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_the_command_lists_what_there_is():
    done = descentlab("data", "--json")
    assert done.returncode == 0, done.stderr
    found = {one["name"]: one for one in json.loads(done.stdout)}
    assert {name: one["status"] for name, one in found.items()} == {
        "mnist": "missing", "mnist_small": "packaged", "imdb": "missing", "pathfinder": "generated",
    }  # fmt: skip
    assert len(found["mnist"]["missing"]) == 4
    assert found["mnist"]["bytes"] is None
    assert found["mnist_small"]["bytes"] > 200_000
    for name, finding in found.items():
        assert set(finding) == set(found["mnist"])
        assert finding["terms"]
        one = descentlab("data", name) if finding["status"] in ("packaged", "generated") else None
        assert one is None or one.stdout.startswith(name)
    listed = descentlab("data").stdout
    assert "missing; `descentlab data mnist` gets it (11.6 MB)" in listed
    assert "generated when it is used" in listed


@pytest.mark.slow
def test_the_command_shows_damage(cache: Path):
    (cache / "mnist").mkdir(parents=True)
    (cache / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"no")
    done = descentlab("data")
    assert done.returncode == 1
    assert f"DAMAGED: {cache}/mnist/t10k-labels-idx1-ubyte.gz is damaged: md5" in done.stdout
    assert look("mnist").status == "damaged"


def test_the_command_gets_what_is_missing(
    server: str, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def addressed(address: str) -> None:
        pairs = {
            split: tuple(replace(made_up(address), path=f"mnist/{split}-{part}") for part in ("x", "y"))
            for split in ("train", "test")
        }
        monkeypatch.setattr(mnist, "FILES", pairs)

    monkeypatch.setattr(sys, "argv", ["descentlab", "data", "mnist"])
    addressed(f"{server}/nosuch")
    with pytest.raises(SystemExit) as failed:
        main()
    out, err = capsys.readouterr()
    assert (failed.value.code, out) == (1, "")
    assert "descentlab: mnist/train-x is missing.\n  Looked in" in err
    assert left(cache) == []
    addressed(f"{server}/good")
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 0
    assert f"found in {cache / 'mnist'}, 1.0 MB" in capsys.readouterr().out
    assert len(left(cache)) == 4


@pytest.mark.slow
def test_the_doctor_looks_at_data(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "miscompilations", list)  # tested elsewhere, and slow
    facts, problems = examine(tmp_path / "store")
    assert problems == []
    [line] = [fact for fact in facts if fact.startswith("data found")]
    assert line == "data found   mnist missing; mnist_small packaged; imdb missing; pathfinder generated"
    (cache / "imdb").mkdir(parents=True)
    (cache / "imdb" / "aclImdb_v1.tar.gz").write_bytes(b"no")
    facts, [problem] = examine(tmp_path / "store")
    assert problem.startswith(f"{cache}/imdb/aclImdb_v1.tar.gz is damaged: md5 ")
    assert any("imdb damaged" in fact for fact in facts)


@pytest.mark.slow
def test_an_unknown_name_is_wrong_usage():
    done = descentlab("data", "nosuch")
    assert done.returncode == 2
    assert done.stderr == (
        "descentlab: there is no data set nosuch; there are mnist, mnist_small, imdb, pathfinder.\n"
    )
    with pytest.raises(SettingError, match="there is no data set nosuch"):
        look("nosuch")


@pytest.mark.slow
def test_the_command_needs_no_jax():
    script = (
        "import sys; from descentlab.cli import app; app(['data'], standalone_mode=False); "
        "print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("False\n"), done.stderr


def test_nothing_is_fetched_when_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("DESCENTLAB_OFFLINE", "1")
    monkeypatch.setenv("DESCENTLAB_CACHE", str(tmp_path))
    refused = files.File("set/name", 4, "md5:e2fc714c4727ee9395f324cd2e7f331f", ("http://127.0.0.1:9/name",))
    with pytest.raises(DataError, match="Nothing is fetched while DESCENTLAB_OFFLINE is set"):
        files.download(refused)
    assert not list(tmp_path.rglob("*"))
