"""Clusters: a real dask scheduler with two workers, and what happens where there is none."""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import LocalCluster

from descentlab.engine import Settings
from descentlab.errors import SettingError, StoreError
from descentlab.papers import load
from descentlab.running import (
    Cluster,
    Here,
    Job,
    Pool,
    complete,
    connect,
    identify,
    jobs_in_progress,
    plan,
)
from descentlab.running import _cluster as cluster
from descentlab.running._cluster import ClusterError
from descentlab.store import WORK, Store
from descentlab.sweeping import cells
from descentlab.sweeping._axes import axis

PAPER = load("bilinear_teachers")
BASE = PAPER.preset("tiny").replace(detail=False, steps=10)
PRESETS: list[Settings] = list(cells(BASE, [axis("activation=identity,relu"), axis("eta=0.1,0.2")]).flat)
NAMES = [identify(PAPER, preset) for preset in PRESETS]
SEEDS = 2


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """What this process computes."""
    store = Store(tmp_path_factory.mktemp("here"))
    assert complete(PAPER, PRESETS, SEEDS, store, pool=Here()).done == len(PRESETS)
    return store


@pytest.fixture(scope="module")
def pool() -> Iterator[Cluster]:
    """Two workers, reached by the address of their scheduler."""
    options: Any = {"processes": True, "n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options) as scheduler:
        address: Any = scheduler
        with connect(address.scheduler_address) as found:
            yield found


def test_a_cluster_computes_what_this_process_does(
    pool: Cluster, here: Store, tmp_path: Path, agree: Callable[..., None], history: Callable[[Store], dict]
):
    assert isinstance(pool, Pool)
    assert pool.size() == 2
    store = Store(tmp_path / "store")
    tally = complete(PAPER, PRESETS, SEEDS, store, pool=pool)
    assert (tally.done, tally.failed) == (4, {})
    agree(store, here, NAMES)
    assert history(store) == {name: [[0, SEEDS]] for name in NAMES}
    assert jobs_in_progress(store) == []
    assert list((store.path / WORK).iterdir()) == []
    assert store.problems() == []
    again = complete(PAPER, PRESETS, SEEDS, store, pool=pool)
    assert (again.stored, again.done) == (4, 0)


def test_workers_that_do_not_see_the_store_send_what_they_computed(
    pool: Cluster,
    here: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    agree: Callable[..., None],
    history: Callable[[Store], dict],
):
    store = Store(tmp_path / "store")
    # Where the workers look for a sign of the caller there is none.
    monkeypatch.setattr(cluster, "WORK", "elsewhere")
    bad = PAPER.preset("tiny").replace(steps=10, ood="math:sqrt")  # no law of inputs
    tally = complete(PAPER, [*PRESETS[:2], bad], SEEDS, store, pool=pool)
    assert tally.done == 2
    assert list(tally.failed) == [bad]
    assert tally.failed[bad].startswith("TypeError: ")
    assert store.failure(identify(PAPER, bad)) == tally.failed[bad]
    agree(store, here, NAMES[:2])
    assert history(store) == {name: [[0, SEEDS]] for name in NAMES[:2]}
    assert not (store.path / WORK).exists(), "a worker wrote to the store"


def test_a_disk_that_fails_a_worker_stops_the_work(pool: Cluster, tmp_path: Path):
    store = Store(tmp_path)
    taken = store.folder(identify(PAPER, BASE)) / f"seeds-{SEEDS}.nc"
    taken.mkdir(parents=True)
    with pytest.raises(StoreError, match=rf"seeds-{SEEDS}\.nc cannot be written: Is a directory"):
        complete(PAPER, [BASE], SEEDS, store, pool=pool)


# ---------------------------------------------------------------- what a worker does, here


def test_cells_are_sent_back_with_their_numbers(here: Store, tmp_path: Path):
    [job, _] = plan(PAPER, PRESETS, SEEDS, Store(tmp_path / "store"))
    names = [identify(PAPER, preset) for preset in job.presets]
    for found in (
        cluster._send_back(job, job.presets),
        cluster._perform(job, names, str(tmp_path / "store"), "nosuch.token"),
    ):
        assert [result.outcome for result, _ in found] == ["done", "done"]
        for result, sent in found:
            assert sent is not None
            data, seconds = sent
            assert seconds > 0
            stored = here.read(identify(PAPER, result.preset))
            assert stored is not None
            for name in data.variables:
                np.testing.assert_allclose(data[name], stored[name], rtol=1e-12, err_msg=str(name))
    assert not (tmp_path / "store").exists()


def test_a_cell_that_raises_is_sent_back_as_its_error():
    bad = PAPER.preset("tiny").replace(steps=10, ood="math:sqrt")
    [good, failed] = cluster._send_back(Job(PAPER.name, (BASE, bad), 0, SEEDS), (BASE, bad))
    assert good[0].outcome == "done"
    assert good[1] is not None
    assert (failed[0].outcome, failed[1]) == ("failed", None)
    assert failed[0].error.startswith("TypeError: ")


def test_a_worker_with_other_code_says_so(tmp_path: Path):
    job = Job(PAPER.name, (BASE,), 0, SEEDS)
    with pytest.raises(ClusterError, match="a worker has other code of bilinear_teachers than the caller"):
        cluster._perform(job, ["bilinear_teachers-0123456789abcdef"], str(tmp_path), "nosuch.token")


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize("where", ["", "localhost:8786", "8786", "Slurm", "sge", "tcp:/host:8786"])
def test_what_is_no_address_is_refused(where: str):
    with pytest.raises(SettingError, match="cluster takes a scheduler's address") as caught, connect(where):
        pass
    assert f"got cluster={where}." in str(caught.value)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """A client that never met its scheduler is closed when it is forgotten; not while another one starts."""
    yield
    gc.collect()


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("where", ["tcp://127.0.0.1:1", "nosuch://127.0.0.1:8786", "tcp://127.0.0.1"])
def test_an_address_where_nobody_answers_is_named(where: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)
    with pytest.raises(ClusterError, match=f"no dask scheduler answers at {where} "), connect(where):
        pass


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"cluster takes a TOML file after slurm:, got .*jobs\.toml \(.*No such file"),
        ("jobs = ", r"cluster takes a TOML file after slurm:, got .*jobs\.toml \("),
        ("jobs = 0", r"jobs takes a whole number >= 1, got jobs=0 in .*jobs\.toml"),
        ('jobs = "two"', r"jobs takes a whole number >= 1, got jobs=two in .*jobs\.toml"),
    ],
)
def test_what_is_no_file_of_jobs_is_refused(content: str | None, message: str, tmp_path: Path):
    file = tmp_path / "jobs.toml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingError, match=message), connect(f"slurm:{file}"):
        pass


# ---------------------------------------------------------------- batch jobs

STARTS = """#!/bin/sh
cp "$1" {folder}/job.sh
setsid sh {folder}/job.sh > {folder}/job.log 2>&1 &
echo $! > {folder}/pid
echo "Submitted batch job $!"
"""
WAITS = """#!/bin/sh
echo "Submitted batch job 1"
"""
CANCELS = """#!/bin/sh
test -e {folder}/pid && kill -TERM -- -$(cat {folder}/pid) 2> /dev/null
"""
JOBS = """
jobs = 1
memory = "2GB"
interface = "lo"
scheduler_options = {dashboard_address = ":0"}
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A queue on this machine, which starts jobs at once or never, and a file of jobs for it."""
    for name, script in (("sbatch", request.param), ("scancel", CANCELS)):
        path = tmp_path / name
        path.write_text(script.format(folder=tmp_path))
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    file = tmp_path / "jobs.toml"
    file.write_text(JOBS)
    return f"slurm:{file}"


@pytest.mark.parametrize("slurm", [STARTS], indirect=True, ids=["starts"])
def test_batch_jobs_compute_what_this_process_does(
    slurm: str, here: Store, tmp_path: Path, agree: Callable[..., None]
):
    store = Store(tmp_path / "store")
    with connect(slurm) as pool:
        tally = complete(PAPER, PRESETS[:1], SEEDS, store, pool=pool)
    assert (tally.done, tally.failed) == (1, {}), (tmp_path / "job.log").read_text()
    agree(store, here, NAMES[:1])
    assert "--mem=2G" in (tmp_path / "job.sh").read_text()


@pytest.mark.parametrize("slurm", [WAITS], indirect=True, ids=["waits"])
def test_work_is_planned_for_the_jobs_that_are_to_come(slurm: str):
    file = Path(slurm.removeprefix("slurm:"))
    file.write_text(JOBS.replace("jobs = 1", "jobs = 3\ncores = 2"))
    with connect(slurm) as pool:
        assert pool.size() == 6


@pytest.mark.parametrize("slurm", [WAITS], indirect=True, ids=["waits"])
def test_an_error_of_the_store_is_not_blamed_on_the_queue(slurm: str):
    with pytest.raises(StoreError, match=r"^the disk is full$"), connect(slurm):
        raise StoreError("the disk is full")


@pytest.mark.usefixtures("forgotten")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # dask's, of its own error
@pytest.mark.parametrize("slurm", [WAITS], indirect=True, ids=["waits"])
def test_options_that_a_queue_does_not_take_are_named(slurm: str):
    with open(slurm.removeprefix("slurm:"), "a") as file:
        file.write("nosuch = 1\n")
    with pytest.raises(ClusterError, match=r"slurm did not take the jobs: .*nosuch"), connect(slurm):
        pass


def test_a_machine_without_a_queue_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "jobs.toml").write_text(JOBS)
    with pytest.raises(ClusterError, match="sbatch"), connect(f"slurm:{tmp_path / 'jobs.toml'}"):
        pass
