"""Papers: what a paper module exposes, found by name.

A paper is a module of `descentlab.papers` (a folder once it is long) with PAPER, Preset,
PRESETS, make_task, sample, predict, dynamics, probes, records, CLAIMS, FIGURES and DEVIATIONS.
It may lie in a folder of one's own (papers/__init__.py).

An experiment with a setting of its own, such as one on real data, is a branch: a folder inside the paper's
with Preset, PRESETS, LOSS, make_task, dynamics, probes, records, and if rows share data, `data` and
`require`, which raises where their files are missing. BRANCHES lists them; what they claim and draw stands
with the paper's own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from types import ModuleType
from typing import TYPE_CHECKING, Any

from descentlab.engine import Settings
from descentlab.errors import PaperError
from descentlab.judging import Claim, Grid
from descentlab.store import code_hash
from descentlab.words import html_table

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure as Canvas

    from descentlab.drawing import Movie, Surface
    from descentlab.engine import System
    from descentlab.papers._crossings import Crossing


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
    """A figure as a pure function of stored runs: run name -> overrides of the preset, and a drawing.

    `moving` gives what a page can show and paper cannot: matrices along training, or surfaces to turn.
    """

    name: str
    caption: str
    draw: Callable[..., "Canvas"]
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"run": {}})
    claims: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()  # by default all of the paper's own setting that are no studies
    moving: "Callable[..., Movie | list[Surface]] | None" = None


@dataclass(frozen=True)
class Table:
    """A table as a pure function of stored runs: `rows(**runs)` gives a header and its rows."""

    name: str
    caption: str
    rows: Callable[..., tuple[list[str], list[list[Any]]]]
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"run": {}})
    claims: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()  # by default all of the paper's own setting that are no studies


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
            raise PaperError(f"paper {self.name} ({self.module.__file__}) lacks {', '.join(missing)}.")

    def _repr_html_(self) -> str:
        main = [name for name in self.presets if not name.endswith("tiny")]
        rows = {
            "module": f"descentlab.papers.{self.name}", "presets": ", ".join(main),
            "claims": ", ".join(claim.name for claim in self.claims),
            "figures": ", ".join(figure.name for figure in self.figures),
        }  # fmt: skip
        return f"<b>{escape(self.about.title)}</b><br>{escape(self.about.citation)}{html_table(rows)}"

    @property
    def about(self) -> About:
        """Title, citation and loss."""
        return self.module.PAPER

    @property
    def branches(self) -> tuple[ModuleType, ...]:
        """Experiments with a setting of their own."""
        return getattr(self.module, "BRANCHES", ())

    @property
    def presets(self) -> dict[str, Settings]:
        """The named presets, of the paper's own setting and of its branches; a study's has its name."""
        found = dict(self.module.PRESETS)
        for branch in self.branches:
            found |= branch.PRESETS
        return found | {study.name: study.preset for study in self.studies.values()}

    def along_with(self, preset: str) -> tuple[str, ...]:
        """The presets of branches that are reproduced along with one of the paper's own."""
        return getattr(self.module, "ALONG_WITH", {}).get(preset, ())

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

    @property
    def crossings(self) -> "tuple[Crossing, ...]":
        """The tasks that the paper lends to the atlas."""
        return getattr(self.module, "ATLAS", ())

    def figures_of(self, preset: str) -> list[Figure | Table]:
        """The figures and tables that belong to a preset."""
        if study := self.studies.get(preset):
            return [figure for figure in self.figures if figure.name in study.figures]
        return [figure for figure in self.figures if preset in (figure.presets or self.module.PRESETS)]

    def readings(self, preset: Settings) -> "Mapping[str, Callable[[xr.Dataset], Any]]":
        """What else can be read off a run, one number per seed: such as times; sweeps fit them too."""
        return getattr(self._part(preset), "READINGS", {})

    @property
    def deviations(self) -> tuple[Deviation, ...]:
        """Departures from the paper."""
        return self.module.DEVIATIONS

    def records(self, preset: Settings):
        """The steps at which a run of the preset is recorded."""
        return self._part(preset).records(preset)

    def preset(self, name: str) -> Settings:
        """A preset by name."""
        if name not in self.presets:
            raise KeyError(f"{self.name} has no preset {name}; there are {', '.join(self.presets)}.")
        return self.presets[name]

    def _part(self, preset: Settings) -> ModuleType:
        """The paper's own module, or the branch that the preset belongs to."""
        found = [branch for branch in self.branches if type(preset) is branch.Preset]
        return found[0] if found else self.module

    @property
    def system(self) -> "System":
        """What a rollout needs of the paper's own setting."""
        return self._systems[self.module]

    def system_of(self, preset: Settings) -> "System":
        """What a rollout needs of a preset's setting."""
        return self._systems[self._part(preset)]

    @cached_property
    def _systems(self) -> "dict[ModuleType, System]":
        from descentlab.engine import System

        return {
            m: System(
                m.make_task,
                m.dynamics,
                m.probes,
                m.LOSS if m in self.branches else m.PAPER.loss,
                getattr(m, "program", lambda preset: preset),
                getattr(m, "data", None),
                getattr(m, "require", lambda preset: None),
            )
            for m in (self.module, *self.branches)
        }

    def code_version(self, preset: Settings) -> str:
        """A hash of the code that computes a run of the preset."""
        from descentlab.engine import System, rollouts

        part = self._part(preset)
        names = ("make_task", "dynamics", "probes", "records", "Preset", "program", "data")
        roots = [getattr(part, name) for name in names if hasattr(part, name)]
        return code_hash(*roots, self.system_of(preset).loss, System, rollouts)
