"""The catalogue: what every paper offers, kept on disk, so that to list papers none has to be imported.

The kept one is good as long as no source of the package or of a paper changes; then it is made again.
"""

import hashlib
import json
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import descentlab.papers
from descentlab import places

if TYPE_CHECKING:
    from descentlab.papers._contract import Paper

Entry = dict[str, Any]


def catalogue(kept: Path | None = None) -> list[Entry]:
    """What every paper offers, from the file `kept` unless a source has changed since."""
    kept = kept or places.cache() / "catalogue.json"
    sources = _sources()
    try:
        found = json.loads(kept.read_text())
        if found["sources"] == sources:
            return found["papers"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # there is none yet, or it is damaged
    from descentlab.papers._registry import load, names
    from descentlab.store import write_whole

    entries = [describe(load(name)) for name in names()]
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, json.dumps({"sources": sources, "papers": entries}).encode())
    except OSError:
        pass  # next time is as slow as this one
    return entries


def describe(paper: "Paper") -> Entry:
    """What a paper offers: presets, settings with their meaning, studies, claims, figures."""
    settings = {"settings": paper.preset("quick").explained()}
    for branch in paper.experiments[1:]:
        names = [name for name in branch.presets if not name.endswith("_tiny")]
        settings[f"settings of {', '.join(names)}"] = branch.presets[names[0]].explained()
    return {
        "paper": paper.name,
        "title": paper.title,
        "citation": paper.citation,
        "presets": list(paper.presets),
        "settings": {title: list(lines) for title, lines in settings.items()},
        "studies": [f"{study.name}: {study.doc}" for study in paper.studies.values()],
        "claims": [claim.name for claim in paper.claims],
        "figures": [figure.name for figure in paper.figures],
    }


def text(entry: Entry) -> str:
    """An entry for reading."""
    own, *further = entry["settings"].items()
    lists = dict([("presets", [", ".join(entry["presets"])]), own])
    lists |= {title: ["", *lines] for title, lines in further}
    lists |= {title: entry[title] for title in ("studies", "claims", "figures")}
    parts = [f"  {title:9s}" + "\n           ".join(lines) for title, lines in lists.items() if lines]
    return "\n".join([f"{entry['paper']}: {entry['title']}\n  {entry['citation']}", *parts])


def _sources() -> str:
    """A hash of all sources of the package and of the papers, which may lie elsewhere too."""
    folders = dict.fromkeys([Path(__file__).parent, *map(Path, descentlab.papers.__path__)])
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    names = [module.name for module in pkgutil.iter_modules(descentlab.papers.__path__)]
    found = hashlib.sha256(" ".join(names).encode())
    for path in files:
        found.update(path.read_bytes())
    return found.hexdigest()
