"""pyproject.toml declares what the package imports, no less and no more; the version stands in one place."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import descentlab

ROOT = Path(__file__).parents[1]
SOURCE = Path(descentlab.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Extras of the package itself: imported inside functions that name the extra where it is missing.
GUARDED = ("cluster", "parquet")
# Declared though no line imports them.
INDIRECT = {
    "h5netcdf": "xarray reads and writes netCDF with it",
    "plotly": "the report takes the JavaScript that the distribution carries",
    "pyarrow": "pandas writes Parquet with it",
}
# The test that `descentlab new` writes imports what runs it.
TEMPLATES = {SOURCE / "scaffold" / "twins.py": "pytest"}


def canonical(name: str) -> str:
    """The name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(requirements: Iterable[str]) -> set[str]:
    """The distributions that requirements name."""
    return {canonical(re.split(r"[^\w.-]", text.strip(), maxsplit=1)[0]) for text in requirements}


@cache
def imported(path: Path) -> frozenset[str]:
    """The packages that a file imports anywhere, outside the standard library and this project."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return frozenset(found - sys.stdlib_module_names - {"descentlab"})


@cache
def installed() -> dict[str, set[str]]:
    """The distributions of each package that is installed here."""
    return {package: set(map(canonical, names)) for package, names in packages_distributions().items()}


def undeclared(packages: Iterable[str], requirements: set[str]) -> set[str]:
    """The packages that come from none of the required distributions."""
    return {package for package in packages if not installed().get(package, {package}) & requirements}


# Scripts, which import one another by name.
FOLDERS = ("tests", "docs", "examples", "benchmarks")
OWN = declared(PROJECT["dependencies"]).union(*(declared(EXTRAS[name]) for name in GUARDED))
FILES = sorted(SOURCE.rglob("*.py"))


def test_every_import_is_declared():
    wrong = {
        str(path.relative_to(SOURCE)): found
        for path in FILES
        if (found := undeclared(imported(path), OWN) - {TEMPLATES.get(path)})
    }
    assert not wrong


def test_every_declared_distribution_is_imported():
    packages = {package for path in FILES for package in imported(path)}
    used = set().union(*(installed().get(package, set()) for package in packages))
    assert OWN - used == set(INDIRECT)


def test_what_tests_and_scripts_import_is_declared():
    """PyTorch is left out: it has an environment of its own."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    neighbours = {path.parent.name if path.stem == "__init__" else path.stem for path in files}
    packages = {package for path in files for package in imported(path)} - neighbours - {"torch"}
    development = declared([*EXTRAS["dev"], *EXTRAS["docs"]])
    assert not undeclared(packages, OWN | development)


def test_the_version_stands_in_one_place():
    """The build reads it from the package; the citation repeats it."""
    assert "version" in PROJECT["dynamic"]
    assert f"\nversion: {descentlab.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_others_may_check_types_against_the_package():
    assert (SOURCE / "py.typed").exists()
