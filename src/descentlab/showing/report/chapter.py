"""Chapters: a paper judged at one preset as a page shows it: cards, figures, settings, provenance."""

import inspect
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from descentlab.engine import Settings
from descentlab.judging import Assumption, Claim, Outcome, Verdict
from descentlab.papers import Paper
from descentlab.running import Run, label
from descentlab.showing.report.drawing import Drawing, drawing
from descentlab.showing.report.files import Files
from descentlab.showing.report.strip import Strip, strip
from descentlab.words import distinct, interval


@dataclass(frozen=True)
class Section:
    """One paper judged at one preset."""

    paper: Paper
    preset_name: str
    preset: Settings
    seeds: int
    verdicts: list[Verdict]
    runs: Mapping[Settings, Run]


@dataclass(frozen=True)
class Setting:
    """A row of the settings table; `usual` is the preset's own value where another was set."""

    name: str
    value: Any
    doc: str
    usual: Any = None
    derived: bool = False


@dataclass(frozen=True)
class Card:
    """A verdict with the claim behind it and the figures that name it."""

    verdict: Verdict
    claim: Claim
    anchor: str
    strip: Strip
    drawings: list[Drawing]

    @cached_property
    def texts(self) -> tuple[str, str]:
        """The estimate and its interval."""
        v = self.verdict
        low, value, high = distinct(v.low, v.value, v.high)
        return value, interval(v.low, v.high, (low, high))

    @property
    def rank(self) -> int:
        """The place of its outcome among all."""
        return list(Outcome).index(self.verdict.outcome)

    def state(self, assumption: Assumption) -> str:
        """What an assumption came to, in words."""
        if not assumption.exact:
            return "inside O(·): measured, does not gate"
        return "not met" if assumption.name in self.verdict.unmet else "met"


@dataclass(frozen=True)
class Origin:
    """Where a run comes from: its manifest, and its data's path as seen from the page."""

    run: Run
    anchor: str
    label: str
    path: str
    manifest: Mapping[str, Any]

    @property
    def environment(self) -> str:
        """Versions and machine in one line."""
        if not self.manifest:
            return "unknown: its run.json cannot be read"
        versions = ", ".join(f"{name} {v}" for name, v in self.manifest.get("versions", {}).items())
        machine = self.manifest.get("machine", {})
        cores = f"{machine.get('cores', '?')} cores"
        return f"{versions}; {machine.get('system', '?')} {machine.get('processor', '?')}, {cores}"


@dataclass(frozen=True)
class Chapter:
    """A section as the page shows it."""

    section: Section
    anchor: str
    settings: list[Setting]
    cards: list[Card]
    drawings: list[Drawing]
    origins: list[Origin]
    command: str

    @property
    def page(self) -> str:
        """The page of its paper."""
        return f"{_slug(self.section.paper.name)}.html"

    @property
    def labels(self) -> dict[str, str]:
        """What each run differs in from the default preset."""
        return {origin.run.id: origin.label for origin in self.origins}

    @property
    def environments(self) -> dict[str, list[Origin]]:
        """The runs by what they were computed with."""
        found: dict[str, list[Origin]] = {}
        for origin in self.origins:
            found.setdefault(origin.environment, []).append(origin)
        return found


def chapter(section: Section, files: Files, taken: Counter[str]) -> Chapter:
    """A section as a page shows it; its pictures and plots are written."""
    paper = section.paper
    anchor = _slug(f"{paper.name}-{section.preset_name}")
    taken[anchor] += 1
    anchor += f"-{taken[anchor]}" if taken[anchor] > 1 else ""
    drawings = [
        drawing(paper, figure, section.preset, section.runs, f"{anchor}-figure-{_slug(figure.name)}", files)
        for figure in paper.figures_of(section.preset_name)
    ]
    claims = {claim.name: claim for claim in paper.claims}
    cards = [
        Card(
            verdict, claims[verdict.claim], f"{anchor}-claim-{verdict.claim}", strip(verdict),
            [d for d in drawings if verdict.claim in d.figure.claims],
        )
        for verdict in section.verdicts
    ]  # fmt: skip
    origins = [
        Origin(
            run, f"{anchor}-run-{run.id}", label(paper.name, [run.preset]),
            _seen_from(files.folder, run.path), _manifest(run),
        )
        for run in section.runs.values()
    ]  # fmt: skip
    return Chapter(section, anchor, _settings(section), cards, drawings, origins, judge_command(section))


def _slug(name: str) -> str:
    """A name as an id that links and SVG references take as it is."""
    return re.sub(r"[^\w.-]+", "-", name)


def _settings(section: Section) -> list[Setting]:
    """The preset's fields, then the numbers that it derives from them."""
    preset, usual = section.preset, section.paper.presets.get(section.preset_name)
    rows = [
        Setting(f.name, getattr(preset, f.name), f.metadata.get("doc", ""), changed(preset, usual, f.name))
        for f in fields(preset)
    ]
    for name, derived in inspect.getmembers(type(preset), lambda member: isinstance(member, property)):
        doc = (inspect.getdoc(derived) or "").partition("\n")[0]
        try:
            rows.append(Setting(name, getattr(preset, name), doc, derived=True))
        except ArithmeticError as error:
            rows.append(Setting(name, f"undefined ({error})", doc, derived=True))
    return rows


def changed(preset: Settings, usual: Settings | None, name: str) -> Any:
    """The value of the named preset where this one has another."""
    before = getattr(usual, name, None)
    return before if before != getattr(preset, name) else None


def _manifest(run: Run) -> Mapping[str, Any]:
    try:
        manifest = json.loads((run.path.parent / "run.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _seen_from(folder: Path, path: Path) -> str:
    """A path relative to a folder; absolute where there is no way, as between two drives."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        return path.as_posix()


def judge_command(section: Section) -> str:
    """The command that judges a section again."""
    words = ["descentlab", "judge", section.paper.name, section.preset_name]
    usual = section.paper.presets.get(section.preset_name)
    for name, value in section.preset.settings().items():
        if changed(section.preset, usual, name) is not None:
            words += ["--set", f"{name}={value}"]
    return shlex.join([*words, "--seeds", str(section.seeds)])
