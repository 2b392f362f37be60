"""Experiments: the runs that claims and figures ask for, made where the store lacks them.

Judging and drawing read the store only, so doing them again trains nothing.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from descentlab import numerics
from descentlab.claim import Claim, Verdict, judge_family
from descentlab.paper import Figure, Paper, Table
from descentlab.preset import Settings
from descentlab.store import Store, provenance, run_id

Need = Claim | Figure | Table


@dataclass(frozen=True)
class Run:
    """A stored run: its name, its settings, and where its trajectory lies."""

    id: str
    preset: Settings
    path: Path
    seconds: float
    data: xr.Dataset


class Watcher:
    """What is told about work in progress; the command line shows it."""

    def begin(self, label: str, steps: int, seeds: int) -> None:
        """A run starts, or goes on."""

    def progress(self, step: int, loss: float) -> None:
        """A run has reached a step."""

    def end(self) -> None:
        """A run is whole."""

    def say(self, message: str) -> None:
        """Something worth a line."""


def code_of(paper: Paper, preset: Settings) -> str:
    """What computes a run: the paper's code, and functions of one's own that the preset names."""
    return paper.code_version + preset.foreign_code()


def identify(paper: Paper, preset: Settings) -> str:
    """The name of a run in every store."""
    return run_id(paper.name, code_of(paper, preset), preset.settings())


def run(
    paper: Paper,
    preset: Settings,
    seeds: int,
    store: Store,
    watcher: Watcher | None = None,
    keep_every: float = 5.0,
) -> Run:
    """The run of a preset with at least so many seeds: from the store, extended or made as needed.

    Seeds that the store holds are not computed again; what a killed process left is taken up.
    """
    watcher = watcher or Watcher()
    name = identify(paper, preset)
    with store.lock(name, lambda: watcher.say(f"waiting for another process that works on {name}")):
        data = store.read(name)
        manifest = store.manifest(name) or {}
        while (have := 0 if data is None else data.sizes["seed"]) < seeds:
            fresh, seconds = _block(paper, preset, name, range(have, seeds), store, watcher, keep_every)
            made = range(have, have + fresh.sizes["seed"])
            data = fresh if data is None else xr.concat([data, fresh], "seed")
            about = {
                "paper": paper.name, "code": code_of(paper, preset), "settings": preset.settings(),
                "seconds": manifest.get("seconds", 0.0) + seconds,
                "history": [*manifest.get("history", []), {"seeds": [made.start, made.stop], **provenance()}],
            }  # fmt: skip
            store.write(name, data, about)
            store.drop(name, made)
            data, manifest = store.read(name), store.manifest(name) or {}
    assert data is not None
    return Run(name, preset, store.data_path(name), manifest["seconds"], data.isel(seed=slice(seeds)))


def _block(
    paper: Paper, preset: Settings, name: str, seeds: range, store: Store, watcher: Watcher, keep_every: float
) -> tuple[xr.Dataset, float]:
    """Some seeds of a run, from where a checkpoint left them, and the seconds it took this time."""
    from descentlab.rollout import Checkpoint, rollout

    numerics.make_room()
    resume, kept = None, store.kept(name, seeds.start)
    if kept is not None and kept[0].stop <= seeds.stop:
        seeds, arrays = kept
        resume = Checkpoint.from_arrays(arrays)
        watcher.say(f"{name} goes on at step {resume.step}")
    watcher.begin(label(paper, preset), preset.steps, len(seeds))  # type: ignore[attr-defined]
    began = time.monotonic()
    data = rollout(
        paper.system, preset, seeds, paper.records(preset), resume=resume,
        watch=lambda progress: watcher.progress(progress.step, progress.loss),
        keep=lambda checkpoint: store.keep(name, seeds, checkpoint.arrays()), keep_every=keep_every,
    )  # fmt: skip
    watcher.end()
    return data, time.monotonic() - began


def label(paper: Paper, preset: Settings) -> str:
    """A run in a few words: the paper, and where its preset differs from the default one."""
    base = type(preset)().settings()
    differs = [
        f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}"
        for k, v in preset.settings().items()
        if v != base[k]
    ]
    return " ".join([paper.name, *differs])


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
) -> dict[Settings, Run]:
    """All runs that claims and figures ask for, made where the store lacks them."""
    return {one: run(paper, one, seeds, store, watcher) for one in needed(preset, list(needs))}


def datasets(need: Need, preset: Settings, runs: Mapping[Settings, Run]) -> dict[str, xr.Dataset]:
    """The trajectories of a claim or figure by the names it gives them."""
    return {name: runs[preset.replace(overrides)].data for name, overrides in need.runs.items()}


def judge_paper(
    paper: Paper, name: str, preset: Settings, seeds: int, store: Store, watcher: Watcher | None = None
) -> list[Verdict]:
    """The verdicts on all claims that belong to the preset `name`, judged together (Holm)."""
    claims = paper.claims_of(name)
    runs = gather(paper, preset, claims, seeds, store, watcher)
    return verdicts(claims, preset, runs)


def verdicts(claims: list[Claim], preset: Settings, runs: Mapping[Settings, Run]) -> list[Verdict]:
    """The verdicts on claims from runs at hand."""
    return judge_family(
        claims,
        lambda claim: datasets(claim, preset, runs),
        preset=preset,
        runs_of=lambda claim: [runs[preset.replace(overrides)].id for overrides in claim.runs.values()],
    )


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
