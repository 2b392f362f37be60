"""The display: a live table with bars on a real terminal, lines elsewhere; standard output stays clean."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import descentlab.papers
from descentlab.papers import Paper, load
from descentlab.running import ProgressFile, Tally
from descentlab.running._forecast import announce
from descentlab.showing.terminal import Display, progress_of
from descentlab.store import Store

LONG = 100_000_000  # steps: the run is stopped before its end
RUN = ["run", "bilinear_teachers", "tiny", "--set", "detail=false", "--seeds", "2"]


@pytest.fixture(scope="module")
def bowl() -> Iterator[Paper]:
    with pytest.MonkeyPatch.context() as patch:
        folder = str(Path(__file__).parents[1] / "own_papers")
        patch.setattr(descentlab.papers, "__path__", [*descentlab.papers.__path__, folder])
        yield load("bowl")


# ---------------------------------------------------------------- a real terminal


class Screen:
    """What a command writes to a pseudo-terminal of 80 columns, without colours and cursor movements."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.text, self.changed = "", threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while chunk := os.read(self.ours, 4096):
                with self.changed:
                    self.text += chunk.decode(errors="replace")
                    self.changed.notify_all()

    def shown(self) -> str:
        return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", self.text).replace("\r", "\n")

    def waits_for(self, words: str, alive: Callable[[], bool], after: int = 0) -> re.Match[str]:
        """The first match on the screen behind a place, while the command runs."""
        with self.changed:
            while (found := re.compile(words).search(self.shown(), after)) is None:
                assert alive(), self.shown()
                self.changed.wait(0.2)
        return found


@pytest.fixture
def screen() -> Iterator[Screen]:
    found = Screen()
    yield found
    os.close(found.ours)


def command(screen: Screen, *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "descentlab", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=screen.theirs, text=True,
        env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(screen.theirs)
    return process


def test_run_shows_a_bar_with_steps_time_and_loss_and_stops_at_ctrl_c(screen: Screen, tmp_path: Path):
    with command(screen, *RUN, "--steps", str(LONG), "--store", str(tmp_path)) as process:

        def alive() -> bool:
            return process.poll() is None

        # Before a program is compiled and a step is taken, there is a bar.
        screen.waits_for(rf"1 cell: 0 in the store, .* 1 to go[^\0]*━━━━ +0/{LONG}", alive)
        moved = screen.waits_for(rf"━ +([1-9]\d*)/{LONG} +loss ([\d.e+-]+) +\d+:\d\d:\d\d left", alive)
        assert float(moved[2]) > 0
        further = screen.waits_for(rf"━ +(?!{moved[1]}/)(\d+)/{LONG} +loss", alive, moved.end())
        assert int(further[1]) > int(moved[1])
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert screen.shown().rstrip().endswith("stopped; the same command goes on from here")
    store = Store(tmp_path)
    assert store.problems() == []
    assert not list((store.path / ".work").iterdir())


def test_standard_output_has_the_document_alone(screen: Screen, tmp_path: Path):
    with command(screen, *RUN, "--steps", "10", "--json", "--store", str(tmp_path)) as process:
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, screen.shown()
    assert json.loads(out)["steps"] == 10
    assert "bilinear_teachers: 1 run, 0 of them in the store" in screen.shown()


# ---------------------------------------------------------------- what it says


def test_progress_is_one_line():
    tally = Tally(100, stored=20, done=30)
    running = [{"cells": 10, "step": 50, "steps": 100}, {"cells": 2, "step": 0, "steps": 100}]
    assert progress_of(tally, running, 70.0) == (
        "100 cells: 20 in the store, 30 done, 0 failed, 12 running, 50 to go, 0.5 cells/s, 0:01:30 left"
    )
    begun = progress_of(Tally(100), [{"cells": 10, "step": 0, "steps": 100}], 5.0)
    assert begun == "100 cells: 0 in the store, 0 done, 0 failed, 10 running, 100 to go"
    over = progress_of(Tally(4, stored=1, done=3), [], 6.0)
    assert over == "4 cells: 1 in the store, 3 done, 0 failed, 0 running, 0 to go, 0.5 cells/s"
    assert progress_of(Tally(1), [], 5.0) == "1 cell: 0 in the store, 0 done, 0 failed, 0 running, 1 to go"


def test_long_work_is_forecast_and_short_work_is_not(
    bowl: Paper, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    forecast = "descentlab.running._forecast"
    monkeypatch.setattr(f"{forecast}.seconds_per_step", lambda system, preset, seeds: seeds * 1.0)
    monkeypatch.setattr(f"{forecast}.MANY_STEPS", 100)
    short, long = (bowl.preset("tiny").replace(steps=steps) for steps in (30, 7200))
    display = Display(Store(tmp_path))
    announce(bowl, 1, [short], 3, display)
    assert capsys.readouterr().err == "bowl: 1 run, 0 of them in the store\n"
    announce(bowl, 3, [long, long.replace(eta=0.3)], 3, display)
    assert capsys.readouterr().err == (
        "bowl: 3 runs, 1 of them in the store\ntiming bowl steps=7200 ...\n"
        "about 12 hours of training on this machine; a stop loses a few seconds\n"
    )


def test_one_job_says_how_far_it_is_where_there_is_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    display = Display(Store(tmp_path))
    with ProgressFile(Store(tmp_path), ["bowl-1"], "bowl", 20, 3) as file:
        display.overview(Tally(1, runs=frozenset({"bowl-1"})))
        capsys.readouterr()
        file.step(10, 0.25)
        file.write()
        display.step(10, 0.25)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr("descentlab.showing.terminal.QUIET_SECONDS", -1.0)
        display.step(10, 0.25)
    assert capsys.readouterr().err.endswith("left, step 10 of 20, loss 0.25\n")


@pytest.mark.parametrize("terminal", [False, True])
def test_the_display_shows_how_a_sweep_stands(
    terminal: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FORCE_COLOR" if terminal else "NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    store = Store(tmp_path)
    another = ProgressFile(store, [f"bowl-{i}" for i in range(3, 10)], "somebody else's", 20, 3)
    job = ProgressFile(store, ["bowl-1", "bowl-2"], "bowl 2 cells eta=0.1..0.2", 20, 3)
    with contextlib.suppress(KeyboardInterrupt), another, job, Display(store) as display:
        tally = Tally(3, stored=1, runs=frozenset({"bowl-1", "bowl-2"}))
        for tally.done in (0, 1, 2, 2):
            display.overview(tally)
            display.live.refresh()
        display.say("failed: [a] cell")
        raise KeyboardInterrupt
    out, said = capsys.readouterr()
    assert out == ""
    assert "failed: [a] cell\n" in said
    assert said.rstrip().endswith("stopped; the same command goes on from here")
    # Without a terminal there are lines at the beginning and at the end, and no bars.
    counts = [said.count(f"3 cells: 1 in the store, {done} done, 0 failed, 2 running") for done in range(3)]
    assert all(counts) if terminal else counts == [1, 0, 1]
    assert ("bowl 2 cells eta=0.1..0.2 (3 seeds)" in said) == terminal
    assert ("0/20" in said) == terminal
