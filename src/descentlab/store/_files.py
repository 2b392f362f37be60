"""The disk: files that are written whole or not at all, and what to do where they cannot be."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from descentlab.errors import StoreError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns errors of the disk into what a user can do about them."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "Free some room" if full else "Mend that or choose another folder"
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}. {remedy} and give the same command again; "
            "what is stored stays."
        ) from error


def replace(path: Path, content: bytes) -> None:
    """Writes a file of a store whole or not at all."""
    with writing(path):
        put(path, content)


def put(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all, and has it on disk before anyone sees it; the last writer wins."""
    # Machines that share a folder may have equal process ids.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
