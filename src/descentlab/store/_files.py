"""Files that are written whole or not at all, and what a user can do where they cannot be written."""

import contextlib
import errno
import os
import secrets
from collections.abc import Generator
from pathlib import Path

from descentlab.errors import StoreError


@contextlib.contextmanager
def writing(path: Path) -> Generator[None, None, None]:
    """Turns an OSError of writing `path` into a StoreError that says what a user can do."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "Free some room" if full else "Mend that or choose another folder"
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}. {remedy} and give the same command again; "
            "what is stored stays."
        ) from error


def write_entry(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all, as `write_whole` does; a StoreError says what a user can do."""
    with writing(path):
        write_whole(path, content)


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all; it is on disk before it has its name. Raises OSError.

    Where several processes write the same file, the last one's content stays.
    """
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
