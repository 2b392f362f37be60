"""Pools: who computes jobs. `Here` is this process, `Processes` are workers on this machine.

A worker process is fed with pickles: it sees nothing of the caller's main module, keeps compiled programs
from job to job, and stops when the caller is gone. A worker that dies is replaced, and what its job lacks is
done again from the last checkpoints. A job that kills three workers has failed.
"""

import contextlib
import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Pipe, wait
from typing import ClassVar, Protocol, runtime_checkable

from descentlab.engine import cores
from descentlab.running._plan import Job, Result
from descentlab.running._progress import Progress
from descentlab.running._worker import perform
from descentlab.store import Store

TICK_SECONDS = 0.5
MOST_LOSSES = 3
FEWEST_JOBS = 4  # for which it pays to start workers

Results = Generator[Result, None, None]


@runtime_checkable
class Pool(Protocol):
    """Who computes jobs. `local` says whether it computes on this machine."""

    local: ClassVar[bool]

    def size(self) -> int:
        """How many jobs are computed at once."""
        ...

    def perform(self, jobs: Sequence[Job], store: Store, progress: Progress) -> Results:
        """Yields the result of each cell as it comes, in any order."""
        ...


@dataclass(frozen=True)
class Here:
    """This process. With `catch=False` the error of a cell is raised instead of recorded."""

    catch: bool = True
    local: ClassVar[bool] = True

    def size(self) -> int:
        """One."""
        return 1

    def perform(self, jobs: Sequence[Job], store: Store, progress: Progress) -> Results:
        """Computes one job after another."""
        for job in jobs:
            yield from perform(job, store, progress, catch=self.catch)


@dataclass(frozen=True)
class Processes:
    """Worker processes on this machine; this process computes where there are fewer than `fewest` jobs.

    Each of `workers` processes has one core, or more if there are fewer jobs than cores.
    """

    workers: int = field(default_factory=cores)
    fewest: int = FEWEST_JOBS
    local: ClassVar[bool] = True

    def size(self) -> int:
        """The number of workers."""
        return self.workers

    def perform(self, jobs: Sequence[Job], store: Store, progress: Progress) -> Results:
        """Hands jobs to workers as they become free."""
        if len(jobs) < self.fewest:
            yield from Here().perform(jobs, store, progress)
            return
        waiting, team = deque(_Work(job) for job in jobs), list[_Worker]()
        count = min(self.workers, len(jobs))
        try:
            while waiting or any(worker.work for worker in team):
                idle = [worker for worker in team if worker.work is None]
                while waiting and (idle or len(team) < count):
                    if not idle:
                        team.append(_Worker(devices=max(1, cores() // count)))
                        idle.append(team[-1])
                    idle.pop().give(waiting.popleft(), store)
                ready = wait([worker.connection for worker in team], TICK_SECONDS)
                for worker in [worker for worker in team if worker.connection in ready]:
                    work = worker.work
                    try:
                        if (result := worker.take()) is not None:
                            yield result
                    except EOFError:
                        team.remove(worker)
                        worker.close()
                        if work is None or not work.job.presets:
                            continue
                        work.losses += 1
                        if work.losses < MOST_LOSSES:
                            waiting.append(work)
                        else:
                            yield from (Result(p, "failed", worker.last_words()) for p in work.job.presets)
                progress.tick()
        finally:
            for worker in team:
                worker.close()


@dataclass
class _Work:
    """What is left of a job, and how many workers died of it."""

    job: Job
    losses: int = 0


class _Worker:
    """A worker process as its caller sees it."""

    def __init__(self, devices: int) -> None:
        self.connection, theirs = Pipe()
        # Not `python -m`: the package imports the module before it would be run as the main one.
        words = f"from descentlab.running._worker import serve; serve({theirs.fileno()})"
        # In a new session Ctrl-C stops the caller alone, which then stops its workers. Files are written
        # whole or not at all, so workers may be stopped at any moment.
        self.process = subprocess.Popen(
            [sys.executable, "-c", words],
            stdin=subprocess.DEVNULL, env={"JAX_NUM_CPU_DEVICES": str(devices)} | os.environ,
            pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self.work: _Work | None = None

    def give(self, work: _Work, store: Store) -> None:
        """Hands over a job. If the worker has just died, `take` says so."""
        self.work = work
        with contextlib.suppress(OSError):
            self.connection.send((work.job, store.path.resolve()))

    def take(self) -> Result | None:
        """The next result, or None at the end of the job; EOFError if the worker died.

        Errors of the store are raised.
        """
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            self.process.wait()
            raise EOFError from None
        if isinstance(answer, Exception):
            raise answer
        if answer is None or self.work is None:
            self.work = None
            return None
        job = self.work.job
        self.work.job = replace(job, presets=tuple(p for p in job.presets if p != answer.preset))
        return answer

    def close(self) -> None:
        """Ends the worker, whatever it does."""
        self.process.kill()
        self.process.wait()
        self.connection.close()

    def last_words(self) -> str:
        """How the worker ended."""
        code = self.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"its worker was lost {MOST_LOSSES} times, the last time by {how}; out of memory, perhaps"
