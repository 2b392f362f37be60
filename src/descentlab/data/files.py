"""Files of real data: found on this machine, or fetched once and kept; none is parsed unverified.

A file is looked for in the folder that DESCENTLAB_DATA names, then in the cache; both are laid out alike
(mnist/train-images-idx3-ubyte.gz). What neither holds is fetched into the cache, held in memory until its
checksum is right and then written in one step, so that a file is there whole or not at all.
"""

import hashlib
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from descentlab import places
from descentlab.errors import DataError
from descentlab.store import write_whole

COMPUTES_NOTHING = True  # how a file is found does not change what is in it (papers/_code.py)
TIMEOUT = 10.0  # seconds, for a connection and for each block
BLOCK = 1 << 16


@dataclass(frozen=True)
class File:
    """A file of a data set: its place below a folder of data, its size, its checksum, where to get it.

    `hint` says what else one should know who fetches it by hand.
    """

    path: str
    size: int
    checksum: str  # such as md5:9fb629c4...
    addresses: tuple[str, ...] = ()
    hint: str = ""

    @property
    def dataset(self) -> str:
        """The data set that the file belongs to, the first part of its path."""
        return self.path.partition("/")[0]


def cache_folder() -> Path:
    """The folder for what is fetched."""
    return places.cache() / "data"


def named_folder() -> Path | None:
    """The folder that DESCENTLAB_DATA names, if it is set."""
    named = os.environ.get("DESCENTLAB_DATA")
    return Path(named).expanduser() if named else None


def folders() -> tuple[Path, ...]:
    """Where data are looked for, in order."""
    named = named_folder()
    return (cache_folder(),) if named is None else (named, cache_folder())


def looked_in() -> str:
    """The folders in words."""
    named = named_folder()
    if named is None:
        first = "DESCENTLAB_DATA (not set)"
    else:
        first = f"{named} (DESCENTLAB_DATA{'' if named.is_dir() else '; there is no such folder'})"
    return f"{first} and {cache_folder()} (the cache)"


def find(file: File) -> Path | None:
    """Where a file lies on this machine; None where it does not."""
    return next((place for folder in folders() if (place := folder / file.path).is_file()), None)


def content(file: File) -> bytes:
    """The content of a file, found or fetched, its checksum verified."""
    return verified(find(file) or download(file), file)


def verified(place: Path, file: File, remedy: str | None = None) -> bytes:
    """The content of the file at a place; DataError where its checksum is wrong."""
    found = place.read_bytes()
    if wrong := fault(found, file):
        remedy = remedy or f"Remove it; `descentlab data {file.dataset}` gets it again."
        raise DataError(f"{place} is damaged: {wrong}. {remedy}")
    return found


def fault(content: bytes, file: File) -> str | None:
    """How a content differs from what a file's checksum promises; None where it does not.

    >>> fault(b"abc", File("set/name", 4, "md5:e2fc714c4727ee9395f324cd2e7f331f"))
    'md5 900150983cd24fb0d6963f7d28e17f72 instead of e2fc714c4727ee9395f324cd2e7f331f, 3 bytes instead of 4'
    >>> fault(b"abcd", File("set/name", 4, "md5:e2fc714c4727ee9395f324cd2e7f331f"))
    """
    kind, _, expected = file.checksum.partition(":")
    found = hashlib.new(kind, content, usedforsecurity=False).hexdigest()
    if found == expected:
        return None
    wrong = f"{kind} {found} instead of {expected}"
    return wrong if len(content) == file.size else f"{wrong}, {len(content)} bytes instead of {file.size}"


def offline() -> bool:
    """Whether nothing is to be fetched: DESCENTLAB_OFFLINE is set."""
    return bool(os.environ.get("DESCENTLAB_OFFLINE"))


def download(file: File) -> Path:
    """Fetches a file into the cache from the first address that has it whole; returns its place."""
    failures = []
    for address in () if offline() else file.addresses:
        try:
            fetched = _fetch(address, file)
        except (OSError, HTTPException) as error:
            failures.append(f"{address}: {_reason(error)}")
            continue
        if wrong := fault(fetched, file):
            failures.append(f"{address}: {wrong}")
            continue
        place = cache_folder() / file.path
        _write(place, fetched)
        return place
    raise DataError(_missing(file, failures))


def _fetch(address: str, file: File) -> bytes:
    """What an address answers, up to a little more than the file's size.

    A bar on standard error shows how much is there; a line where that is no terminal.
    """
    from rich.console import Console
    from rich.progress import wrap_file

    request = urllib.request.Request(address, headers={"User-Agent": "descentlab"})
    console, fetched = Console(stderr=True), bytearray()
    if not console.is_terminal:
        host = urllib.parse.urlsplit(address).hostname
        print(f"getting {file.path} ({file.size / 1e6:.1f} MB) from {host} ...", file=sys.stderr)
    bar: dict[str, Any] = {"description": file.path, "console": console, "disable": not console.is_terminal}
    with (
        urllib.request.urlopen(request, timeout=TIMEOUT) as answer,
        wrap_file(answer, file.size, transient=True, **bar) as reader,
    ):
        while len(fetched) <= file.size and (block := reader.read(BLOCK)):
            fetched += block
    return bytes(fetched)


def _reason(error: Exception) -> str:
    """Why an address gave nothing, in a few words."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"{error.code} {error.reason}"
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(getattr(reason, "strerror", None) or reason or type(reason).__name__)


def _write(place: Path, content: bytes) -> None:
    """Writes a file whole or not at all; of several processes that do so, the last one's stays."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, content)
    except OSError as error:
        raise DataError(
            f"{place} cannot be written: {error.strerror or error}. Mend that, or name another folder in "
            "DESCENTLAB_CACHE, and give the same command again."
        ) from error


def _missing(file: File, failures: list[str]) -> str:
    """That a file is nowhere: where it was looked for, why it was not fetched, how to get it."""
    return "\n  ".join([
        f"{file.path} is missing.",
        f"Looked in {looked_in()}.",
        *(f"Not fetched from {failure}." for failure in failures),
        *(["Nothing is fetched while DESCENTLAB_OFFLINE is set."] if offline() else []),
        f"With a network, `descentlab data {file.dataset}` gets it. Or fetch {file.addresses[0]} by hand and",
        f"put it into {(cache_folder() / file.path).parent}, or into {file.dataset}/ below a folder that "
        "DESCENTLAB_DATA names.",
        *([file.hint] if file.hint else []),
    ])  # fmt: skip
