"""Pools: every pool computes the same numbers, and loses none."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from descentlab.engine import Settings
from descentlab.errors import StoreError
from descentlab.papers import load
from descentlab.running import (
    Here,
    Job,
    Pool,
    Processes,
    Progress,
    Result,
    complete,
    identify,
    jobs_in_progress,
    plan,
)
from descentlab.store import Store
from descentlab.sweeping import cells
from descentlab.sweeping._axes import axis

PAPER = load("bilinear_teachers")
STEPS = 1_000_000
# Two compiled shapes of two cells, each of a moment's work: long enough to be caught at it.
BASE = PAPER.preset("tiny").replace(detail=False, steps=STEPS)
PRESETS: list[Settings] = list(cells(BASE, [axis("activation=identity,relu"), axis("eta=0.1,0.2")]).flat)
NAMES = [identify(PAPER, preset) for preset in PRESETS]
SHORT = BASE.replace(steps=10)
SEEDS = 2


def done(pool: Pool, store: Store, presets: list[Settings]) -> list[Result]:
    return list(pool.perform(plan(PAPER, presets, SEEDS, store), store, Progress()))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """What this process computes."""
    store = Store(tmp_path_factory.mktemp("here"))
    assert {one.outcome for one in done(Here(), store, PRESETS)} == {"done"}
    return store


@contextlib.contextmanager
def murder(store: Store, when: Callable[[], bool]) -> Iterator[list[int]]:
    """Kills the first worker that is seen at work once it is time."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            for one in jobs_in_progress(store) if when() else []:
                killed.append(one["pid"])
                os.kill(one["pid"], signal.SIGKILL)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def test_processes_compute_what_this_one_does_though_one_is_killed(
    here: Store, tmp_path: Path, agree: Callable[..., None], history: Callable[[Store], dict]
):
    store = Store(tmp_path)
    jobs = plan(PAPER, PRESETS, SEEDS, store)
    assert [len(job.presets) for job in jobs] == [2, 2]
    ticks: list[int] = []

    class Ticks(Progress):
        def tick(self) -> None:
            ticks.append(len(ticks))

    with murder(store, lambda: len(list(tmp_path.glob("*/run.json"))) > 0) as killed:
        found = list(Processes(2, fewest=2).perform(jobs, store, Ticks()))
    assert len(killed) == 1
    assert killed[0] != os.getpid()
    assert len(found) == len(PRESETS), "a cell has two results"
    assert {(one.preset, one.outcome) for one in found} == {(preset, "done") for preset in PRESETS}
    agree(store, here, NAMES)
    # What had been stored before was not computed again.
    assert history(store) == {name: [[0, SEEDS]] for name in NAMES}
    assert jobs_in_progress(store) == []
    assert store.problems() == []
    assert len(ticks) > 4, "progress was not called"


def test_cells_that_take_their_workers_down_have_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    deadly = tmp_path / "python"
    deadly.write_text("#!/bin/sh\nkill -9 $$\n")
    deadly.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(deadly))
    store = Store(tmp_path / "store")
    tally = complete(PAPER, PRESETS, SEEDS, store, pool=Processes(2, fewest=1))
    assert set(tally.failed) == set(PRESETS)
    assert set(tally.failed.values()) == {
        "its worker was lost 3 times, the last time by signal 9; out of memory, perhaps"
    }
    assert store.failure(NAMES[0]) == tally.failed[PRESETS[0]]
    monkeypatch.undo()
    again = complete(PAPER, PRESETS, SEEDS, store, pool=Here())
    assert (again.done, set(again.failed)) == (0, set(PRESETS))


# ---------------------------------------------------------------- disks


@pytest.mark.parametrize("pool", [Here(), Processes(2, fewest=1)], ids=["here", "processes"])
def test_a_store_that_cannot_be_written_is_named(pool: Pool, tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    store = Store(tmp_path / "file" / "store")
    with pytest.raises(StoreError) as caught:
        complete(PAPER, PRESETS, SEEDS, store, pool=pool)
    assert str(caught.value) == (
        f"{store.path} cannot be written: Not a directory. Mend that or choose another folder and give the "
        "same command again; what is stored stays."
    )


def test_a_disk_that_fails_a_worker_stops_the_work(tmp_path: Path):
    store = Store(tmp_path)
    taken = store.folder(identify(PAPER, SHORT)) / f"seeds-{SEEDS}.nc"
    taken.mkdir(parents=True)
    with pytest.raises(StoreError, match=rf"seeds-{SEEDS}\.nc cannot be written: Is a directory"):
        done(Processes(1, fewest=1), store, [SHORT])
    assert list(taken.parent.glob("*.tmp")) == list(taken.parent.glob(".*.tmp")) == []


@pytest.fixture
def full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Callable[[], object]]]:
    """A folder on a disk with room for a page, and how to make room; a feigned one without the right."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(disk)]
    try:
        subprocess.run(mounted, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            yield disk, patch.undo
        return
    more = ["mount", "-o", "remount,size=10m", str(disk)]
    yield disk, lambda: subprocess.run(more, check=True, capture_output=True)
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_named_and_the_same_command_goes_on(full_disk: tuple[Path, Callable[[], object]]):
    disk, make_room = full_disk
    store = Store(disk / "store")
    with pytest.raises(StoreError) as caught:
        complete(PAPER, [SHORT], SEEDS, store, pool=Here())
    assert f"seeds-{SEEDS}.nc cannot be written: No space left on device. Free some room" in str(caught.value)
    assert not list(store.path.glob("*/failed.json")), "the disk's fault is not the cell's"
    assert not list(store.path.glob("*/.*.tmp"))
    make_room()
    tally = complete(PAPER, [SHORT], SEEDS, store, pool=Here())
    assert (tally.done, tally.failed) == (1, {})
    assert store.problems() == []


# ---------------------------------------------------------------- two at once


def test_two_sweeps_on_one_store_share_the_work(tmp_path: Path, history: Callable[[Store], dict]):
    values = "0.1,0.12,0.14,0.16,0.18,0.2"
    words = ["sweep", PAPER.name, "tiny", "--set", "detail=false", "--set", f"steps={STEPS}"]
    words += ["--over", f"eta={values}", "--seeds", str(SEEDS), "--workers", "1", "--json"]
    store = Store(tmp_path)
    grid = list(cells(BASE, [axis(f"eta={values}")]).flat)
    command = [sys.executable, "-m", "descentlab", *words, "--store", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as other:
        while not jobs_in_progress(store) and other.poll() is None:
            time.sleep(0.01)
        tally = complete(PAPER, grid, SEEDS, store, pool=Here())
        out, error = other.communicate(timeout=300)
    assert other.returncode == 0, error
    assert (tally.stored + tally.done, tally.left) == (6, 0)
    assert (json.loads(out)["cells"], json.loads(out)["failed"]) == (6, 0)
    assert history(store) == {identify(PAPER, preset): [[0, SEEDS]] for preset in grid}
    assert store.problems() == []


def test_a_held_cell_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: Callable[[Store], dict]
):
    monkeypatch.setattr("descentlab.running._complete.BUSY_SECONDS", 0.05)
    store = Store(tmp_path)
    name = identify(PAPER, SHORT)
    held, freed = threading.Event(), threading.Event()

    def hold() -> None:
        with Store(tmp_path).lock(name):
            held.set()
            freed.wait(30)

    class Frees(Progress):
        rounds = 0
        said: ClassVar[list[str]] = []

        def tick(self) -> None:
            self.rounds += 1
            if self.rounds == 3:
                freed.set()

        def say(self, message: str) -> None:
            self.said.append(message)

    holder, progress = threading.Thread(target=hold), Frees()
    holder.start()
    held.wait(30)
    tally = complete(PAPER, [SHORT], SEEDS, store, pool=Here(), progress=progress)
    holder.join()
    assert progress.rounds >= 3
    assert progress.said == [f"waiting for another process that works on {name}"]
    assert (tally.done, tally.left) == (1, 0)
    assert history(store) == {name: [[0, SEEDS]]}


def test_jobs_are_spread_over_the_workers_there_are(tmp_path: Path):
    store = Store(tmp_path)
    many = list(cells(BASE, [axis("eta=linspace(0.1,0.2,9)")]).flat)
    one = plan(PAPER, many, SEEDS, store)
    assert [(len(job.presets), job.room) for job in one] == [(9, 9 * SEEDS)]
    four = plan(PAPER, many, SEEDS, store, parts=4)
    assert [len(job.presets) for job in four] == [3, 2, 2, 2], "somebody has nothing to do"
    assert len({job.room for job in four}) == 1
    assert [p for job in four for p in job.presets] == many
    few = plan(PAPER, many[:3], SEEDS, store, parts=8)
    assert few == [Job(PAPER.name, (preset,), 0, SEEDS, 0) for preset in many[:3]]
    assert plan(PAPER, [], SEEDS, store) == []
