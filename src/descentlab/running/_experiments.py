"""Experiments: the runs that claims and figures ask for, made where the store lacks them.

Judging and drawing read the store only, so doing them again trains nothing.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from descentlab.engine import Settings
from descentlab.errors import RunError
from descentlab.judging import Claim, Mutant, Verdict, judge, judge_family
from descentlab.papers import Figure, Paper, Table
from descentlab.running import _complete as campaign
from descentlab.running._complete import View
from descentlab.running._plan import identify, label, plan
from descentlab.running._pool import Fleet, Here
from descentlab.running._progress import Watcher as Watcher
from descentlab.running._worker import perform
from descentlab.store import Store
from descentlab.words import html_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Need = Claim | Figure | Table

MOST_CURVES = 4  # in a notebook
FEWEST_TASKS = 4  # for which workers are worth their start


@dataclass(frozen=True)
class Run:
    """A stored run: its name, its settings, and where its trajectory lies."""

    id: str
    preset: Settings
    path: Path
    seconds: float
    data: xr.Dataset

    def plot(self, *names: str) -> "Canvas":
        """Some of its quantities along training, or all that are one number: a matplotlib figure."""
        from descentlab.drawing import curves

        return curves(self.data, names)

    def _repr_html_(self) -> str:
        from descentlab.drawing import curves, recorded_numbers, save

        data, buffer = self.data, BytesIO()
        save(curves(data, tuple(recorded_numbers(data)[:MOST_CURVES])), buffer, "svg")
        picture = base64.b64encode(buffer.getvalue()).decode()
        size = f"{data.sizes['seed']} seeds, {data.sizes['step']} records up to step {int(data['step'][-1])}"
        settings = label(self.id.rpartition("-")[0], [self.preset])
        rows = {"run": self.id, "settings": settings, "size": size, "file": self.path}
        return html_table(rows) + f'<img alt="curves of {self.id}" src="data:image/svg+xml;base64,{picture}">'


def run(
    paper: Paper, preset: Settings, seeds: int, store: Store, watcher: Watcher | None = None, **further: Any
) -> Run:
    """The run of a preset with at least so many seeds: from the store, extended or made as needed.

    Seeds that the store holds are not computed again; what a killed process left is taken up.
    """
    return complete(paper, [preset], seeds, store, watcher, **further)[preset]


def complete(
    paper: Paper,
    presets: Sequence[Settings],
    seeds: int,
    store: Store,
    watcher: Watcher | None = None,
    fleet: Fleet | None = None,
    **further: Any,
) -> dict[Settings, Run]:
    """The runs of presets; those of one compiled shape are made together.

    Who can see a campaign (a View) has it done by a fleet; then an error of one is raised after the others
    are done.
    """
    tasks = plan(paper, presets, seeds, store)
    if isinstance(watcher, View):
        who = fleet if len(tasks) >= FEWEST_TASKS else Here()
        failed = campaign.work_through(paper, presets, seeds, store, who, watcher, retry=True).failed
        if failed:
            raise RunError(f"{len(failed)} of {len(presets)} runs failed: {'; '.join(failed.values())}")
    else:
        for task in tasks:
            perform(task, store, watcher, wait=True, catch=False, **further)
    return {preset: stored(paper, preset, seeds, store) for preset in presets}


def stored(paper: Paper, preset: Settings, seeds: int, store: Store) -> Run:
    """A run that the store holds."""
    name = identify(paper, preset)
    data, manifest = store.read(name), store.manifest(name)
    assert data is not None
    assert manifest is not None
    return Run(name, preset, store.data_path(name), manifest["seconds"], data.isel(seed=slice(seeds)))


def needed(preset: Settings, needs: Iterable[Need]) -> list[Settings]:
    """The distinct presets that claims and figures ask for."""
    return list(
        dict.fromkeys(preset.replace(overrides) for need in needs for overrides in need.runs.values())
    )


def gather(
    paper: Paper,
    preset: Settings,
    needs: Iterable[Need],
    seeds: int,
    store: Store,
    watcher: Watcher | None = None,
    fleet: Fleet | None = None,
) -> dict[Settings, Run]:
    """All runs that claims and figures ask for, made where the store lacks them."""
    return complete(paper, needed(preset, list(needs)), seeds, store, watcher, fleet)


def datasets(need: Need, preset: Settings, runs: Mapping[Settings, Run]) -> dict[str, xr.Dataset]:
    """The trajectories of a claim or figure by the names it gives them."""
    return {name: runs[preset.replace(overrides)].data for name, overrides in need.runs.items()}


def judge_paper(
    paper: Paper,
    name: str,
    preset: Settings,
    seeds: int,
    store: Store,
    watcher: Watcher | None = None,
    fleet: Fleet | None = None,
) -> list[Verdict]:
    """The verdicts on all claims that belong to the preset `name`, judged together (Holm)."""
    claims = paper.claims_of(name)
    runs = gather(paper, preset, claims, seeds, store, watcher, fleet)
    return verdicts(claims, preset, runs)


def verdicts(claims: list[Claim], preset: Settings, runs: Mapping[Settings, Run]) -> list[Verdict]:
    """The verdicts on claims from runs at hand."""
    return judge_family(
        claims,
        lambda claim: datasets(claim, preset, runs),
        preset=preset,
        runs_of=lambda claim: [runs[preset.replace(overrides)].id for overrides in claim.runs.values()],
    )


def judge_mutant(
    paper: Paper, claim: Claim, mutant: Mutant, preset: Settings, seeds: int, store: Store
) -> Verdict:
    """The verdict on a claim whose runs or data are those of a mutant, by itself; REFUTED if it is sound.

    Assumptions are left out: a mutant may well be outside of them.
    """
    presets = {
        name: preset.replace({**overrides, **mutant.settings, **mutant.runs.get(name, {})})
        for name, overrides in claim.runs.items()
    }
    runs = complete(paper, list(presets.values()), seeds, store)
    data = {name: runs[own].data for name, own in presets.items()}
    return judge(claim, mutant.alter(data) if mutant.alter else data)


def final(data: xr.Dataset) -> dict[str, dict[str, Any]]:
    """The last record of each probe: mean and spread over seeds, and each seed's value."""

    def summary(series: xr.DataArray) -> dict[str, Any]:
        last = series.isel(step=-1).astype(float)
        with np.errstate(invalid="ignore"):
            values = last.mean([d for d in last.dims if d != "seed"]).values
            numbers = {"mean": values.mean(), "std": values.std(ddof=1) if values.size > 1 else np.nan}
        return {k: _number(v) for k, v in numbers.items()} | {"values": [_number(v) for v in values]}

    return {str(name): summary(series) for name, series in data.items() if "step" in series.dims}


def _number(x: Any) -> float | None:
    return float(x) if np.isfinite(x) else None


def diverged(data: xr.Dataset) -> list[str]:
    """The seeds that diverged, in words."""
    marks = data["diverged_at"]
    return [
        f"seed {s} diverged at step {t}"
        for s, t in zip(marks["seed"].values, marks.values, strict=True)
        if t >= 0
    ]
