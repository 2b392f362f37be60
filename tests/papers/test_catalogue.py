"""The catalogue: it is made once, found again without a paper, and made anew where a source changes."""

import subprocess
import sys
from pathlib import Path

import pytest

from descentlab.papers import _catalogue as catalogue
from descentlab.papers import _registry as paper


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paper, "names", lambda: ["sign_descent"])
    return tmp_path / "new" / "catalogue.json"


def test_it_is_kept_until_a_source_changes(kept: Path, monkeypatch: pytest.MonkeyPatch):
    made = catalogue.catalogue(kept)
    found = paper.load("sign_descent")
    assert [entry["paper"] for entry in made] == ["sign_descent"]
    assert made[0]["presets"] == list(found.presets)
    assert made[0]["claims"] == [claim.name for claim in found.claims]

    def refuse(name: str) -> paper.Paper:
        raise AssertionError(f"{name} was imported")

    with monkeypatch.context() as patch:
        patch.setattr(paper, "load", refuse)
        assert catalogue.catalogue(kept) == made
        patch.setattr(catalogue, "_sources", lambda: "other")
        with pytest.raises(AssertionError, match="was imported"):
            catalogue.catalogue(kept)
    kept.write_text('{"sources": ')
    assert catalogue.catalogue(kept) == made


def test_a_folder_that_cannot_be_written_does_not_matter(kept: Path):
    kept.parent.write_text("a file")
    assert catalogue.catalogue(kept)


def test_sources_count_wherever_papers_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = catalogue._sources()
    monkeypatch.setattr("descentlab.papers.__path__", [*catalogue.descentlab.papers.__path__, str(tmp_path)])
    (tmp_path / "mine.py").write_text("A = 1\n")
    first = catalogue._sources()
    (tmp_path / "mine.py").write_text("A = 2\n")
    assert len({before, first, catalogue._sources()}) == 3


def test_text_names_everything_on_offer():
    entry = {
        "paper": "one", "title": "A title", "citation": "Someone", "presets": ["quick", "paper"],
        "settings": {"settings": ["d  size"], "settings of images": ["n  number"]}, "studies": [],
        "claims": ["it_holds"], "figures": ["figure_1", "figure_2"],
    }  # fmt: skip
    assert catalogue.text(entry).splitlines() == [
        "one: A title",
        "  Someone",
        "  presets  quick, paper",
        "  settings d  size",
        "  settings of images",
        "           n  number",
        "  claims   it_holds",
        "  figures  figure_1",
        "           figure_2",
    ]


def test_the_command_line_starts_without_numerics():
    load = "import sys, descentlab.cli, descentlab.papers._catalogue; "
    seen = load + "print(sorted({'jax', 'numpy'} & {*sys.modules}))"
    assert subprocess.check_output([sys.executable, "-c", seen], text=True).strip() == "[]"
