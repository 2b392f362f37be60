"""Sources: what computes runs, as a hash of its code.

It is blind to comments and docstrings, and to what only reads runs: claims and figures may be reworded, and
stored runs stay good. What makes or reads real data for a module counts as part of it.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path
from types import ModuleType

import descentlab.papers

# What only reads runs.
READERS = (
    "atlas.py",
    "deviations.py",
    "claims.py",
    "measures.py",
    "figures.py",
    "stage_figures.py",
    "tables.py",
    "runs.py",
    "stages.py",
    "studies.py",
)


# Where the readers and makers of real data are; how a file is found does not change what is in it.
DATA, FINDERS = Path(__file__).parents[1] / "data", ("__init__.py", "files.py")


@cache
def version(*modules: ModuleType) -> str:
    """A hash of the engine and of some modules, folders without the folders inside them."""
    engine = sorted((Path(__file__).parents[1] / "engine").glob("*.py"))
    own = [path for module in modules for path in _files(module)]
    files = [*engine, *own, *_further(own)]
    return hashlib.sha256("\n".join(map(_meaning, files)).encode()).hexdigest()[:16]


def _files(module: ModuleType) -> list[Path]:
    """The files of a module that compute runs."""
    source = Path(module.__file__ or "")
    if source.name != "__init__.py":
        return [source]
    return [path for path in sorted(source.parent.glob("*.py")) if path.name not in READERS]


def _further(files: list[Path]) -> list[Path]:
    """What some files import of descentlab.data and of modules that papers share, and what these import."""
    found: dict[Path, None] = {}
    waiting = list(files)
    while waiting:
        new = [path for path in _imported(waiting.pop()) if path not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return sorted(found)


def _imported(path: Path) -> list[Path]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    data = {name.split(".")[2] for name in names if name.startswith("descentlab.data.")}
    shared = {name.split(".")[2] for name in names if name.startswith("descentlab.papers._")}
    files = [DATA / f"{part}.py" for part in data if f"{part}.py" not in FINDERS]
    files += [Path(folder) / f"{part}.py" for folder in descentlab.papers.__path__ for part in shared]
    return [file for file in sorted(files) if file.exists()]


def _meaning(path: Path) -> str:
    """A source file without docstrings and comments, the same under every version of Python."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)
