"""Papers: what a paper module exposes, found by name.

A paper is a module of `descentlab.papers` (a folder once it is long) with PAPER, Preset,
PRESETS, make_task, sample, predict, dynamics, probes, records, CLAIMS, FIGURES and DEVIATIONS.
"""

import ast
import hashlib
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import descentlab.papers
from descentlab.claim import Claim
from descentlab.preset import Settings
from descentlab.scaling import Grid

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure as Canvas

    from descentlab.system import System

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


@dataclass(frozen=True)
class About:
    """Title and citation of a paper, and the probe that is its training loss."""

    title: str
    citation: str
    loss: str


@dataclass(frozen=True)
class Deviation:
    """Where the module departs from the paper, or fills a gap, and why."""

    subject: str
    reason: str


@dataclass(frozen=True)
class Figure:
    """A figure as a pure function of stored runs: run name -> overrides of the preset, and a drawing."""

    name: str
    caption: str
    draw: Callable[..., "Canvas"]
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"run": {}})
    claims: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()  # by default all that are no studies


@dataclass(frozen=True)
class Table:
    """A table as a pure function of stored runs: `rows(**runs)` gives a header and its rows."""

    name: str
    caption: str
    rows: Callable[..., tuple[list[str], list[list[Any]]]]
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"run": {}})
    claims: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()  # by default all that are no studies


@dataclass(frozen=True)
class Study:
    """A ready-made sweep: a preset of its own name over some grids, each a product of axes.

    It has claims and figures, by name, which need no more than its cells.
    """

    name: str
    doc: str
    preset: Settings
    grids: Mapping[str, Sequence[Grid]]
    claims: tuple[str, ...]
    figures: tuple[str, ...]


@dataclass(frozen=True)
class Paper:
    """A paper module, checked for what every paper must expose."""

    name: str
    module: ModuleType

    def __post_init__(self) -> None:
        needed = (
            "PAPER Preset PRESETS make_task sample predict dynamics probes records CLAIMS FIGURES DEVIATIONS"
        )
        missing = [what for what in needed.split() if not hasattr(self.module, what)]
        if missing:
            raise TypeError(f"paper {self.name} lacks {', '.join(missing)}.")

    @property
    def about(self) -> About:
        """Title, citation and loss."""
        return self.module.PAPER

    @property
    def presets(self) -> dict[str, Settings]:
        """The named presets; a study's has its name."""
        return self.module.PRESETS | {study.name: study.preset for study in self.studies.values()}

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The paper's claims."""
        return self.module.CLAIMS

    def claims_of(self, preset: str) -> list[Claim]:
        """The claims that belong to a preset."""
        if study := self.studies.get(preset):
            return [claim for claim in self.claims if claim.name in study.claims]
        return [claim for claim in self.claims if preset in claim.presets]

    @property
    def figures(self) -> tuple[Figure | Table, ...]:
        """The paper's figures and tables."""
        return self.module.FIGURES

    @property
    def studies(self) -> "dict[str, Study]":
        """The ready-made sweeps by name."""
        return {study.name: study for study in getattr(self.module, "STUDIES", ())}

    def figures_of(self, preset: str) -> list[Figure | Table]:
        """The figures and tables that belong to a preset."""
        if study := self.studies.get(preset):
            return [figure for figure in self.figures if figure.name in study.figures]
        return [figure for figure in self.figures if not figure.presets or preset in figure.presets]

    @property
    def readings(self) -> "Mapping[str, Callable[[xr.Dataset], Any]]":
        """What else can be read off a run, one number per seed: such as times; sweeps fit them too."""
        return getattr(self.module, "READINGS", {})

    @property
    def deviations(self) -> tuple[Deviation, ...]:
        """Departures from the paper."""
        return self.module.DEVIATIONS

    def records(self, preset: Settings):
        """The steps at which a run of the preset is recorded."""
        return self.module.records(preset)

    def preset(self, name: str) -> Settings:
        """A preset by name."""
        if name not in self.presets:
            raise KeyError(f"{self.name} has no preset {name}; there are {', '.join(self.presets)}.")
        return self.presets[name]

    @cached_property
    def system(self) -> "System":
        """What a rollout needs of the paper."""
        from descentlab.system import System

        m = self.module
        return System(
            m.make_task, m.dynamics, m.probes, m.PAPER.loss, getattr(m, "program", lambda preset: preset)
        )

    @cached_property
    def code_version(self) -> str:
        """A hash of the code that computes runs, blind to comments, docstrings, claims and figures."""
        source = Path(self.module.__file__ or "")
        own = sorted(source.parent.glob("*.py")) if source.name == "__init__.py" else [source]
        engine = [Path(__file__).parent / name for name in ENGINE]
        files = [path for path in (*engine, *own) if path.name not in READERS]
        return hashlib.sha256("\n".join(_meaning(path) for path in files).encode()).hexdigest()[:16]


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


def names() -> list[str]:
    """The names of all papers."""
    return sorted(m.name for m in pkgutil.iter_modules(descentlab.papers.__path__))


@cache
def load(name: str) -> Paper:
    """A paper by name; the same object each time, since it keeps compiled programs."""
    if name not in names():
        raise KeyError(f"there is no paper {name}; there are {', '.join(names())}.")
    return Paper(name, importlib.import_module(f"descentlab.papers.{name}"))
