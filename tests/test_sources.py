"""What makes stored runs stale."""

import importlib
import shutil
from pathlib import Path

import pytest

from descentlab import sources
from descentlab.paper import load
from descentlab.sources import _data, _files


def test_what_reads_and_makes_real_data_counts_and_how_it_is_found_does_not():
    kernels = importlib.import_module("descentlab.papers.attention_kernels.transformer")
    names = [path.name for path in _data(_files(kernels))]
    assert names == ["_compiled.py", "_pathfinder_kernel.py", "imdb.py", "pathfinder.py"]
    noisy = importlib.import_module("descentlab.papers.sign_descent.mnist")
    assert [path.name for path in _data(_files(noisy))] == ["mnist.py"]
    theory = load("attention_kernels").module
    assert _data(_files(theory)) == []


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
