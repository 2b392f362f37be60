"""One store and one compilation cache for the whole test run; JAX under strict promotion."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

# The workers of pytest-xdist share the cores: one device each.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")
# Real data are used where they are, not fetched.
os.environ.setdefault("DESCENTLAB_OFFLINE", "1")

import jax

from descentlab.engine import _platform as numerics
from descentlab.store import Store

numerics.configure()
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Tests compile many small programs: keep them all, for all workers and the commands they start.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture(autouse=True)
def room_for_programs():
    """A worker compiles thousands of programs, more than a process may hold."""
    numerics.make_room()


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
