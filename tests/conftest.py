"""What all tests share: a store, a compilation cache, JAX under strict promotion, and which tests are slow.

`make check` leaves out slow tests. A test is slow if it takes more than about one second, as most do that
start commands, compile papers or open browsers: all that `SLOW` names, and tests under `@pytest.mark.slow`.
"""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

# JAX reads these when it is imported: here, with the type checks of the first room, and in every command
# that a test starts.
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
# The workers of pytest-xdist share the cores: one device each.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")
# Real data are used where they are, not fetched.
os.environ.setdefault("DESCENTLAB_OFFLINE", "1")

from descentlab.store import Store

HERE = Path(__file__).parent
SLOW = (
    "atlas", "papers", "running", "scaffold", "showing", "sweeping",
    "data/test_pathfinder.py", "engine/test_curvature.py", "engine/test_flow.py",
    "test_bench.py", "test_documents.py", "test_site.py",
)  # fmt: skip


def is_slow(path: Path) -> bool:
    """Whether all tests of a file or folder are slow."""
    return any(path.is_relative_to(HERE / place) for place in SLOW)


def pytest_configure() -> None:
    """Refuses a slow place that is not there: it was renamed."""
    if gone := [place for place in SLOW if not (HERE / place).exists()]:
        raise pytest.UsageError(f"tests/conftest.py: SLOW names {', '.join(gone)}, which are not there.")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves slow files alone, so that they are not imported, where slow tests are not wanted."""
    return True if config.option.markexpr == "not slow" and is_slow(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of slow files."""
    for item in items:
        if is_slow(item.path):
            item.add_marker("slow")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Keeps the many small programs of tests on disk, and no more in memory than a process may hold.

    Tests of rooms that need no JAX do not load it.
    """
    if "descentlab.engine" in sys.modules:
        import jax

        from descentlab.engine import _platform

        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        _platform.make_room()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The store of this test run, shared by its workers."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return Store(Path(shared) / "store")


History = Callable[[Store], dict[str, list[list[int]]]]
Agree = Callable[[Store, Store, Iterable[str]], None]


@pytest.fixture(scope="session")
def history() -> History:
    """Gives the seeds of each run of a store, in the portions in which they were computed."""

    def portions(store: Store) -> dict[str, list[list[int]]]:
        found = {run: store.manifest(run) for run in store.ids()}
        return {run: [part["seeds"] for part in one["history"]] for run, one in found.items() if one}

    return portions


@pytest.fixture(scope="session")
def agree() -> Agree:
    """Asserts that two stores hold the same numbers of some runs."""

    def compare(a: Store, b: Store, names: Iterable[str]) -> None:
        for name in names:
            one, other = a.read(name), b.read(name)
            assert one is not None
            assert other is not None
            assert set(one.variables) == set(other.variables)
            for variable in one.variables:
                np.testing.assert_allclose(one[variable], other[variable], rtol=1e-12, err_msg=str(variable))

    return compare
