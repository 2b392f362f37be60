"""Fleets: whoever performs tasks gives the same numbers, and loses none."""

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

import numpy as np
import pytest

from descentlab import campaign
from descentlab.beacon import burning
from descentlab.fleet import Fleet, Here, Processes
from descentlab.paper import load
from descentlab.preset import Settings
from descentlab.store import Store, StoreError
from descentlab.sweep import axis, cells
from descentlab.work import Result, Task, identify, plan

PAPER = load("bilinear_teachers")
# Two compiled shapes of two cells, each of a moment's work: long enough to be caught at it.
BASE = PAPER.preset("tiny").replace(detail=False, steps=2_000_000)
PRESETS: list[Settings] = list(cells(BASE, [axis("activation=identity,relu"), axis("eta=0.1,0.2")]).flat)
NAMES = [identify(PAPER, preset) for preset in PRESETS]
SHORT = BASE.replace(steps=10)
SEEDS = 2


def done(fleet: Fleet, store: Store, presets: list[Settings]) -> list[Result]:
    tasks = plan(PAPER, presets, SEEDS, store)
    return [one for results in fleet.perform(tasks, store, lambda: None) for one in results]


def history(store: Store) -> dict[str, list[list[int]]]:
    found = {run: store.manifest(run) for run in store.ids()}
    return {run: [one["seeds"] for one in manifest["history"]] for run, manifest in found.items() if manifest}


def agree(a: Store, b: Store, names: list[str]) -> None:
    for name in names:
        one, other = a.read(name), b.read(name)
        assert one is not None
        assert other is not None
        assert set(one.variables) == set(other.variables)
        for variable in one.variables:
            np.testing.assert_allclose(one[variable], other[variable], rtol=1e-12, err_msg=str(variable))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """What this process computes."""
    store = Store(tmp_path_factory.mktemp("here"))
    assert {one.outcome for one in done(Here(), store, PRESETS)} == {"done"}
    return store


def test_processes_compute_what_this_one_does(here: Store, tmp_path: Path):
    store = Store(tmp_path)
    tasks = plan(PAPER, PRESETS, SEEDS, store)
    assert [len(task.presets) for task in tasks] == [2, 2]
    ticks: list[float] = []
    found = list(Processes(2).perform(tasks, store, lambda: ticks.append(time.monotonic())))
    assert {(one.preset, one.outcome) for results in found for one in results} == {
        (preset, "done") for preset in PRESETS
    }
    agree(store, here, NAMES)
    assert history(store) == {name: [[0, SEEDS]] for name in NAMES}
    assert burning(store) == []
    assert np.diff(ticks).max() < 5, "nobody was told how far it was"


@contextlib.contextmanager
def murder(store: Store, when: Callable[[], bool]) -> Iterator[list[int]]:
    """Kills the first worker that is seen at work once it is time."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            for one in burning(store) if when() else []:
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


def test_a_killed_worker_is_replaced_and_nothing_is_lost(here: Store, tmp_path: Path):
    store = Store(tmp_path)
    first = store.folder(NAMES[0]) / "run.json"
    with murder(store, first.exists) as killed:
        results = done(Processes(1), store, PRESETS[:2])
    assert len(killed) == 1
    assert killed[0] != os.getpid()
    assert [one.outcome for one in results] == ["done", "done"]
    # What the worker had stored before was not computed again.
    assert history(store) == {name: [[0, SEEDS]] for name in NAMES[:2]}
    agree(store, here, NAMES[:2])
    assert burning(store) == []
    assert store.problems() == []


def test_a_task_that_takes_its_workers_down_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("descentlab.fleet.MOST_LOSSES", 1)
    store = Store(tmp_path)
    with murder(store, lambda: True) as killed:
        [result] = done(Processes(1), store, PRESETS[:1])
    assert len(killed) == 1
    assert result.outcome == "failed"
    assert result.error == "its worker was lost 1 times, the last time by signal 9; out of memory, perhaps"


def test_workers_that_cannot_even_start_are_cells_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    tally = campaign.complete(PAPER, PRESETS, SEEDS, Store(tmp_path), Processes(2))
    assert set(tally.failed) == set(PRESETS)
    assert set(tally.failed.values()) == {
        "its worker was lost 3 times, the last time by exit code 1; out of memory, perhaps"
    }
    assert Store(tmp_path).failure(NAMES[0]) == tally.failed[PRESETS[0]]


# ---------------------------------------------------------------- disks


@pytest.mark.parametrize("fleet", [Here(), Processes(2)], ids=["here", "processes"])
def test_a_store_that_cannot_be_written_is_named(fleet: Fleet, tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    store = Store(tmp_path / "file" / "store")
    with pytest.raises(StoreError) as caught:
        campaign.complete(PAPER, PRESETS, SEEDS, store, fleet)
    assert str(caught.value) == (
        f"{store.path} cannot be written: Not a directory. Mend that or choose another --store and give the "
        "same command again; what is stored stays."
    )


def test_a_disk_that_fails_a_worker_stops_the_campaign(tmp_path: Path):
    store = Store(tmp_path)
    taken = store.folder(identify(PAPER, SHORT)) / f"seeds-{SEEDS}.nc"
    taken.mkdir(parents=True)
    with pytest.raises(StoreError, match=rf"seeds-{SEEDS}\.nc cannot be written: Is a directory"):
        done(Processes(1), store, [SHORT])
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
        campaign.complete(PAPER, [SHORT], SEEDS, store, Here())
    assert f"seeds-{SEEDS}.nc cannot be written: No space left on device. Free some room" in str(caught.value)
    assert not list(store.path.glob("*/failed.json")), "the disk's fault is not the cell's"
    assert not list(store.path.glob("*/.*.tmp"))
    make_room()
    tally = campaign.complete(PAPER, [SHORT], SEEDS, store, Here())
    assert (tally.done, tally.failed) == (1, {})
    assert store.problems() == []


# ---------------------------------------------------------------- two at once


def test_two_campaigns_on_one_store_share_the_work(tmp_path: Path):
    words = [
        "sweep", "bilinear_teachers", "tiny", "--set", "detail=false", "--steps", "4000000",
        "--over", "eta=0.1,0.12,0.14,0.16", "--seeds", "2", "--workers", "1", "--json",
        "--store", str(tmp_path),
    ]  # fmt: skip
    command = [sys.executable, "-m", "descentlab", *words]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    found = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], found
    first, second = (json.loads(out) for out, _ in found)
    assert first["cells"] == second["cells"] == 4
    assert first["exponents"] == second["exponents"]
    assert first["path"] == second["path"]
    runs = history(Store(tmp_path))
    assert len(runs) == 4
    assert all(own == [[0, 2]] for own in runs.values()), runs
    assert Store(tmp_path).problems() == []


def test_a_held_cell_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(campaign, "BUSY_SECONDS", 0.05)
    store = Store(tmp_path)
    name = identify(PAPER, SHORT)
    held, freed = threading.Event(), threading.Event()

    def hold() -> None:
        with Store(tmp_path).lock(name):
            held.set()
            freed.wait(30)

    class Frees(campaign.View):
        rounds = 0

        def overview(self, tally: campaign.Tally) -> None:
            self.rounds += 1
            if self.rounds == 3:
                freed.set()

    holder, view = threading.Thread(target=hold), Frees()
    holder.start()
    held.wait(30)
    tally = campaign.complete(PAPER, [SHORT], SEEDS, store, Here(), view)
    holder.join()
    assert view.rounds > 3
    assert (tally.done, tally.left) == (1, 0)
    assert history(store) == {name: [[0, SEEDS]]}


def test_tasks_are_spread_over_whoever_there_is(tmp_path: Path):
    store = Store(tmp_path)
    many = list(cells(BASE, [axis("eta=linspace(0.1,0.2,9)")]).flat)
    one = plan(PAPER, many, SEEDS, store)
    assert [(len(task.presets), task.room) for task in one] == [(9, 9 * SEEDS)]
    four = plan(PAPER, many, SEEDS, store, parts=4)
    assert [len(task.presets) for task in four] == [3, 3, 3] or len(four) == 4
    assert len({task.room for task in four}) == 1
    assert [p for task in four for p in task.presets] == many
    few = plan(PAPER, many[:3], SEEDS, store, parts=8)
    assert few == [Task(PAPER.name, (preset,), 0, SEEDS, 0) for preset in many[:3]]
    assert plan(PAPER, [], SEEDS, store) == []
