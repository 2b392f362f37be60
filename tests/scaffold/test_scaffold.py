"""The scaffold: what `descentlab new` writes runs, is judged for real, and is a paper like any other."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import descentlab.papers
from descentlab import scaffold
from descentlab.cli import main
from descentlab.errors import PaperError, SettingError
from descentlab.papers import _registry as paper
from descentlab.places import OWN_PAPERS as OWN

ROOT = Path(__file__).parents[2]


def command(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in a folder, where papers of one's own are found."""
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=os.environ | variables,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a new paper, outside of the package."""
    folder = tmp_path_factory.mktemp("project")
    assert scaffold.write("linear_rate", folder) == [
        folder / OWN / "linear_rate.py",
        folder / "tests" / "test_linear_rate.py",
    ]
    return folder


def test_workers_find_a_new_paper(project: Path):
    words = ["--over", "d=2,3", "--steps", "20", "--seeds", "2", "--workers", "2", "--json"]
    swept = command(project, "descentlab", "sweep", "linear_rate", "tiny", *words)
    assert swept.returncode == 0, swept.stderr
    assert json.loads(swept.stdout)["cells"] == 2


def test_it_is_judged_as_it_says_and_conforms_like_every_paper(project: Path):
    # Under the checks of this project: warnings are errors, types are checked at run time.
    options = ["-q", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", "-k", "linear_rate"]
    files = ["tests", str(ROOT / "tests/papers/test_every_paper.py")]
    done = command(project, "pytest", *options, *files, DESCENTLAB_PAPERS=str(project / OWN))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d\d passed, \d+ deselected in", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize(
    ("written", "there"),
    [
        (f"{OWN}/linear_rate.py", "src/descentlab/papers/linear_rate.py"),
        ("tests/test_linear_rate.py", "tests/papers/test_linear_rate.py"),
    ],
)
def test_what_is_written_is_clean(written: str, there: str, project: Path):
    text = (project / written).read_text()
    assert "your_paper" not in text
    for words in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *words, "--stdin-filename", there, "-"]
        done = subprocess.run(ruff, input=text, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_in_a_checkout_it_goes_among_the_papers(tmp_path: Path):
    package = tmp_path / "src/descentlab/papers/__init__.py"
    package.parent.mkdir(parents=True)
    package.touch()
    module, test = scaffold.write("linear_rate", tmp_path)
    assert module == tmp_path / "src/descentlab/papers/linear_rate.py"
    assert test == tmp_path / "tests/papers/test_linear_rate.py"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my-paper", "got NAME=my-paper."),
        ("2layers", "got NAME=2layers."),
        ("lambda", "got NAME=lambda."),
        ("_hidden", "got NAME=_hidden."),
        ("naïve", "got NAME=naïve."),
        ("", "NAME takes letters"),
        ("sign_descent", "NAME takes a name that no paper has, got NAME=sign_descent; taken: "),
        ("Sign_Descent", "got NAME=Sign_Descent; taken: "),
        ("atlas", "got NAME=atlas; taken: "),
    ],
)
def test_names_that_cannot_be_are_refused_before_anything_is_written(name: str, message: str, tmp_path: Path):
    with pytest.raises(SettingError) as refused:
        scaffold.write(name, tmp_path)
    assert message in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "there", [f"{OWN}/tiny_theory.py", f"{OWN}/tiny_theory/a.py", "tests/test_tiny_theory.py"]
)
def test_what_exists_stays(
    there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    path = tmp_path / there
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    monkeypatch.setattr(sys, "argv", ["descentlab", "new", "tiny_theory", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "exists and stays as it is: choose another name." in capsys.readouterr().err
    assert [found.read_text() for found in tmp_path.rglob("*.py")] == ["mine"]


def test_a_module_that_is_no_paper_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "not_yet.py").write_text("PAPER = None\n")
    (tmp_path / "_shared.py").touch()
    monkeypatch.setattr(descentlab.papers, "__path__", [*descentlab.papers.__path__, str(tmp_path)])
    assert "not_yet" in paper.names()
    assert "_shared" not in paper.names()
    with pytest.raises(PaperError, match=r"not_yet.py\) lacks PAPER = Paper\(...\)"):
        paper.load("not_yet")


def test_a_quadratic_takes_eighty_lines_and_twelve_names(project: Path):
    source = ROOT / "tests" / "own_papers" / "quadratic.py"
    text = source.read_text()
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert len(text.splitlines()) <= 80
    assert text.strip() in (ROOT / "docs" / "adding_a_paper.md").read_text()
    assert sum(len(node.names) for node in nodes) <= 12
    judged = command(
        project, "descentlab", "judge", "quadratic", "tiny", "--json", DESCENTLAB_PAPERS=str(source.parent)
    )
    assert judged.returncode == 0, judged.stderr
    assert [claim["outcome"] for claim in json.loads(judged.stdout)["claims"]] == ["SUPPORTED"]
