"""What makes stored runs stale."""

import importlib
import shutil
from pathlib import Path
from types import ModuleType

import pytest

import descentlab.papers
from descentlab.papers import load
from descentlab.store import _code as sources
from descentlab.store._code import _files, _further


@pytest.mark.slow
def test_what_reads_and_makes_real_data_counts_and_how_it_is_found_does_not():
    kernels = importlib.import_module("descentlab.papers.attention_kernels.transformer")
    names = [path.name for path in _further(_files(kernels))]
    assert names == ["_compiled.py", "_pathfinder_kernel.py", "imdb.py", "pathfinder.py"]
    noisy = importlib.import_module("descentlab.papers.sign_descent.mnist")
    assert [path.name for path in _further(_files(noisy))] == ["mnist.py"]
    theory = load("attention_kernels").module
    assert _further(_files(theory)) == []


@pytest.mark.slow
def test_a_mended_generator_makes_the_runs_on_its_images_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    paper = load("attention_kernels")
    before = {name: paper.code_version(paper.preset(name)) for name in ("pathfinder", "quick")}
    copy = Path(shutil.copytree(sources.DATA, tmp_path / "data"))
    monkeypatch.setattr(sources, "DATA", copy)

    def now(name: str) -> str:
        sources.version.cache_clear()
        return paper.code_version(paper.preset(name))

    assert {name: now(name) for name in before} == before
    kernel = copy / "_pathfinder_kernel.py"
    kernel.write_text(kernel.read_text() + "\n# a comment\n")
    assert now("pathfinder") == before["pathfinder"]
    kernel.write_text(kernel.read_text() + "\nMENDED = True\n")
    assert now("pathfinder") != before["pathfinder"]
    assert now("quick") == before["quick"]
    sources.version.cache_clear()


def test_modules_that_papers_share_name_their_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own, shared = tmp_path / "tables.py", tmp_path / "_shared.py"  # a paper may have the name of a reader
    own.write_text("from descentlab.papers._shared import eta\n")
    monkeypatch.setattr(descentlab.papers, "__path__", [*descentlab.papers.__path__, str(tmp_path)])
    module, versions = ModuleType("tables"), []
    module.__file__ = str(own)
    for text in ("eta = 1\n", "eta = 2\n", "eta = 2  # the same\n"):
        shared.write_text(text)
        sources.version.cache_clear()
        versions.append(sources.version(module))
    assert versions[0] != versions[1] == versions[2]
