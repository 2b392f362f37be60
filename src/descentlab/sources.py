"""Sources: what computes runs, as a hash of its code.

It is blind to comments and docstrings, and to what only reads runs: claims and figures may be reworded, and
stored runs stay good.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path
from types import ModuleType

# What runs compute with; a change here makes stored runs stale like a change of the paper.
ENGINE = (
    "numerics.py", "preset.py", "foreign.py", "objective.py", "dynamics.py", "staged.py", "flow.py",
    "curvature.py", "probe.py", "system.py", "rollout.py",
)  # fmt: skip
# What only reads runs.
READERS = (
    "deviations.py",
    "claims.py",
    "measures.py",
    "figures.py",
    "tables.py",
    "runs.py",
    "stages.py",
    "studies.py",
)


@cache
def version(*modules: ModuleType) -> str:
    """A hash of the engine and of some modules, folders without the folders inside them."""
    engine = [Path(__file__).parent / name for name in ENGINE]
    files = [*engine, *(path for module in modules for path in _files(module))]
    return hashlib.sha256("\n".join(map(_meaning, files)).encode()).hexdigest()[:16]


def _files(module: ModuleType) -> list[Path]:
    """The files of a module that compute runs."""
    source = Path(module.__file__ or "")
    own = sorted(source.parent.glob("*.py")) if source.name == "__init__.py" else [source]
    return [path for path in own if path.name not in READERS]


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
