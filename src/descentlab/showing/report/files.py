"""The files of a report: written whole, and those of an earlier one taken away."""

from collections.abc import Mapping
from pathlib import Path

from descentlab.store import write_entry, writing

# Folders that a report has for itself; nothing of anyone else's is in them.
OWN = ("assets", "figures", "plots", "data")


class Files:
    """A folder that a report is written into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: set[Path] = set()

    def put(self, name: str, content: str | bytes) -> Path:
        """Writes a file and returns its path."""
        path = self.folder / name
        with writing(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_entry(path, content.encode() if isinstance(content, str) else content)
        self.written.add(path)
        return path

    def links(self, names: Mapping[str, str]) -> list[tuple[str, str, str]]:
        """Words, name and size of each file, given by its words."""
        return [(words, name, self._weight(name)) for words, name in names.items()]

    def _weight(self, name: str) -> str:
        size = (self.folder / name).stat().st_size
        return f"{size / 1e6:.1f} MB" if size > 999_500 else f"{max(1, round(size / 1e3))} kB"

    def sweep(self) -> None:
        """Removes what an earlier report left in the folders of reports."""
        for path in (path for own in OWN for path in (self.folder / own).glob("*")):
            if path.is_file() and path not in self.written:
                path.unlink()
