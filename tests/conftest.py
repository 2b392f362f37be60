"""One store and one compilation cache for the whole test run; JAX under strict promotion."""

import os
from pathlib import Path

import pytest

# The workers of pytest-xdist share the cores: one device each.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")
# Real data are used where they are, not fetched.
os.environ.setdefault("DESCENTLAB_OFFLINE", "1")

import jax

from descentlab import numerics
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
