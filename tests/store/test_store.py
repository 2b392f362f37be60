"""The store: whole or not at all, damage named, two processes safe."""

import errno
import json
import multiprocessing
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from descentlab.errors import StoreError
from descentlab.store import Busy, Store, run_id, write_entry

ABOUT = {"paper": "paper", "code": "v1", "settings": {"n": 1, "eta": 0.1}, "seconds": 1.0}
RUN = run_id("paper", "v1", {"n": 1, "eta": 0.1})
values = st.one_of(
    st.integers(-10, 10), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=3), st.booleans()
)


def trajectory(seeds: int) -> xr.Dataset:
    loss = np.arange(seeds * 3, dtype=float).reshape(seeds, 3)
    return xr.Dataset({"loss": (("seed", "step"), loss)}, {"seed": np.arange(seeds), "step": [0, 1, 2]})


@pytest.fixture
def filled(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    with store.lock(RUN):
        store.write(RUN, trajectory(2), ABOUT)
    return store


@given(st.dictionaries(st.text(min_size=1, max_size=3), values, max_size=4))
def test_ids_depend_on_content_alone(settings: dict):
    shuffled = dict(reversed(settings.items()))
    assert run_id("p", "code", settings) == run_id("p", "code", shuffled)
    assert run_id("p", "code", settings) != run_id("p", "other", settings)
    assert run_id("p", "code", settings) != run_id("q", "code", settings)
    assert run_id("p", "code", settings) != run_id("p", "code", settings | {"new field": 1})


def test_what_is_written_is_read_back(filled: Store):
    data = filled.read(RUN)
    assert data is not None
    xr.testing.assert_equal(data, trajectory(2))
    with xr.open_dataset(filled.data_path(RUN)) as opened:
        xr.testing.assert_equal(opened.load(), trajectory(2))
    manifest = filled.manifest(RUN)
    assert manifest is not None
    assert manifest["versions"]["jax"]
    assert filled.problems() == []


def test_more_seeds_replace_fewer(filled: Store):
    filled.write(RUN, trajectory(5), ABOUT)
    data = filled.read(RUN)
    assert data is not None
    assert data.sizes["seed"] == 5
    assert [p.name for p in filled.folder(RUN).glob("*.nc")] == ["seeds-5.nc"]


def test_nothing_is_no_run(tmp_path: Path):
    store = Store(tmp_path)
    assert store.read(RUN) is None
    assert store.ids() == []


def edit(folder: Path, **changes) -> None:
    """Changes entries of a manifest; None removes one."""
    manifest = json.loads((folder / "run.json").read_text()) | changes
    (folder / "run.json").write_text(json.dumps({k: v for k, v in manifest.items() if v is not None}))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: flip(f / "seeds-2.nc"), r"seeds-2\.nc is damaged: its checksum is wrong"),
        (
            lambda f: (f / "seeds-2.nc").write_bytes((f / "seeds-2.nc").read_bytes()[:-100]),
            r"seeds-2\.nc is damaged",
        ),
        (lambda f: (f / "seeds-2.nc").unlink(), r"seeds-2\.nc is missing"),
        (lambda f: (f / "run.json").write_text("{"), r"run\.json is damaged"),
        (lambda f: (f / "run.json").write_text("[]"), r"run\.json is foreign"),
        (lambda f: edit(f, run="x"), r"run\.json is foreign"),
        (lambda f: edit(f, settings={"n": 2, "eta": 0.1}), r"run\.json is foreign"),
        (lambda f: edit(f, sha256=None), r"run\.json is foreign"),
    ],
    ids=[
        "altered",
        "truncated",
        "missing",
        "half a manifest",
        "no manifest",
        "another's",
        "edited",
        "incomplete",
    ],
)
def test_damage_is_named(filled: Store, damage, message: str):
    damage(filled.folder(RUN))
    with pytest.raises(StoreError, match=message):
        filled.read(RUN)
    assert len(filled.problems()) == 1


def test_foreign_folders_are_named(filled: Store):
    (filled.path / "my-notes").mkdir()
    assert filled.ids() == [RUN]
    assert filled.problems() == [f"{filled.path / 'my-notes'} is no run of this store."]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "file"
    write_entry(path, b"old")

    def full_disk(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises(StoreError, match=r"file cannot be written: No space left.*Free some room"):
        write_entry(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_checkpoints_are_kept_found_and_dropped(filled: Store, capsys: pytest.CaptureFixture[str]):
    filled.keep(RUN, range(2, 5), {"step": np.asarray(7), "state 000": np.ones((3, 2))})
    assert filled.kept(RUN, 0, 8) is None
    found = filled.kept(RUN, 2, 8)
    assert found is not None
    assert found[0] == range(2, 5)
    np.testing.assert_array_equal(found[1]["state 000"], np.ones((3, 2)))
    path = filled.folder(RUN) / "checkpoint-2-5.npz"
    path.write_bytes(path.read_bytes()[:50])
    assert filled.kept(RUN, 2, 8) is None
    assert "checkpoint-2-5.npz is damaged" in capsys.readouterr().err


def test_the_checkpoint_of_most_seeds_that_are_wanted_is_taken(filled: Store):
    for last in (16, 8, 4):
        filled.keep(RUN, range(2, last), {"step": np.asarray(last)})
    filled.keep(RUN, range(8, 16), {"step": np.asarray(1)})
    for most, found in ((20, 16), (15, 8), (7, 4)):
        kept = filled.kept(RUN, 2, most)
        assert kept is not None
        assert kept[0] == range(2, found)
        assert int(kept[1]["step"]) == found
    assert filled.kept(RUN, 2, 3) is None
    filled.drop(RUN, 8)
    assert filled.kept(RUN, 2, 20) is None
    assert filled.kept(RUN, 8, 20) is not None


def test_a_run_is_free_unless_somebody_holds_it(filled: Store):
    assert filled.free("another")
    assert not filled.folder("another").exists()
    with filled.lock(RUN):
        assert not filled.free(RUN)
    assert filled.free(RUN)


def test_a_lock_that_is_held_is_waited_for_or_refused(filled: Store):
    seen = []
    with filled.lock(RUN):
        with pytest.raises(Busy), filled.lock(RUN, wait=False):
            pass
        waiting = threading.Thread(target=lambda: hold(filled, seen))
        waiting.start()
        while not seen:
            time.sleep(0.01)
    waiting.join()
    assert seen == ["waits", "holds"]


def hold(store: Store, seen: list[str]) -> None:
    with store.lock(RUN, waiting=lambda: seen.append("waits")):
        seen.append("holds")


def test_a_failure_is_kept_until_the_run_is_made(filled: Store):
    assert filled.failure(RUN) is None
    filled.fail(RUN, {"error": "out of memory"})
    assert filled.failure(RUN) == "out of memory"
    filled.write(RUN, trajectory(3), ABOUT)
    assert filled.failure(RUN) is None
    (filled.folder(RUN) / "failed.json").write_text("{")
    with pytest.raises(StoreError, match=r"failed\.json is damaged .*remove it"):
        filled.failure(RUN)


def test_a_store_counts_the_seeds_that_it_holds(filled: Store):
    assert filled.seeds(RUN) == 2
    assert filled.seeds("another") == 0
    with pytest.raises(StoreError, match="another holds no whole run"):
        filled.data_path("another")


def add_one_seed(path: Path, times: int) -> None:
    store = Store(path)
    for _ in range(times):
        with store.lock(RUN):
            data = store.read(RUN)
            store.write(RUN, trajectory(1 if data is None else data.sizes["seed"] + 1), ABOUT)


@pytest.mark.slow
def test_two_processes_on_one_store_lose_nothing(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=add_one_seed, args=(tmp_path, 10)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    data = Store(tmp_path).read(RUN)
    assert data is not None
    assert data.sizes["seed"] == 20
