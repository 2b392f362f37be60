"""Fleets: who performs tasks. `Here` is this process, `Processes` are workers on this machine.

A fleet yields results as they come, in any order, and calls `tick` about twice a second meanwhile. Workers
are plain `python -m descentlab.running._pool`, fed with pickles: they see nothing of the caller's main
module, keep compiled programs from task to task, and stop when the caller is gone. A worker that dies is
replaced and its task done again, from where its checkpoints left it; a task that kills three has failed.
"""

import contextlib
import os
import pickle
import selectors
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

from descentlab.engine import cores
from descentlab.errors import StoreError
from descentlab.running._plan import Result, Task
from descentlab.running._progress import Watcher
from descentlab.running._worker import perform
from descentlab.store import Store

TICK_SECONDS = 0.5
MOST_LOSSES = 3


@runtime_checkable
class Fleet(Protocol):
    """Whoever performs tasks."""

    def size(self) -> int:
        """How many tasks are performed at once."""
        ...

    def perform(
        self, tasks: Sequence[Task], store: Store, tick: Callable[[], None]
    ) -> Iterator[list[Result]]:
        """The results of tasks as they come."""
        ...


class Here:
    """This process: for one task, or where processes may not be started."""

    def size(self) -> int:
        """One."""
        return 1

    def perform(
        self, tasks: Sequence[Task], store: Store, tick: Callable[[], None]
    ) -> Iterator[list[Result]]:
        """One task after another."""
        for task in tasks:
            yield perform(task, store, _Ticking(tick))


class _Ticking(Watcher):
    """Calls `tick` about twice a second while work goes on."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self.tick, self.told = tick, 0.0

    def progress(self, step: int, loss: float) -> None:
        if time.monotonic() - self.told > TICK_SECONDS:
            self.tick()
            self.told = time.monotonic()


@dataclass
class Processes:
    """Workers on this machine, a core each unless there are fewer tasks than cores."""

    workers: int = field(default_factory=cores)

    def size(self) -> int:
        """So many workers."""
        return self.workers

    def perform(
        self, tasks: Sequence[Task], store: Store, tick: Callable[[], None]
    ) -> Iterator[list[Result]]:
        """Hands tasks to workers as they become free."""
        waiting, losses = deque(tasks), dict.fromkeys(tasks, 0)
        count = min(self.workers, len(tasks))
        team: list[_Worker] = []
        try:
            with selectors.DefaultSelector() as ready:
                while waiting or any(worker.task for worker in team):
                    while waiting and (worker := _free(team, count, ready)):
                        worker.give(waiting.popleft(), store)
                    for key, _ in ready.select(TICK_SECONDS):
                        worker: Any = key.data
                        task, answer = worker.take()
                        if answer is not None:
                            yield answer
                            continue
                        ready.unregister(key.fileobj)
                        team.remove(worker)
                        worker.close()
                        if task is None:
                            continue
                        losses[task] += 1
                        if losses[task] < MOST_LOSSES:
                            waiting.append(task)
                        else:
                            yield [Result(p, "failed", worker.obituary()) for p in task.presets]
                    tick()
        finally:
            for worker in team:
                worker.close()


def _free(team: "list[_Worker]", most: int, ready: selectors.BaseSelector) -> "_Worker | None":
    """A worker without a task, a new one if there may be more of them."""
    for worker in team:
        if worker.task is None:
            return worker
    if len(team) == most:
        return None
    worker = _Worker(max(1, cores() // most))
    ready.register(worker.answers, selectors.EVENT_READ, worker)
    team.append(worker)
    return worker


class _Worker:
    """A worker process as its caller sees it."""

    def __init__(self, devices: int) -> None:
        environment = {"JAX_NUM_CPU_DEVICES": str(devices)} | os.environ
        # A session of its own: Ctrl-C stops the caller, which then stops its workers. Files are written
        # whole or not at all, so they may be stopped at any moment.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "descentlab.running._pool"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.orders, self.answers = self.process.stdin, self.process.stdout
        self.task: Task | None = None

    def give(self, task: Task, store: Store) -> None:
        """Hands over a task."""
        self.task = task
        with contextlib.suppress(BrokenPipeError):  # it died just now: its answer will say so
            _send(self.orders, (task, store.path.resolve()))

    def take(self) -> tuple[Task | None, list[Result] | None]:
        """The task, if any, and its results; None if the worker has died. Errors of the store are raised."""
        task, self.task = self.task, None
        try:
            answer = pickle.load(self.answers)
        except (EOFError, pickle.UnpicklingError):
            self.process.wait()
            return task, None
        if isinstance(answer, Exception):
            raise answer
        return task, answer

    def close(self) -> None:
        """Ends the worker, whatever it does."""
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.orders.close()
        self.answers.close()

    def obituary(self) -> str:
        """How the worker ended."""
        code = self.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"its worker was lost {MOST_LOSSES} times, the last time by {how}; out of memory, perhaps"


def _send(pipe: IO[bytes], message: Any) -> None:
    pipe.write(pickle.dumps(message))
    pipe.flush()


def serve() -> None:
    """A worker: tasks from standard input, results to standard output, until the caller is gone."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not disturb the answers
    orders: deque[tuple[Task, Path]] = deque()
    arrived = threading.Semaphore(0)

    def listen() -> None:
        while True:
            try:
                orders.append(pickle.load(sys.stdin.buffer))
            except EOFError:
                os._exit(1)  # the store is consistent at any moment
            arrived.release()

    threading.Thread(target=listen, daemon=True).start()
    while True:
        arrived.acquire()
        task, path = orders.popleft()
        store = Store(path)
        try:
            answer: Any = perform(task, store)
        except StoreError as error:
            answer = error
        _send(answers, answer)


if __name__ == "__main__":
    serve()
