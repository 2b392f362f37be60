"""Real data, and what is made like them: what there is, where it lies, how to get it (docs/data.md)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from descentlab.data import files, imdb, mnist
from descentlab.errors import DataError, SettingError

Status = Literal["found", "missing", "damaged", "packaged", "generated"]


@dataclass(frozen=True)
class Dataset:
    """A data set: what it is, on which terms, how large a download, and where its parts lie."""

    name: str
    about: str
    terms: str
    download: int | None = None
    find: Callable[[bool], dict[str, Path | None]] | None = None


@dataclass(frozen=True)
class Finding:
    """What is known of a data set on this machine."""

    dataset: Dataset
    status: Status
    paths: tuple[Path, ...] = ()
    missing: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def size(self) -> int | None:
        """The bytes on disk; None where there are none."""
        files = [file for path in self.paths for file in (path, *path.rglob("*")) if file.is_file()]
        return sum(file.stat().st_size for file in files) if self.paths else None

    @property
    def places(self) -> str:
        """The folders that hold the data set."""
        found = (str(path if path.is_dir() else path.parent) for path in self.paths)
        return ", ".join(dict.fromkeys(found))

    def in_words(self) -> str:
        """Whether and where there is the data set, and how large it is; if not, how to get it."""
        name, size = self.dataset.name, f"{(self.size or 0) / 1e6:.1f} MB"
        parts = f": {', '.join(self.missing)}" if self.paths else ""
        download = f"{(self.dataset.download or 0) / 1e6:.1f} MB"
        return {
            "missing": f"missing{parts}; `descentlab data {name}` gets it ({download})",
            "found": f"found in {self.places}, {size}",
            "packaged": f"in the package, {self.places}, {size}",
            "generated": f"generated when it is used, by descentlab.data.{name}",
            "damaged": f"DAMAGED: {self.problem}",
        }[self.status]

    def as_json(self) -> dict[str, Any]:
        """The finding as `descentlab data --json` prints it."""
        return {
            "name": self.dataset.name, "about": self.dataset.about, "status": self.status,
            "paths": [str(path) for path in self.paths], "bytes": self.size,
            "missing": list(self.missing), "problem": self.problem,
            "download": self.dataset.download, "terms": self.dataset.terms,
        }  # fmt: skip


def _packaged(fetch: bool) -> dict[str, Path | None]:
    """The subset in the package, verified."""
    files.verified(mnist.small_path(), mnist.SMALL, mnist.REINSTALL)
    return {mnist.SMALL.path: mnist.small_path()}


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("mnist", mnist.ABOUT, mnist.TERMS, mnist.DOWNLOAD, mnist.find),
        Dataset("mnist_small", mnist.ABOUT_SMALL, mnist.TERMS, None, _packaged),
        Dataset("imdb", imdb.ABOUT, imdb.TERMS, imdb.ARCHIVE.size, imdb.find),
        Dataset(
            "pathfinder",
            "Pathfinder 32 x 32: does a dashed curve join two points? (Linsley et al. 2018; Tay et al. 2021)",
            "made by this project's own generator",
        ),
    )
}


def look(name: str, fetch: bool = False) -> Finding:
    """What is known of a data set; with `fetch`, what is missing is fetched and errors are raised."""
    if name not in DATASETS:
        raise SettingError(f"there is no data set {name}; there are {', '.join(DATASETS)}.")
    dataset = DATASETS[name]
    if dataset.find is None:
        return Finding(dataset, "generated")
    try:
        places = dataset.find(fetch)
    except DataError as error:
        if fetch:
            raise
        return Finding(dataset, "damaged", problem=str(error))
    paths = tuple(dict.fromkeys(place for place in places.values() if place is not None))
    missing = tuple(part for part, place in places.items() if place is None)
    if missing:
        return Finding(dataset, "missing", paths, missing)
    return Finding(dataset, "found" if dataset.download else "packaged", paths)
