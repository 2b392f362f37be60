"""Clusters: a pool of the workers of a dask scheduler, which runs already or is started through Slurm or PBS.

Workers need the caller's version of descentlab. Workers that see the store, on a shared file system, write to
it, checkpoints included. Others send what they computed, and the caller writes it. The jobs of a lost worker
are done by others. A job that takes down more workers than the scheduler allows
(`distributed.scheduler.allowed-failures`, three) has failed.
"""

from __future__ import annotations

import contextlib
import shutil
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import xarray as xr

from descentlab.engine import Settings
from descentlab.errors import SettingError, UserError
from descentlab.papers import load
from descentlab.running._plan import Job, Result, identify, names_of
from descentlab.running._pool import TICK_SECONDS, Results
from descentlab.running._progress import Progress
from descentlab.running._worker import absorb, compute, perform
from descentlab.store import WORK, Store, writing

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 20
QUEUES = {"slurm": ("SLURMCluster", "sbatch"), "pbs": ("PBSCluster", "qsub")}
# What a sweep asks of each batch job unless a file says otherwise; a core or two suit these models.
BATCH_JOB = {"cores": 1, "processes": 1, "memory": "4GB", "jobs": 4}


class ClusterError(UserError, RuntimeError):
    """A cluster that cannot be reached or used."""


@contextlib.contextmanager
def connect(where: str) -> Iterator[Cluster]:
    """A cluster by the address of its scheduler, or one of batch jobs: slurm, pbs, slurm:FILE, pbs:FILE.

    FILE is TOML: `jobs`, and what dask-jobqueue takes (cores, memory, queue, walltime, ...).
    """
    try:
        from distributed import Client
    except ImportError:
        raise ClusterError("--cluster needs dask: install descentlab[cluster].") from None
    kind, _, file = where.partition(":")
    if kind not in QUEUES and "://" not in where:
        raise SettingError(
            "cluster takes a scheduler's address such as tcp://host:8786, or slurm, pbs, slurm:FILE, "
            f"pbs:FILE, got cluster={where}."
        )
    place = _queue(kind, file) if kind in QUEUES else contextlib.nullcontext((where, 0))
    with place as (scheduler, expected):
        try:
            client = Client(scheduler, timeout=CONNECT_SECONDS)
        except (OSError, TimeoutError, ValueError) as error:
            raise ClusterError(f"no dask scheduler answers at {where} ({error}).") from None
        with client:
            yield Cluster(client, expected)


@contextlib.contextmanager
def _queue(kind: str, file: str) -> Iterator[tuple[Any, int]]:
    """A scheduler here, whose workers are batch jobs, and how many threads they will have."""
    try:
        import dask_jobqueue
    except ImportError:
        raise ClusterError(f"--cluster {kind} needs dask-jobqueue: install descentlab[cluster].") from None
    own: dict[str, Any] = {}
    if file:
        try:
            own = tomllib.loads(Path(file).read_text())
        except (OSError, ValueError) as error:
            raise SettingError(f"cluster takes a TOML file after {kind}:, got {file} ({error}).") from None
    settings = BATCH_JOB | own
    jobs = settings.pop("jobs")
    if not isinstance(jobs, int) or jobs < 1:
        raise SettingError(f"jobs takes a whole number >= 1, got jobs={jobs} in {file}.")
    name, command = QUEUES[kind]
    if shutil.which(command) is None:
        raise ClusterError(f"there is no {kind} on this machine: its command {command} is not found.")
    with contextlib.ExitStack() as open_:
        try:
            queue = open_.enter_context(getattr(dask_jobqueue, name)(**settings))
            queue.scale(jobs=jobs)
        except (TypeError, ValueError, RuntimeError, OSError) as error:
            raise ClusterError(f"{kind} did not take the jobs: {error}") from error
        yield queue, jobs * int(settings["cores"])


@dataclass
class Cluster:
    """The workers of a dask scheduler. `expected` counts the threads that batch jobs will bring."""

    client: Client
    expected: int = 0
    local: ClassVar[bool] = False

    def size(self) -> int:
        """The number of threads of all workers that are there or expected; each computes a job at a time."""
        threads: Any = self.client.nthreads()
        return max(1, self.expected, sum(threads.values()))

    def perform(self, jobs: Sequence[Job], store: Store, progress: Progress) -> Results:
        """Submits all jobs; the results of a job come when it is over."""
        from distributed import TimeoutError as Waited
        from distributed import wait

        token = store.path / WORK / f"{uuid.uuid4().hex}.token"
        with writing(token):
            token.parent.mkdir(parents=True, exist_ok=True)
            token.touch()
        place = str(store.path.resolve())
        futures = {
            self.client.submit(_perform, job, names_of(job), place, token.name, pure=False): job
            for job in jobs
        }
        try:
            while futures:
                progress.tick()
                with contextlib.suppress(Waited):
                    wait(list(futures), timeout=TICK_SECONDS, return_when="FIRST_COMPLETED")
                for future in [future for future in futures if future.done()]:
                    yield from _settle(future, futures.pop(future), store)
        finally:
            self.client.cancel(list(futures))
            token.unlink(missing_ok=True)


def _settle(future: Any, job: Job, store: Store) -> list[Result]:
    """The results of a job that is over; what a worker sent back is written to the store."""
    from distributed import KilledWorker

    try:
        answer = future.result()
    except KilledWorker:
        lost = "its worker was lost more often than the scheduler allows; out of memory, perhaps"
        return [Result(preset, "failed", lost) for preset in job.presets]
    except UserError:
        raise
    except Exception as error:
        raise ClusterError(f"a worker could not take its job: {type(error).__name__}: {error}") from error
    paper, results = load(job.paper), []
    for result, sent in answer:
        if sent is not None:
            name, (data, seconds) = identify(paper, result.preset), sent
            with store.lock(name):
                if store.seeds(name) == job.first:
                    absorb(paper, result.preset, data, seconds, store)
                if store.seeds(name) < job.seeds:  # another process has stored some of the seeds meanwhile
                    result = replace(result, outcome="busy")
        results.append(result)
    return results


Sent = tuple[xr.Dataset, float] | None


def _perform(job: Job, names: list[str], path: str, token: str) -> list[tuple[Result, Sent]]:
    """Computes a job on a worker, which sees the store if it sees the token there."""
    import descentlab

    if names_of(job) != names:
        raise ClusterError(
            f"a worker has other code of {job.paper} than the caller (its descentlab is "
            f"{descentlab.__version__}): install the same version everywhere."
        )
    store = Store(path)
    if (store.path / WORK / token).exists():
        return [(result, None) for result in perform(job, store)]
    return _send_back(job, job.presets)


def _send_back(job: Job, presets: Sequence[Settings]) -> list[tuple[Result, Sent]]:
    """Results with their data, for a store that is not seen: computed together or, if that raises, singly."""
    if len(presets) > 1 and not job.room:  # they may be recorded at different steps
        return [one for preset in presets for one in _send_back(job, [preset])]
    try:
        found, seconds = compute(load(job.paper), presets, range(job.first, job.seeds), room=job.room)
    except Exception as error:
        if len(presets) > 1:
            return [one for preset in presets for one in _send_back(job, [preset])]
        return [(Result(presets[0], "failed", f"{type(error).__name__}: {error}"), None)]
    return [
        (Result(preset, "done"), (data, seconds / len(presets)))
        for preset, data in zip(presets, found, strict=True)
    ]
