"""Experiments: the runs that claims and figures ask for, made where the store lacks them.

Judging and drawing read the store alone, so to repeat them trains nothing.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from descentlab.engine import Settings
from descentlab.judging import Claim, Mutant, Verdict, judge, judge_family
from descentlab.papers import Figure, Paper, Table, load
from descentlab.running._complete import complete
from descentlab.running._plan import identify, label
from descentlab.running._pool import Here, Pool
from descentlab.running._progress import Progress
from descentlab.store import Store
from descentlab.words import html_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Need = Claim | Figure | Table

MOST_CURVES = 4  # in a notebook


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
        from descentlab.drawing import curves, recorded_numbers, rendered

        data = self.data
        canvas = curves(data, tuple(recorded_numbers(data)[:MOST_CURVES]))
        picture = base64.b64encode(rendered(canvas, "svg")).decode()
        size = f"{data.sizes['seed']} seeds, {data.sizes['step']} records up to step {int(data['step'][-1])}"
        settings = label(self.id.rpartition("-")[0], [self.preset])
        rows = {"run": self.id, "settings": settings, "size": size, "file": self.path}
        return html_table(rows) + f'<img alt="curves of {self.id}" src="data:image/svg+xml;base64,{picture}">'


def run(
    paper: Paper | str,
    preset: Settings | str = "quick",
    seeds: int = 8,
    store: Store | Path | str | None = None,
    *,
    pool: Pool | None = None,
    progress: Progress | None = None,
) -> Run:
    """The run of a preset with at least `seeds` seeds, made or extended where the store lacks it.

    **Arguments:**

    - `paper`, `preset`: themselves, or their names.
    - `store`: a store or its path; by default the one that the command line uses.
    - `pool`: who computes. By default this process, where an error in the paper's code is raised as it is.
    - `progress`: a display, for instance.
    """
    paper = load(paper) if isinstance(paper, str) else paper
    preset = paper.preset(preset) if isinstance(preset, str) else preset
    return _runs(paper, [preset], seeds, as_store(store), pool, progress)[preset]


def as_store(store: Store | Path | str | None) -> Store:
    """A store, given itself or by its path."""
    return store if isinstance(store, Store) else Store(store)


def _runs(
    paper: Paper,
    presets: Sequence[Settings],
    seeds: int,
    store: Store,
    pool: Pool | None,
    progress: Progress | None,
) -> dict[Settings, Run]:
    """The runs of presets. Without a pool an error is raised at once, else after the other runs are made."""
    pool = pool or Here(catch=False)
    complete(paper, presets, seeds, store, pool=pool, progress=progress, retry=True).raise_failures()
    return {preset: stored(paper, preset, seeds, store) for preset in presets}


def stored(paper: Paper, preset: Settings, seeds: int, store: Store) -> Run:
    """A run that the store holds, with its first `seeds` seeds."""
    name = identify(paper, preset)
    data, manifest = store.read(name), store.manifest(name)
    assert data is not None
    assert manifest is not None
    return Run(name, preset, store.data_path(name), manifest["seconds"], data.isel(seed=slice(seeds)))


def needed(preset: Settings, needs: Iterable[Need]) -> list[Settings]:
    """The distinct presets that claims and figures ask for."""
    wanted = (preset.replace(overrides) for need in needs for overrides in need.runs.values())
    return list(dict.fromkeys(wanted))


def gather(
    paper: Paper,
    preset: Settings,
    needs: Iterable[Need],
    seeds: int,
    store: Store,
    *,
    pool: Pool | None = None,
    progress: Progress | None = None,
) -> dict[Settings, Run]:
    """All runs that claims and figures ask for, made where the store lacks them; `pool` as in `run`."""
    return _runs(paper, needed(preset, needs), seeds, store, pool, progress)


def datasets(need: Need, preset: Settings, runs: Mapping[Settings, Run]) -> dict[str, xr.Dataset]:
    """The trajectories of a claim or figure by the names it gives them."""
    return {name: runs[preset.replace(overrides)].data for name, overrides in need.runs.items()}


def judge_paper(
    paper: Paper,
    name: str,
    preset: Settings,
    seeds: int,
    store: Store,
    *,
    pool: Pool | None = None,
    progress: Progress | None = None,
) -> list[Verdict]:
    """The verdicts on all claims that belong to the preset `name`, judged together (Holm)."""
    claims = paper.claims_of(name)
    runs = gather(paper, preset, claims, seeds, store, pool=pool, progress=progress)
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
    """The verdict on a claim alone, on the runs or data of a mutant; REFUTED if the claim is sound.

    Assumptions do not count: a mutant may break them.
    """
    presets = {
        name: preset.replace({**overrides, **mutant.settings, **mutant.runs.get(name, {})})
        for name, overrides in claim.runs.items()
    }
    runs = _runs(paper, list(presets.values()), seeds, store, None, None)
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
    marks = zip(data["seed"].values, data["diverged_at"].values, strict=True)
    return [f"seed {seed} diverged at step {step}" for seed, step in marks if step >= 0]
