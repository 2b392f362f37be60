"""Documents: their code runs, and their command lines ask for what there is.

Python blocks run as scripts, one after another in a folder of their document's own, and so does every line of
a shell block that begins with `descentlab`. `<!-- not run: why -->` before a block leaves it at checking what
its commands ask for.
"""

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

import descentlab.papers
from descentlab.atlas import _survey as atlas
from descentlab.cli import app, main
from descentlab.cli.request import atlas_wanted, chosen, figures_of, wanted_claims
from descentlab.sweeping import cells
from descentlab.sweeping._sweep import axes_of

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<why>.+) -->\n)?^```(?P<kind>\w*).*\n(?P<code>(?:.*\n)*?)```$", re.MULTILINE
)
# What a shell block may have besides commands of the lab.
OTHERS = ("make", "pip", "python", ".venv/bin/python")


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text, its line in the document, and why it is not run, if so."""

    kind: str
    code: str
    line: int
    why: str | None


def blocks(document: Path) -> Iterator[Block]:
    text = document.read_text()
    for found in BLOCK.finditer(text):
        yield Block(found["kind"], found["code"], text.count("\n", 0, found.start("code")), found["why"])


def commands(block: Block) -> Iterator[list[str]]:
    """The command lines of a shell block that are the lab's."""
    for line in block.code.splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "descentlab":
            yield words[1:]
        else:
            assert not words or words[0] in OTHERS, f"{line} is no command that a document may have"


def check(words: list[str]) -> None:
    """Refuses a command line that would be refused before anything runs."""
    group = typer.main.get_command(app)
    with group.make_context("descentlab", list(words)) as outer:
        _, command, rest = group.resolve_command(outer, list(words))  # type: ignore[attr-defined]
        with command.make_context(words[0], list(rest), parent=outer) as context:
            asked = context.params
    if command.name in ("run", "judge", "sweep"):
        paper, preset = chosen(asked["paper"], asked["preset"], asked["set_"], asked["steps"], asked["seeds"])
        if command.name == "judge":
            assert wanted_claims(paper, asked["preset"], asked["claims"])
        if command.name == "sweep":
            study = paper.studies.get(asked["preset"])
            for axes in axes_of(paper, asked["over"] or (study.grids if study else [])).values():
                assert cells(preset, axes).size
    if command.name == "figures":
        assert figures_of(asked["paper"], asked["names"] or [], asked["preset"], asked["seeds"])
    if command.name == "reproduce":
        atlas_wanted(asked["names"] or [], asked["scale"], asked["seeds"])
        for name in (name for name in asked["names"] or () if name != atlas.NAME):
            chosen(name, asked["scale"], [], None, asked["seeds"])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_code_in_documents_runs(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DESCENTLAB_STORE", str(tmp_path / "store"))
    # As a process that starts here would find them.
    own = [*descentlab.papers.__path__, *descentlab.places.own_papers()]
    monkeypatch.setattr(descentlab.papers, "__path__", own)
    for block in blocks(document):
        where = f"{document}:{block.line}"
        if block.kind == "python" and block.why is None:
            # So many empty lines before it that a traceback names the line of the document.
            exec(compile("\n" * block.line + block.code, str(document), "exec"), {"__name__": "__main__"})
        elif block.kind == "shell":
            for words in commands(block):
                if block.why is not None:
                    check(words)
                    continue
                monkeypatch.setattr(sys, "argv", ["descentlab", *words])
                with pytest.raises(SystemExit) as end:
                    main()
                assert not end.value.code, (
                    f"{where}: descentlab {shlex.join(words)} ends with {end.value.code}"
                )
        elif block.kind == "toml":
            assert tomllib.loads(block.code), where
        elif block.kind == "json":
            assert json.loads(block.code), where
        else:
            assert block.kind in ("python", "text"), (
                f"{where} is code of no kind that is checked: {block.kind!r}"
            )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_no_code_hides_in_an_indented_block(document: Path):
    prose = BLOCK.sub("", document.read_text())
    assert not re.findall(r"\n\n    \S.*", prose)


@pytest.mark.parametrize(
    "line",
    [
        "run nosuch",
        "run sign_descent nosuch",
        "run sign_descent --set nosuch=1",
        "judge sign_descent --claims nosuch",
        "sweep sign_descent --over eta=nosuch",
        "figures sign_descent 99",
        "reproduce nosuch",
        "run sign_descent --nosuch",
        "nosuch",
    ],
)
def test_commands_that_are_not_run_would_be_refused_if_wrong(line: str):
    with pytest.raises(Exception, match=r"nosuch|No such|no figure 99"):
        check(line.split())
