"""The live page: what it says is what the store knows, and it says so to this machine alone."""

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from descentlab.errors import SettingError
from descentlab.papers import _registry as paper
from descentlab.running import Progress, ProgressFile, Run, identify, run
from descentlab.showing import live
from descentlab.showing.live.known import curves
from descentlab.showing.live.known import run as run_so_far
from descentlab.store import Store

PAPER = paper.load("sign_descent")
SMALL = PAPER.preset("tiny").replace(d=60, s=8, m_k=10, m_v=10, n_test=20, steps=20)


class Asks(Progress):
    """Asks for the curves of the run while it runs, once there is a checkpoint."""

    def __init__(self, store: Store, run: str) -> None:
        self.store, self.run = store, run
        self.found: list[dict] = []

    def step(self, step: int, loss: float) -> None:
        if (found := run_so_far(self.store, self.run)) is not None:
            self.found.append(found)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def asked(store: Store) -> tuple[Asks, Run]:
    asks = Asks(store, identify(PAPER, SMALL))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("descentlab.engine._rollout.PIECE_SECONDS", 0.0)
        patch.setattr("descentlab.running._worker.KEEP_SECONDS", -1.0)
        return asks, run(PAPER, SMALL, 3, store, progress=asks)


def test_curves_of_a_run_that_goes_on_are_those_of_the_whole_run(asked: tuple[Asks, Run]):
    asks, run = asked
    assert len(asks.found) > 3
    for found in asks.found:
        assert next(iter(found["curves"])) == "training_loss"
        count = len(found["steps"])
        assert found["steps"] == run.data["step"].values[:count].tolist()
        middle = run.data["training_loss"].median("seed").values[:count]
        np.testing.assert_allclose(found["curves"]["training_loss"]["middle"], middle, rtol=1e-4)
    last = asks.found[-1]["matrix"]
    assert last["name"] in ("query_noise", "key_noise")
    assert np.shape(last["z"]) == (10, SMALL.settings()["n"])


def test_a_finished_run_has_curves_and_an_unknown_one_has_none(asked: tuple[Asks, Run], store: Store):
    found = run_so_far(store, asked[1].id)
    assert found is not None
    assert found["steps"][-1] == 20
    low, high = (found["curves"]["test_loss"][end][-1] for end in ("low", "high"))
    values = asked[1].data["test_loss"].isel(step=-1).values
    np.testing.assert_allclose([low, high], [values.min(), values.max()], rtol=1e-4)
    assert run_so_far(store, "nosuch") is None
    assert run_so_far(store, "..") is None


def test_a_run_is_read_again_only_when_it_has_changed(
    asked: tuple[Asks, Run], store: Store, monkeypatch: pytest.MonkeyPatch
):
    reads: list[str] = []
    read = Store.read
    monkeypatch.setattr(Store, "read", lambda own, name: reads.append(name) or read(own, name))
    first = curves(store, asked[1].id)
    assert curves(store, asked[1].id) == first
    assert len(reads) == 1
    (store.folder(asked[1].id) / "run.json").touch()
    assert curves(store, asked[1].id) == first
    assert len(reads) == 2
    assert curves(store, "nosuch") is None


def test_looking_at_a_run_leaves_its_damaged_checkpoint_alone(store: Store):
    name = "paper-0123456789abcdef"
    damaged = store.folder(name) / "checkpoint-0-3.npz"
    damaged.parent.mkdir()
    damaged.write_bytes(b"half a checkpoint")
    with ProgressFile(store, [name], "half", 100, 3, [0, 1], "loss"):
        assert curves(store, name) == b"null"
        assert damaged.exists()


@pytest.fixture
def address(store: Store) -> Iterator[str]:
    with live.server(store, 0) as httpd:
        threading.Thread(target=httpd.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
        httpd.shutdown()


def get(address: str, **headers: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10) as answer:
        return answer.read()


def test_the_state_names_what_runs_and_what_was_stored(address: str, store: Store, asked: tuple[Asks, Run]):
    with ProgressFile(store, ["some-run"], "some run", 100, 2):
        state = json.loads(get(f"{address}/state.json"))
    assert [(one["label"], one["steps"]) for one in state["running"]] == [("some run", 100)]
    assert [one["run"] for one in state["recent"]] == [asked[1].id]
    assert json.loads(get(f"{address}/state.json"))["running"] == []
    assert json.loads(get(f"{address}/run/{asked[1].id}"))["steps"][0] == 0


@pytest.mark.parametrize("path", ["/", "/live.js", "/page.css", "/plotly.min.js"])
def test_the_page_is_whole(address: str, path: str):
    assert len(get(address + path)) > 500


@pytest.mark.parametrize("path", ["/run/nosuch", "/../pyproject.toml", "/nosuch", "/run/../../x"])
def test_there_is_nothing_else(address: str, path: str):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(address + path)


def test_other_sites_are_refused(address: str):
    with pytest.raises(urllib.error.HTTPError, match="403"):
        get(f"{address}/state.json", Host="example.org")


def test_a_port_that_cannot_be_had_is_named(store: Store, address: str):
    taken = int(address.rpartition(":")[2])
    with pytest.raises(SettingError, match=rf"port takes one that is free, got port={taken}"):
        live.server(store, taken)
    with pytest.raises(SettingError, match=r"port takes a whole number from 0 to 65535, got port=70000\."):
        live.server(store, 70000)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_command_binds_to_this_machine_and_stops_cleanly(how: signal.Signals, tmp_path: Path):
    command = [sys.executable, "-m", "descentlab", "view", "--port", "0", "--store", str(tmp_path / "none")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("http://127.0.0.1:")
    assert json.loads(get(f"{line.split()[0]}state.json"))["running"] == []
    time.sleep(0.2)
    process.send_signal(how)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "stopped\n", "")
    assert not (tmp_path / "none").exists()
