"""What every paper must be, checked by discovery."""

import inspect
import io
import json
import os
from pathlib import Path

import matplotlib.figure
import numpy as np
import plotly.graph_objects as go
import pytest

from descentlab.drawing import Movie, save
from descentlab.engine import Settings
from descentlab.engine._rollout import rollout
from descentlab.engine._settings import fields
from descentlab.errors import DataError
from descentlab.judging import Claim, Mutant, Outcome
from descentlab.papers import Figure, Paper, Table
from descentlab.papers import _registry as paper
from descentlab.running import _experiments as experiment
from descentlab.showing.report.interactive import plot
from descentlab.store import Store

ONLY = os.environ.get("DESCENTLAB_ONLY")
PAPERS = [paper.load(name) for name in (ONLY.split(",") if ONLY else paper.names())]
SEEDS = 6
RECORDED = Path(__file__).parent / "recorded"
TINY = [(p, name) for p in PAPERS for name in p.presets if name == "tiny" or name.endswith("_tiny")]
by_paper = pytest.mark.parametrize("p", PAPERS, ids=lambda p: p.name)
by_mutant = pytest.mark.parametrize(
    ("p", "claim", "mutant"),
    [
        pytest.param(p, claim, mutant, id=f"{p.name}-{claim.name}-{mutant.name}".replace(" ", "_"))
        for p in PAPERS
        for claim in p.claims
        for mutant in claim.mutants
    ],
)
by_figure = pytest.mark.parametrize(
    ("p", "figure"), [pytest.param(p, f, id=f"{p.name}-{f.name}") for p in PAPERS for f in p.figures]
)


by_tiny_preset = pytest.mark.parametrize(
    ("p", "name"), [pytest.param(p, name, id=f"{p.name}-{name}") for p, name in TINY]
)


def tiny(p: Paper, need: experiment.Need) -> Settings:
    """The small preset of the setting that a claim or figure belongs to, if its data are there."""
    return available(p, next((name for name in need.presets if name.endswith("_tiny")), "tiny"))


def available(p: Paper, name: str) -> Settings:
    preset = p.presets[name]
    try:
        p.system_of(preset).require(preset)
    except DataError as error:
        pytest.skip(f"{str(error).splitlines()[0]} DESCENTLAB_DATA would name a folder that has it.")
    return preset


@by_paper
def test_exposes_what_a_paper_must(p: Paper):
    assert {"tiny", "quick", "paper"} <= set(p.presets)
    assert p.title
    assert p.citation
    assert p.deviations
    assert inspect.getdoc(p.module)
    assert all(f.metadata["doc"] for f in fields(p.presets["quick"]))


@by_paper
def test_claims_can_be_refuted_and_say_why_they_are_as_wide_as_they_are(p: Paper):
    names = [c.name for c in p.claims]
    assert len(set(names)) == len(names)
    for claim in p.claims:
        assert claim.mutants, f"nothing can refute {claim.name}"
        assert claim.margin, f"{claim.name} does not say why its prediction is as wide as it is"
        assert set(claim.presets) <= set(p.presets)


@by_paper
def test_every_claim_is_shown_by_a_figure(p: Paper):
    shown = {name for figure in p.figures for name in figure.claims}
    assert shown == {c.name for c in p.claims}


@by_mutant
def test_mutants_are_refuted(p: Paper, claim: Claim, mutant: Mutant, store: Store):
    verdict = experiment.judge_mutant(p, claim, mutant, tiny(p, claim), SEEDS, store)
    assert verdict.outcome == Outcome.REFUTED, str(verdict)


@by_paper
def test_the_real_thing_is_judged_whole(p: Paper, store: Store):
    verdicts = experiment.judge_paper(p, "tiny", p.presets["tiny"], SEEDS, store)
    assert [v.claim for v in verdicts] == [c.name for c in p.claims if "tiny" in c.presets]
    for verdict in verdicts:
        assert verdict.outcome not in (Outcome.BROKEN, Outcome.OUT_OF_REGIME), str(verdict)
        assert verdict.seeds == SEEDS
        assert verdict.range
        assert verdict.runs
    record = RECORDED / f"{p.name}.json"  # a new paper has none yet
    recorded = json.loads(record.read_text()) if record.exists() else {}
    found = {v.claim: str(v.outcome) for v in verdicts}
    contradicted = {
        name: found[name] for name in recorded if {found[name], recorded[name]} == {"SUPPORTED", "REFUTED"}
    }
    assert not contradicted
    # What is near a decision may go over by rounding on another machine; most must stay decided.
    assert sum(found[name] == outcome for name, outcome in recorded.items()) >= len(recorded) - 2


@by_paper
def test_branches_are_judged_whole(p: Paper, store: Store):
    for name in (name for one in p.experiments[1:] for name in one.presets if name.endswith("_tiny")):
        verdicts = experiment.judge_paper(p, name, available(p, name), SEEDS, store)
        assert verdicts, name
        for verdict in verdicts:
            assert verdict.outcome != Outcome.BROKEN, str(verdict)
            assert verdict.range
            assert verdict.notes


@by_paper
def test_what_belongs_to_a_preset_is_of_its_setting(p: Paper):
    for name, preset in p.presets.items():
        for need in [*p.claims_of(name), *p.figures_of(name)]:
            assert experiment.needed(preset, [need]), f"{need.name} needs nothing at {name}"
    for name in p.along_with.get("quick", ()):
        assert p.claims_of(name)


@by_figure
def test_figures_draw_from_the_store(p: Paper, figure: Figure | Table, store: Store):
    preset = tiny(p, figure)
    runs = experiment.gather(p, preset, [figure], SEEDS, store)
    data = experiment.datasets(figure, preset, runs)
    if isinstance(figure, Table):
        header, rows = figure.rows(**data)
        assert rows
        assert all(len(row) == len(header) for row in rows)
    else:
        canvas = figure(**data)
        assert isinstance(canvas, matplotlib.figure.Figure)
        assert canvas.axes
        save(canvas, io.BytesIO())
        if (found := plot(canvas)) is not None:
            go.Figure(json.loads(json.dumps(found.as_json())))  # Plotly knows every property
        if figure.moving is not None:
            moving = figure.moving(**data)
            for one in [moving] if isinstance(moving, Movie) else moving:
                assert json.dumps(one.as_json())


@by_tiny_preset
def test_same_seed_same_numbers_and_other_numbers_without_compiling(p: Paper, name: str):
    preset, records = available(p, name).replace(steps=8), np.arange(4)
    system = p.system_of(preset)
    first = rollout(system, preset, range(2), records)
    compiled = system.advance._cache_size()  # type: ignore[attr-defined]
    again = rollout(system, preset, range(2), records)
    for probe, series in first.items():
        np.testing.assert_array_equal(series.values, again[probe].values, err_msg=str(probe))
    number = next(f.name for f in fields(preset) if f.type is float)
    rollout(system, preset.replace({number: getattr(preset, number) * 1.01}), range(2), records)
    assert system.advance._cache_size() == compiled  # type: ignore[attr-defined]
