"""The two sides of a workload as processes of their own, each on one core and one thread."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TORCH = HERE.parent / ".venv-torch" / "bin" / "python"
TORCH_VERSION = "2.13.0"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
# Nothing that was compiled before is used, so compile times are cold.
LAB = ONE_THREAD | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
REFERENCE = ONE_THREAD | {"PYTHONPATH": "", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


class SetupError(Exception):
    """A benchmark cannot run here; the message says what to do."""


class SideError(Exception):
    """A side ended instead of answering."""


def cores() -> list[int]:
    """The cores this process may use, where the system tells."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def pin(process: int, core: int | None) -> None:
    """Keeps all threads of a process on one core, where the system can."""
    if core is None or not hasattr(os, "sched_setaffinity"):
        return
    threads = Path(f"/proc/{process}/task")
    for thread in [int(entry.name) for entry in threads.iterdir()] if threads.exists() else [process]:
        with contextlib.suppress(OSError):  # it may have ended
            os.sched_setaffinity(thread, {core})


@dataclass
class Process:
    """A side that waits for commands."""

    label: str
    process: subprocess.Popen[str]

    def ask(self, do: str, **options: Any) -> dict[str, Any]:
        """The answer to a command."""
        self.send(do, **options)
        return self.answer()

    def send(self, do: str, **options: Any) -> None:
        """Sends a command without waiting for its answer."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the answer tells
            print(json.dumps({"do": do, **options}), file=self.process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        """The answer to a command that was sent."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SideError(f"{self.label} ended with exit code {self.process.wait()}.")
        return json.loads(line)


@contextlib.contextmanager
def started(
    label: str, command: list[str], environment: dict[str, str], core: int | None, errors: Path
) -> Iterator[Process]:
    """A process on one core from its first moment; what it writes to standard error goes to a file."""
    own = os.environ | environment
    with errors.open("w") as stream, contextlib.ExitStack() as after:
        before = cores()
        if core is not None:
            # A child inherits the cores of its parent, and JAX counts them as it starts.
            os.sched_setaffinity(0, {core})
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream, text=True, env=own
            )
        finally:
            if core is not None:
                os.sched_setaffinity(0, before)
        after.callback(_end, process)
        yield Process(label, process)


def _end(process: subprocess.Popen[str]) -> None:
    if process.stdin:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def lab(workload: str, folder: Path, seeds: int, core: int | None):
    """The laboratory's side."""
    command = [sys.executable, str(HERE / "lab" / "side.py"), workload, str(folder), "--seeds", str(seeds)]
    return started(f"the lab, {seeds} seeds", command, LAB, core, folder / f"lab_{seeds}.log")


def reference(workload: str, folder: Path, variant: str, core: int | None, torch: Path):
    """PyTorch's side."""
    script = str(HERE / "reference" / "side.py")
    command = [str(torch), script, workload, str(folder), "--variant", variant]
    own = REFERENCE | {"TORCHINDUCTOR_CACHE_DIR": str(folder / f"inductor_{variant}")}
    return started(f"torch {variant}", command, own, core, folder / f"torch_{variant}.log")


def require_torch(torch: Path) -> None:
    """Raises where there is no PyTorch of the version that is compared to."""
    get = "python benchmarks/torch_environment.py gets it"
    if not torch.exists():
        raise SetupError(f"there is no PyTorch interpreter at {torch}; {get}.")
    asked = [str(torch), "-c", "import importlib.metadata as m; print(m.version('torch'))"]
    found = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    if found.split("+")[0] != TORCH_VERSION:
        raise SetupError(f"{torch} has torch {found or '(none)'}, not {TORCH_VERSION}; {get}.")
