"""The floating-point ground that every number of the laboratory stands on.

Some releases of JAX compute wrong numbers on CPU. Those are refused when the engine is imported.
"""

import contextlib
import hashlib
import os
import platform
import re
import threading
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from descentlab import places

if TYPE_CHECKING:  # the command line starts without NumPy and JAX
    import numpy as np
    from threadpoolctl import ThreadpoolController

WRONG_JAX = ("0.9.", "0.10.")


def refuse_wrong_jax(installed: str | None = None) -> None:
    """Raises ImportError where the installed JAX is known to compute wrong numbers on CPU.

    >>> refuse_wrong_jax("0.12.0.1")
    >>> refuse_wrong_jax("0.10.2")
    Traceback (most recent call last):
    ImportError: jax 0.10.2 computes wrong numbers on CPU (jax-ml/jax issue 39103: ...
    """
    installed = installed or version("jax")
    if installed.startswith(WRONG_JAX):
        raise ImportError(
            f"jax {installed} computes wrong numbers on CPU (jax-ml/jax issue 39103: reductions of small "
            "matrix products over many rows). Install jax >= 0.12 (Python 3.12 or newer) or jax 0.8.x "
            "(Python 3.11)."
        )


def float_dtype(precision: int) -> "np.dtype":
    """The floating-point type of a preset's `precision`, 32 or 64."""
    import numpy as np

    return np.dtype({32: np.float32, 64: np.float64}[precision])


def cores() -> int:
    """The number of processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cache_dir() -> Path:
    """The folder for compiled programs, keyed by processor and JAX: machine code does not travel."""
    try:
        flags = re.search(r"^(?:flags|Features)\s*:.*$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        flags = None
    processor = f"{platform.machine()} {platform.processor()} {flags.group() if flags else ''}"
    key = hashlib.sha256(f"{processor} {version('jax')} {version('jaxlib')}".encode()).hexdigest()[:12]
    return places.cache() / f"xla-{key}"


def configure() -> None:
    """Sets JAX up: 64-bit available, one device a core, compiled programs kept on disk.

    What the environment already says (JAX_ENABLE_X64, JAX_NUM_CPU_DEVICES,
    JAX_COMPILATION_CACHE_DIR) wins. Called once, by the modules that use JAX.
    """
    import jax

    if "JAX_ENABLE_X64" not in os.environ:
        jax.config.update("jax_enable_x64", True)
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_dir()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    if "JAX_NUM_CPU_DEVICES" not in os.environ and "xla_force_host_platform" not in os.environ.get(
        "XLA_FLAGS", ""
    ):
        # Where the caller's own JAX code ran first, its devices stand.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", cores())


class OneThread(contextlib.ContextDecorator):
    """Has the linear algebra library use one thread a call, in this process, while anyone is inside.

    Rows are spread over the cores already, and threads that wait for each other on cores in use make a small
    decomposition ten to a hundred times slower.
    """

    _lock, _inside, _limit = threading.Lock(), 0, None

    def __enter__(self) -> None:
        with self._lock:
            if OneThread._inside == 0:
                OneThread._limit = _linear_algebra().limit(limits=1, user_api="blas")
            OneThread._inside += 1

    def __exit__(self, *error: object) -> None:
        from threadpoolctl import OpenBLASController

        with self._lock:
            OneThread._inside -= 1
            if OneThread._inside == 0 and OneThread._limit is not None:
                # Whoever leaves last gives back, though another thread may have entered first.
                if hasattr(OpenBLASController, "clear_controlling_thread"):
                    OpenBLASController.clear_controlling_thread(force=True)
                OneThread._limit.restore_original_limits()


@cache
def _linear_algebra() -> "ThreadpoolController":
    import scipy.linalg.lapack  # noqa: F401, what JAX calls; the controller knows what is loaded
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most `most`, or 1.

    >>> largest_divisor(1024, 163), largest_divisor(7, 5)
    (128, 1)
    """
    return max((n for n in range(1, min(number, most) + 1) if number % n == 0), default=1)


def make_room(most: int | None = None) -> bool:
    """Forgets compiled programs before there are more than the system can map; whether it did.

    Every program takes a few memory maps of a process, of which Linux allows 65,530 (vm.max_map_count)
    unless told otherwise; one more, and the compiler crashes. Forgotten programs are compiled again on use,
    or loaded from disk.
    """
    import jax

    try:
        held = Path("/proc/self/maps").read_bytes().count(b"\n")
        allowed = int(Path("/proc/sys/vm/max_map_count").read_text())
    except OSError:  # not Linux
        return False
    if held <= (allowed // 2 if most is None else most):
        return False
    jax.clear_caches()
    return True
