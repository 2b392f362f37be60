"""The atlas from end to end, on a bowl of which every number is known; and all papers' declarations."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import descentlab.papers
from descentlab.atlas import _survey as atlas
from descentlab.atlas import as_csv, as_text, rates_as_csv
from descentlab.atlas._tables import COLUMNS
from descentlab.cli import app
from descentlab.errors import SettingError
from descentlab.papers import KERNEL_WORDS, OPTIMIZER_WORDS
from descentlab.papers import _registry as paper
from descentlab.store import Store


@pytest.fixture
def bowl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The bowl as the only paper."""
    own = str(Path(__file__).parents[1] / "own_papers")
    monkeypatch.setattr(descentlab.papers, "__path__", [*descentlab.papers.__path__, own])
    monkeypatch.setattr(atlas, "names", lambda: ["bowl"])
    paper.load.cache_clear()
    yield
    paper.load.cache_clear()


def test_every_pair_of_every_paper_is_a_run_or_has_a_reason():
    found = atlas.tasks()
    assert len({p.name for p, _ in found}) >= 5
    for p, crossing in found:
        assert len(set(atlas.presets(crossing))) == len(atlas.presets(crossing)), p.name
        pairs = [(o, k) for o in OPTIMIZER_WORDS for k in KERNEL_WORDS]
        assert all(crossing.fits(*pair) or crossing.why_not(*pair) for pair in pairs)
        assert all(rate > 0 for variant in crossing.optimizers.values() for rate in variant.rates)


def test_cells_of_the_bowl_are_known(bowl: None, tmp_path: Path):
    store = Store(tmp_path)
    found = atlas.survey(4, store)
    assert [(row.kernel, row.fits) for row in found.rows] == [
        ("softmax", True), ("gaussian", False), ("linear", True),
    ]  # fmt: skip
    for row, optimizer, cell in found.cells():
        assert (optimizer, row.title) == ("gd", f"bowl: descent into a bowl, {row.kernel} attention")
        assert (cell.learns.share.value, cell.recovers.share.value) == (1.0, 1.0)
        assert (cell.learns.rates, cell.learns.at_the_edge) == ((1.0,), True)
        assert cell.learns.detail.value == 1.0
        # With a tenth of the step the loss is a tenth after 11 steps, which are recorded at 20.
        assert cell.shares == {0.01: (0.0, float("inf"), 0.0), 0.1: (1.0, 20.0, 0.0), 1.0: (1.0, 1.0, 1.0)}
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert len(rows) == len(OPTIMIZER_WORDS) * len(KERNEL_WORDS)
    assert list(rows[0]) == list(COLUMNS)
    assert [r["does_not_fit"] for r in rows[:4]] == ["", "no sign", "no Adam", "not sparse"]
    assert (rows[0]["steps"], rows[0]["learning_rates"], rows[0]["own"]) == ("1.0", "1", "1")
    assert len(list(csv.DictReader(io.StringIO(rates_as_csv(found))))) == 6
    assert "4/4 in 1, recovers 4/4" in as_text(found)
    assert atlas.held(store) == 4

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing is computed twice")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("descentlab.running._complete.plan", refuse)
        assert as_csv(atlas.survey(4, store)) == as_csv(found)


def test_reproduce_atlas_prints_the_table_and_writes_its_page(bowl: None, tmp_path: Path):
    words = ["reproduce", "atlas", "--seeds", "4", "--workers", "1"]
    folders = ["--store", str(tmp_path / "store"), "--out", str(tmp_path / "report")]
    done = CliRunner().invoke(app, [*words, *folders])
    assert done.exit_code == 0, done.output
    assert "bowl: descent into a bowl, softmax attention  4/4 in 1, recovers 4/4" in done.stdout
    assert done.stdout.rstrip().endswith("index.html")
    page = (tmp_path / "report" / "atlas.html").read_text()
    assert "a bowl has no keys" in page
    assert page.count('class="cell unclear own"') == 1  # four seeds of four may be one in two
    assert 'title="no Adam"' in page
    for name in ("figures/atlas.svg", "figures/atlas.pdf", "data/atlas.csv", "data/atlas-rates.csv"):
        assert (tmp_path / "report" / name).stat().st_size > 0
        assert name in page
    front = (tmp_path / "report" / "index.html").read_text()
    assert 'href="atlas.html"' in front
    assert "descentlab reproduce atlas --seeds=4" in front
    again = CliRunner().invoke(app, ["report", *folders])
    assert again.exit_code == 0, again.output
    assert "recovers 4/4" in again.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "1"], "the atlas takes 2 seeds or more"),
        (["--scale", "paper"], "scale of the atlas takes quick, got"),
        (["no_such_paper"], "there is no paper no_such_paper"),
    ],
)
def test_what_the_atlas_does_not_take_is_refused(words: list[str], message: str, tmp_path: Path):
    done = CliRunner().invoke(app, ["reproduce", "atlas", *words, "--store", str(tmp_path)])
    assert isinstance(done.exception, SettingError)
    assert message in str(done.exception)
