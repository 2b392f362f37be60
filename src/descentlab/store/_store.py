"""The store: runs on disk, named by a hash of what they are.

    store/<paper>-<hash>/run.json            what the run is, how it was made, the data's checksum
                         seeds-<n>.nc        the trajectory, netCDF
                         checkpoint-a-b.npz  seeds a to b - 1, if they were cut short
                         failed.json         the error of a run that raised
    store/sweeps/<paper>-<hash>/             what sweeps gather from runs
    store/.work/                             progress of what is being computed

A file is written under another name and renamed in one step, the data before the manifest that
names it. So a run is there whole or not at all, whenever a process dies. A lock per run lets two
processes share a store: the second one waits and finds the result.
"""

import contextlib
import hashlib
import io
import json
import re
import sys
import zipfile
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from filelock import FileLock, Timeout

from descentlab import places
from descentlab.errors import StoreError as StoreError
from descentlab.store._files import write_entry, writing
from descentlab.store._netcdf import decode, encode
from descentlab.store._provenance import provenance

FORMAT = 3  # of an entry; part of every run's id
RUN_NAME = re.compile(r"\w+-[0-9a-f]{16}")
SWEEPS, WORK, LOCK = "sweeps", ".work", ".lock"


def run_id(paper: str, code: str, settings: Mapping[str, Any]) -> str:
    """The name of a run: a hash of the paper, the code that computes it, and its settings.

    >>> a = run_id("p", "v1", {"n": 1, "eta": 0.1})
    >>> a == run_id("p", "v1", {"eta": 0.1, "n": 1}), a == run_id("p", "v2", {"eta": 0.1, "n": 1})
    (True, False)
    """
    what = json.dumps([FORMAT, paper, code, settings], sort_keys=True)
    return f"{paper}-{hashlib.sha256(what.encode()).hexdigest()[:16]}"


class Busy(Exception):  # noqa: N818, nothing is wrong
    """Another process holds a run."""


class Store:
    """Runs in a folder."""

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = Path(path) if path is not None else places.store()

    def folder(self, run: str) -> Path:
        """Where a run is kept."""
        return self.path / run

    def ids(self) -> list[str]:
        """The runs in the store, whole or cut short."""
        return [name for name in self._folders() if RUN_NAME.fullmatch(name)]

    def _folders(self) -> list[str]:
        return sorted(p.name for p in self.path.iterdir() if p.is_dir()) if self.path.is_dir() else []

    @contextlib.contextmanager
    def lock(
        self, run: str, waiting: Callable[[], None] = lambda: None, wait: bool = True
    ) -> Generator[None, None, None]:
        """Locks a run. If it is held elsewhere, calls `waiting` and waits; without `wait`, raises Busy."""
        with writing(self.folder(run)):
            self.folder(run).mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder(run) / LOCK)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                if not wait:
                    raise Busy(run) from None
                waiting()
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def free(self, run: str) -> bool:
        """Whether no process holds the lock of a run."""
        if not (self.folder(run) / LOCK).exists():
            return True
        try:
            with self.lock(run, wait=False):
                return True
        except Busy:
            return False

    def manifest(self, run: str) -> dict[str, Any] | None:
        """The manifest of a run; None where there is no whole run."""
        path = self.folder(run) / "run.json"
        try:
            manifest = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise StoreError(f"{path} is damaged ({error}). {_remedy(path.parent)}") from None
        try:
            own = run_id(manifest["paper"], manifest["code"], manifest["settings"]) == run == manifest["run"]
            whole = own and {"file", "sha256", "seeds"} <= set(manifest)
        except (KeyError, TypeError):
            whole = False
        if not whole:
            raise StoreError(f"{path} is foreign: it does not describe run {run}. {_remedy(path.parent)}")
        return manifest

    def read(self, run: str) -> xr.Dataset | None:
        """The trajectory of a run, its checksum verified; None where there is none."""
        manifest = self.manifest(run)
        if manifest is None:
            return None
        path = self.folder(run) / manifest["file"]
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            if self.manifest(run) != manifest:  # another process has extended the run meanwhile
                return self.read(run)
            raise StoreError(f"{path} is missing. {_remedy(path.parent)}") from None
        if hashlib.sha256(content).hexdigest() != manifest["sha256"]:
            raise StoreError(f"{path} is damaged: its checksum is wrong. {_remedy(path.parent)}")
        return decode(content)

    def seeds(self, run: str) -> int:
        """How many seeds of a run the store holds whole."""
        return (self.manifest(run) or {"seeds": 0})["seeds"]

    def data_path(self, run: str) -> Path:
        """The file that holds a whole run's trajectory."""
        manifest = self.manifest(run)
        if manifest is None:
            raise StoreError(f"{self.folder(run)} holds no whole run.")
        return self.folder(run) / manifest["file"]

    def write(self, run: str, data: xr.Dataset, about: Mapping[str, Any]) -> None:
        """Stores a trajectory and its manifest, which has `about`; it replaces one with other seeds."""
        folder = self.folder(run)
        earlier = self.manifest(run)
        name = f"seeds-{data.sizes['seed']}.nc"
        content = encode(data.assign_attrs(run=run, about=json.dumps(about)))
        write_entry(folder / name, content)
        manifest = {
            "run": run, "file": name, "sha256": hashlib.sha256(content).hexdigest(),
            "seeds": data.sizes["seed"], **about, **provenance(),
        }  # fmt: skip
        write_entry(folder / "run.json", json.dumps(manifest, indent=1).encode())
        if earlier is not None and earlier["file"] != name:
            (folder / earlier["file"]).unlink(missing_ok=True)
        self.forgive(run)

    def fail(self, run: str, about: Mapping[str, Any]) -> None:
        """Records why a run failed."""
        with writing(self.folder(run)):
            self.folder(run).mkdir(parents=True, exist_ok=True)
        write_entry(
            self.folder(run) / "failed.json", json.dumps({**about, **provenance()}, indent=1).encode()
        )

    def forgive(self, run: str) -> None:
        """Removes the record that a run failed."""
        with writing(self.folder(run)):
            (self.folder(run) / "failed.json").unlink(missing_ok=True)

    def failure(self, run: str) -> str | None:
        """The error of a run that failed; None if it did not fail or was computed since."""
        try:
            return str(json.loads((self.folder(run) / "failed.json").read_bytes())["error"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{self.folder(run)}/failed.json is damaged ({error}); remove it.") from None

    def keep(self, run: str, seeds: range, arrays: Mapping[str, np.ndarray]) -> None:
        """Stores a checkpoint of some seeds of a run."""
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        write_entry(self._checkpoint(run, seeds), buffer.getvalue())

    def kept(
        self, run: str, first: int, most: int, *, mend: bool = True
    ) -> tuple[range, dict[str, np.ndarray]] | None:
        """The checkpoint with the most seeds that begins at seed `first` and ends before seed `most`, if any.

        A damaged one is removed; without `mend` it is left for the process that computes the run.
        """
        found = [seeds for seeds in self._kept(run) if seeds.start == first and seeds.stop <= most]
        for seeds in sorted(found, key=len, reverse=True):
            path = self._checkpoint(run, seeds)
            try:
                with np.load(io.BytesIO(path.read_bytes())) as arrays:
                    return seeds, dict(arrays)
            except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
                if mend:
                    print(f"{path} is damaged ({error}); these seeds start over.", file=sys.stderr)
                    path.unlink()
        return None

    def drop(self, run: str, below: int) -> None:
        """Removes the checkpoints whose first seed is below a number: these seeds are stored."""
        for seeds in self._kept(run):
            if seeds.start < below:
                self._checkpoint(run, seeds).unlink(missing_ok=True)

    def _kept(self, run: str) -> list[range]:
        """The ranges of seeds of a run's checkpoints."""
        names = [path.stem for path in self.folder(run).glob("checkpoint-*.npz")]
        matches = [re.fullmatch(r"checkpoint-(\d+)-(\d+)", name) for name in names]
        return [range(int(match[1]), int(match[2])) for match in matches if match]

    def _checkpoint(self, run: str, seeds: range) -> Path:
        return self.folder(run) / f"checkpoint-{seeds.start}-{seeds.stop}.npz"

    def problems(self) -> list[str]:
        """What is wrong with the store's entries, a line each; empty if it is healthy."""
        found = [
            f"{self.path / name} is no run of this store."
            for name in self._folders()
            if name not in (*self.ids(), SWEEPS, WORK)
        ]
        for run in self.ids():
            try:
                self.read(run)
            except StoreError as error:
                found.append(str(error))
        return found


def _remedy(folder: Path) -> str:
    return f"Move {folder} away and run again to compute it anew."
