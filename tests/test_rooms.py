"""The house: rooms with one-way doors.

Every import of the package is read off its source, lazy ones inside functions included, and those for type
checkers too. A room may import from rooms above it, never from one below.
"""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import descentlab

SOURCE = Path(descentlab.__file__).parent
# From the top of the house to its bottom.
ROOMS = (
    "judging", "store", "logs", "engine", "drawing", "data", "papers", "running", "sweeping", "atlas",
    "showing",
    "scaffold", "cli",
)  # fmt: skip
# Words that every room may use: they import nothing of the package but each other.
SHARED = ("errors", "places", "words", "_lazy")
# Front doors that open when a name is first used: all that lies behind them may pass through.
LAZY = ("descentlab", "descentlab.papers")
# Rooms whose import must not load JAX.
LIGHT = ("judging", "store", "logs")


def modules() -> dict[str, Path]:
    """The modules of the package by name; a package is its `__init__`."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ("descentlab", *path.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(path: Path) -> Iterator[str]:
    """The modules of the package that a file imports, each as far as it is a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            named = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in named:
            if name.partition(".")[0] == "descentlab":
                yield name if name in MODULES else name.rpartition(".")[0]


EDGES = {name: set(imports(path)) - {name} for name, path in MODULES.items()}


def room(module: str) -> str | None:
    """The room that a module is in; None for the front door, the package itself and what starts it."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] != "__main__" else None


def test_every_module_is_in_a_room():
    assert {room(name) for name in MODULES} <= {None, *ROOMS, *SHARED}


def test_doors_open_downwards_only():
    wrong = [
        f"{name} imports {other}"
        for name, others in EDGES.items()
        for other in others
        if (here := room(name)) in ROOMS and (there := room(other)) in ROOMS
        if ROOMS.index(there) > ROOMS.index(here)
    ]
    assert not wrong


def test_shared_words_need_no_room():
    wrong = [
        f"{name} imports {other}"
        for name, others in EDGES.items()
        for other in others
        if room(name) in SHARED and room(other) not in (None, *SHARED)
    ]
    assert not wrong


def test_rooms_are_entered_by_their_front_door():
    """A room's private modules are its own; papers live in a room of their own each."""
    wrong = [
        f"{name} imports {other}"
        for name, others in EDGES.items()
        for other in others
        if room(other) in ROOMS
        if any(part.startswith("_") for part in other.split(".")[2:])
        if room(name) != room(other) or (paper_of(name) is not None and paper_of(other) is None)
    ]
    assert not wrong


def paper_of(module: str) -> str | None:
    """The paper that a module belongs to."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["papers"] and len(parts) > 2 and not parts[2].startswith("_") else None


def test_no_paper_imports_a_paper():
    wrong = [
        f"{name} imports {other}"
        for name, others in EDGES.items()
        for other in others
        if paper_of(other) is not None and paper_of(name) != paper_of(other)
    ]
    assert not wrong


def test_there_is_no_cycle():
    # A room's own modules import each other by name, not through the room's front door.
    try:
        order = list(TopologicalSorter(EDGES | {name: set() for name in LAZY}).static_order())
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None
    assert len(order) >= len(MODULES)


def test_no_module_only_exports_again():
    """A module that only imports was cut by length; a front door says what it opens to."""
    for name, path in MODULES.items():
        body = ast.parse(path.read_text()).body
        says = [
            node
            for node in body
            if not isinstance(node, ast.Import | ast.ImportFrom)
            and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        ]
        assert says or path.name == "__init__.py", f"{name} only exports again"


def test_light_rooms_import_no_jax():
    forbid = "import sys; sys.modules['jax'] = sys.modules['jaxlib'] = None; "
    rooms = [name for name in LIGHT if f"descentlab.{name}" in MODULES]
    words = forbid + "import " + ", ".join(f"descentlab.{name}" for name in rooms)
    subprocess.run([sys.executable, "-c", words], check=True)


def test_public_nouns_are_there_and_those_without_jax_need_none():
    for name in descentlab.__all__:
        assert getattr(descentlab, name) is not None
    forbid = "import sys; sys.modules['jax'] = None; "
    find = "import importlib.util as u; was = u.find_spec; u.find_spec = lambda n: n != 'jax' and was(n); "
    use = "from descentlab import *; print(judge, mean, exponent, Store)"
    names = subprocess.run(
        [sys.executable, "-c", find + forbid + use], capture_output=True, text=True, check=True
    ).stdout
    assert "judge" in names


def test_no_two_public_things_have_one_name():
    found: dict[str, dict[int, str]] = {}
    for name in (room for room in ROOMS if room != "cli" and f"descentlab.{room}" in MODULES):
        module = importlib.import_module(f"descentlab.{name}")
        for key in (key for key in dir(module) if not key.startswith("_")):
            value = getattr(module, key)
            if str(getattr(value, "__module__", "descentlab")).startswith("descentlab"):
                found.setdefault(key, {})[id(value)] = name
    assert not {key: list(rooms.values()) for key, rooms in found.items() if len(rooms) > 1}


def test_contributing_has_the_map():
    """Its table has the rooms from top to bottom, and names files that are there."""
    guide = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `(\w+)/` \|[^|]*\|([^|]*)\|$", guide, re.MULTILINE)
    assert [name for name, _ in rows] == [name for name in ROOMS if (SOURCE / name).exists()]
    files = [SOURCE / name / file for name, cell in rows for file in re.findall(r"`(\w+\.py|\w+/)`", cell)]
    paths = re.findall(r"`(\w+/[\w./]*)`", guide)
    files += [SOURCE / path for path in paths if path.partition("/")[0] in ROOMS]
    assert len(files) > 50
    assert [str(path) for path in files if not path.exists()] == []
