"""What notebooks show."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from descentlab.judging import Claim, judge, mean
from descentlab.judging._claims import Interval
from descentlab.papers import _registry as paper
from descentlab.running import _experiments as experiment
from descentlab.store import Store

PAPER = paper.load("sign_descent")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> experiment.Run:
    small = PAPER.preset("tiny").replace(d=60, s=8, m_k=10, m_v=10, n_test=20, steps=20)
    return experiment.run(PAPER, small, 3, Store(tmp_path_factory.mktemp("store")))


def test_a_run_is_plotted_by_the_names_of_its_quantities(run: experiment.Run):
    figure = run.plot("training_loss", "test_loss")
    assert [ax.get_title() for ax in figure.axes] == ["training_loss", "test_loss"]
    line = figure.axes[0].lines[0]
    np.testing.assert_allclose(
        np.asarray(line.get_ydata(), float), run.data["training_loss"].median("seed")[1:]
    )
    names = {ax.get_title() for ax in run.plot().axes}
    assert {"training_loss", "test_loss", "value_signal"} <= names
    assert "query_noise" not in names


def test_what_cannot_be_plotted_is_named(run: experiment.Run):
    with pytest.raises(KeyError, match=r"plot takes .*training_loss.*, got nosuch, query_noise"):
        run.plot("nosuch", "training_loss", "query_noise")


def test_runs_verdicts_and_papers_have_a_face(run: experiment.Run):
    shown = run._repr_html_()
    assert run.id in shown
    assert "d=60" in shown
    assert "3 seeds" in shown
    assert "data:image/svg+xml" in shown
    claim = Claim(
        "falls", "Lemma <1>", "It falls.", lambda run: mean(run["training_loss"][:, -1]), Interval(0, 1)
    )
    verdict = judge(claim, run.data)
    shown = verdict._repr_html_()
    for part in (verdict.outcome, "falls", "Lemma &lt;1&gt;", "It falls.", "[0, 1]"):
        assert part in shown
    broken = dataclasses.replace(verdict, value=float("nan"))
    assert "nothing" in broken._repr_html_()
    shown = PAPER._repr_html_()
    for part in (PAPER.title, "quick", "value_noise_grows_linearly", "figure_all_stages"):
        assert part in shown


def test_the_worked_example_is_short():
    example = Path(__file__).parents[2] / "examples" / "a_claim_of_your_own.py"
    assert len(example.read_text().splitlines()) < 40
