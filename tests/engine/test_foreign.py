"""Functions that settings name: a paper's own, and one's own as module:function."""

import importlib
import sys
from pathlib import Path

import pytest

from descentlab.engine import chosen, fingerprint
from descentlab.errors import SettingError
from descentlab.papers import _registry as paper
from descentlab.running import _experiments as experiment
from descentlab.store import Store

KNOWN = {"double": lambda x: 2 * x, "half": lambda x: x / 2}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a module and makes it importable anew."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, source: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        sys.modules.pop(name, None)
        names.add(name)

    names: set[str] = set()
    yield write
    for name in names:
        sys.modules.pop(name, None)


def test_a_name_is_the_papers_or_ones_own(written):
    written("mine_foreign", "def triple(x):\n    return 3 * x\n")
    assert chosen("law", "double", KNOWN) is KNOWN["double"]
    assert chosen("law", "mine_foreign:triple", KNOWN)(2) == 6


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("treble", ""),
        (":", ""),
        ("double:", "No module named 'double'"),
        ("nosuch_module:f", "No module named 'nosuch_module'"),
        ("math:nosuch", "has no attribute 'nosuch'"),
        ("math:pi", "pi of math is not a function"),
        (".relative:f", "relative"),
    ],
)
def test_what_there_is_not_is_answered_with_what_there_is(name: str, reason: str):
    with pytest.raises(SettingError) as error:
        chosen("law", name, KNOWN)
    message = str(error.value)
    assert message.startswith(
        "law takes one of double, half, or your own as module:function; got law=" + name
    )
    assert reason in message


@pytest.mark.parametrize("trouble", ["raise ValueError('out of cheese')", "1 / 0", "def f(:"])
def test_a_module_that_does_not_import_is_not_taken_for_a_wrong_name(trouble: str, written):
    written("broken_foreign", trouble)
    with pytest.raises(Exception, match=r"out of cheese|division by zero|invalid syntax"):
        chosen("law", "broken_foreign:f", KNOWN)


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    return {number} * x\n",
        "scale = {number}\n\n\ndef f(x):\n    return scale * x\n",
        "f = lambda x: {number} * x\n",
        "import functools\n\n\ndef g(a, x):\n    return a * x\n\n\nf = functools.partial(g, {number})\n",
    ],
    ids=["function", "its constants", "lambda", "partial"],
)
def test_the_fingerprint_is_that_of_the_source(source: str, written):
    prints = []
    for number in (2, 33, 2):
        written("printed_foreign", source.format(number=number))
        assert chosen("law", "printed_foreign:f", KNOWN)(1) == number
        prints.append(fingerprint("printed_foreign:f", KNOWN))
    assert prints[0] == prints[2] != prints[1]
    assert len(prints[0]) == 16


def test_the_papers_own_need_no_fingerprint_and_compiled_code_has_one():
    assert fingerprint("double", KNOWN) == ""
    prints = {fingerprint(name, KNOWN) for name in ("math:sqrt", "math:exp", "math:sqrt")}
    assert len(prints) == 2


@pytest.mark.slow
def test_a_run_with_a_law_of_ones_own_is_stored_and_read_back(written, tmp_path: Path):
    written(
        "own_law", "import jax\n\n\ndef ones(key, shape, dtype):\n    return jax.numpy.ones(shape, dtype)\n"
    )
    p = paper.load("bilinear_teachers")
    preset = p.presets["tiny"].replace(ood="own_law:ones", steps=2)
    store = Store(tmp_path / "store")
    first = experiment.run(p, preset, 1, store)
    assert experiment.run(p, preset, 1, store).id == first.id
    assert experiment.run(p, preset, 2, store).data.sizes["seed"] == 2
