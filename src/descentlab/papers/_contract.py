"""The contract of a paper: what its module declares, as typed objects with defaults.

A paper is a module or a package of `descentlab.papers`. Its `PAPER = Paper(...)` says what it is and what is
trained in it. Its theorems (with their claims), figures, tables, studies and crossings are found by their
types: in the module itself, and in its `theorems` and `figures` where it is a package. What a paper does not
have, it need not declare.

An experiment with a setting of its own, such as one on real data, is a branch: a module inside the paper's
with `EXPERIMENT = Experiment(...)`, whose theorems and figures are found in the same way. `Paper.branches`
names it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from descentlab.engine import Probe, Settings, System, log_spaced, rollouts
from descentlab.judging import Claim, Grid
from descentlab.papers._code import code_hash
from descentlab.papers._crossings import Crossing
from descentlab.words import html_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from descentlab.drawing import Movie, Surface

Runs = Mapping[str, Mapping[str, Any]]
ONE_RUN: Runs = {"run": {}}


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
    runs: Runs = field(default_factory=lambda: ONE_RUN)
    claims: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()  # by default all of the paper's own setting that are no studies
    moving: "Callable[..., Movie | list[Surface]] | None" = None

    def __call__(self, **runs: xr.Dataset) -> "Canvas":
        """The drawing of some runs, in the house style."""
        from descentlab.drawing import style

        with style():
            return self.draw(**runs)


def figure(**fields: Any) -> Callable[[Callable[..., "Canvas"]], Figure]:
    """Makes a figure of a function that draws, with its name and, as caption, its docstring."""
    return lambda draw: Figure(**_named(draw, fields), draw=draw)


def _named(function: Callable[..., Any], fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a figure or table, with name and caption from the function that makes it."""
    return {"name": function.__name__, "caption": " ".join((function.__doc__ or "").split()), **fields}


@dataclass(frozen=True)
class Table:
    """A table as a pure function of stored runs: `rows(**runs)` gives a header and its rows."""

    name: str
    caption: str
    rows: Callable[..., tuple[list[str], list[list[Any]]]]
    runs: Runs = field(default_factory=lambda: ONE_RUN)
    claims: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()  # by default all of the paper's own setting that are no studies


def table(**fields: Any) -> Callable[[Callable[..., Any]], Table]:
    """Makes a table of a function that gives header and rows; its docstring is the caption."""
    return lambda rows: Table(**_named(rows, fields), rows=rows)


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


def _log_spaced(preset: Any) -> np.ndarray:
    return log_spaced(preset.steps)


def _nothing(preset: Any) -> Mapping[str, Hashable]:
    return {}


def _no_files(preset: Any) -> None:
    return None


@dataclass(frozen=True, eq=False)
class Experiment:
    """What is trained: presets of one class, a random task, its dynamics, and what is recorded when.

    `loss` names the probe that is the training loss. `probes` are all there are, or a function of the preset.
    `carried` names settings that the task holds as arrays (`Settings.carrying`). Where all rows share data,
    `data(preset)` gives them, `task` takes them as a third argument, and `require(preset)` raises where their
    files are missing. `readings` are what else can be read off a run, one number per seed: sweeps fit
    them too.
    """

    presets: Mapping[str, Settings]
    task: Callable[..., Any]
    dynamics: Callable[[Any, Any], Any]
    probes: Mapping[str, Probe] | Callable[[Any], Mapping[str, Probe]]
    loss: str = "loss"
    records: Callable[[Any], np.ndarray] = _log_spaced
    carried: Callable[[Any], Mapping[str, Hashable]] = _nothing
    data: Callable[[Any], Any] | None = None
    require: Callable[[Any], Any] = _no_files
    readings: Mapping[str, Callable[[xr.Dataset], Any]] = field(default_factory=dict)

    @property
    def settings(self) -> type[Settings]:
        """The class of the presets."""
        return type(next(iter(self.presets.values())))

    @cached_property
    def system(self) -> System:
        """What a rollout needs; it keeps compiled programs."""
        found = self.probes
        probes = found if callable(found) else lambda preset: found
        return System(self.task, self.dynamics, probes, self.loss, self.carried, self.data, self.require)

    def code(self) -> tuple[Any, ...]:
        """What computes a run: functions and classes, whose sources name it."""
        probes = (self.probes,) if callable(self.probes) else tuple(self.probes.items())
        functions = (self.task, self.dynamics, self.records, self.carried, self.data)
        return (self.settings, *functions, *probes, self.loss)


@dataclass(frozen=True, eq=False)
class Paper:
    """A paper: title, citation, what is trained in it, and where the module departs from it.

    `along_with` maps a preset to those of branches that are reproduced along with it. The registry fills in
    the rest when it loads the paper.
    """

    title: str
    citation: str
    experiment: Experiment
    deviations: tuple[Deviation, ...] = ()
    branches: tuple[str, ...] = ()
    along_with: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    link: str = ""
    # What the registry fills in.
    name: str = ""
    module: ModuleType = field(default=ModuleType("none"), repr=False)
    experiments: tuple[Experiment, ...] = ()
    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure | Table, ...] = ()
    studies: Mapping[str, Study] = field(default_factory=dict)
    crossings: tuple[Crossing, ...] = ()

    def _repr_html_(self) -> str:
        main = [name for name in self.presets if not name.endswith("tiny")]
        rows = {
            "module": f"descentlab.papers.{self.name}", "presets": ", ".join(main),
            "claims": ", ".join(claim.name for claim in self.claims),
            "figures": ", ".join(figure.name for figure in self.figures),
        }  # fmt: skip
        return f"<b>{escape(self.title)}</b><br>{escape(self.citation)}{html_table(rows)}"

    @cached_property
    def presets(self) -> dict[str, Settings]:
        """The named presets, of the paper's own setting and of its branches; a study's has its name."""
        found = {name: preset for one in self.experiments for name, preset in one.presets.items()}
        return found | {study.name: study.preset for study in self.studies.values()}

    def preset(self, name: str) -> Settings:
        """A preset by name."""
        if name not in self.presets:
            raise KeyError(f"{self.name} has no preset {name}; there are {', '.join(self.presets)}.")
        return self.presets[name]

    def claims_of(self, preset: str) -> list[Claim]:
        """The claims that belong to a preset."""
        if study := self.studies.get(preset):
            return [claim for claim in self.claims if claim.name in study.claims]
        return [claim for claim in self.claims if preset in claim.presets]

    def figures_of(self, preset: str) -> list[Figure | Table]:
        """The figures and tables that belong to a preset."""
        if study := self.studies.get(preset):
            return [figure for figure in self.figures if figure.name in study.figures]
        return [figure for figure in self.figures if preset in (figure.presets or self.experiment.presets)]

    def experiment_of(self, preset: Settings) -> Experiment:
        """The paper's own experiment, or the branch that the preset belongs to."""
        found = [one for one in self.experiments if type(preset) is one.settings]
        return found[0] if found else self.experiment

    def records(self, preset: Settings) -> np.ndarray:
        """The steps at which a run of the preset is recorded."""
        return self.experiment_of(preset).records(preset)

    def readings(self, preset: Settings) -> Mapping[str, Callable[[xr.Dataset], Any]]:
        """What else can be read off a run of the preset."""
        return self.experiment_of(preset).readings

    @property
    def system(self) -> System:
        """What a rollout needs of the paper's own setting."""
        return self.experiment.system

    def system_of(self, preset: Settings) -> System:
        """What a rollout needs of a preset's setting."""
        return self.experiment_of(preset).system

    def code_version(self, preset: Settings) -> str:
        """A hash of the code that computes a run of the preset."""
        return code_hash(*self.experiment_of(preset).code(), System, rollouts)
