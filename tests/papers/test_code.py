"""What names a run: the code that computes it, and nothing else."""

import ast
import hashlib
import importlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import descentlab.papers
from descentlab.engine import Settings
from descentlab.papers import Paper, _code, load, names
from descentlab.papers._code import Closure, code_hash

# ---------------------------------------------------------------- a small package

TOY = {
    "descentlab": '''"""A package with a front door that opens when a name is used."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from descentlab.engine import descent as descent
def __getattr__(name):
    return lazily(name)
''',
    "descentlab.engine": '''"""A room."""
from descentlab.engine import _setup
from descentlab.engine._dynamics import descent as descent, flow as flow
from descentlab.engine._probes import Probe as Probe, parameter as parameter, preset as preset
_setup.configure("64 bits")
''',
    "descentlab.engine._setup": "def configure(bits):\n    return bits\n",
    "descentlab.engine._probes": """
class Probe: pass
def parameter(doc, **options): return options
def preset(cls): return cls
""",
    "descentlab.engine._dynamics": """
from descentlab.engine import _steps as steps
def descent(gradient, eta):
    return steps.step(gradient, eta)
def flow(gradient):
    return steps.jump(gradient)
""",
    "descentlab.engine._steps": """
def step(gradient, eta):
    return lambda w: w - eta * gradient(w)
def jump(gradient):
    return gradient
""",
    "descentlab.files": "COMPUTES_NOTHING = True\ndef content(name):\n    return open(name).read()\n",
    "descentlab.judging": "def mean(x):\n    return x\nclass Claim: pass\n",
    "descentlab.papers.toy": '''"""A paper."""
import os.path
import numpy as np
from descentlab import descent, files
from descentlab.engine import Probe, parameter, preset
from descentlab.judging import Claim, mean

RATE, UNUSED = 0.5, 1
TABLE = {}
TABLE["sum"] = np.sum

def twice(function):
    return lambda *inputs: 2 * function(*inputs)

class Task:
    w: float
    start: float = 1.0

@preset
class Training:
    steps: int = parameter("steps", default=10)

@preset
class Preset(Training):
    """The settings."""
    steps = 20
    PERIOD = 2
    n: int = parameter("samples", default=3, low=1)
    eta: float = parameter("step size", default=0.1, above=0)
    def conflicts(self):
        if self.n > 10:
            yield "n is too large"
    @property
    def rate(self):
        return RATE * self.eta

def make_task(key, p: Preset) -> Task:
    """A random task."""
    if p.n < 0:
        raise ValueError(f"n takes a positive number, got {p.n}.")
    return Task(files.content(os.path.join("digits", "0")))

@twice
def gradient(w: float) -> float:
    """The gradient."""
    return 2 * w  # of the square

def dynamics(task, p):
    return descent(gradient, p.rate)

def probes(p):
    def of(measure, doc, *dims):
        return Probe(measure, doc, dims)
    return {
        "loss": Probe(lambda w: w**2, "the loss", once=False),
        "size": of(lambda w: TABLE["sum"](abs(w)), "the size", "seed"),
    }

def measured(run):
    return mean(run)

CLAIMS = (Claim("falls", "The loss falls.", measured),)
FIGURES = {"figure_1": "The caption."}
DEVIATIONS = (Deviation("sizes", "They are ours."),)
''',
}
ROOTS = ("make_task", "dynamics", "probes", "Preset")
counter = itertools.count()


def text_of(folder: Path, sources: dict[str, str], roots: tuple[str, ...] = ROOTS) -> str:
    """All that counts for some names of the toy paper, whose sources are written to a new folder."""
    packages = {name.rpartition(".")[0] for name in sources}
    files = {}
    for name, source in sources.items():
        path = folder / str(next(counter)) / ("__init__.py" if name in packages else "module.py")
        path.parent.mkdir()
        path.write_text(source)
        files[name] = path
    closure = Closure(files.get)
    for root in roots:
        closure.reach("descentlab.papers.toy", root)
    return closure.text()


def edited(module: str, old: str, new: str) -> dict[str, str]:
    assert TOY[module].count(old) == 1, old
    return TOY | {module: TOY[module].replace(old, new)}


PAPER, ENGINE = "descentlab.papers.toy", "descentlab.engine._dynamics"


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (PAPER, '"""The gradient."""', '"""Its gradient."""'),
        (PAPER, '    """The gradient."""\n', ""),
        (PAPER, "# of the square", "# of w squared"),
        (PAPER, "(w: float) -> float", "(w: int) -> int"),
        (PAPER, "n takes a positive number", "n must be positive"),
        (PAPER, '"samples"', '"the samples"'),
        (PAPER, "default=3, low=1", "default=4, low=2"),
        (PAPER, "steps = 20", "steps = 30"),
        (PAPER, "default=10", "default=11"),
        (PAPER, "n is too large", "n is larger than ten"),
        (PAPER, "self.n > 10", "self.n > 20"),
        (PAPER, '"the loss"', '"the training loss"'),
        (PAPER, '"the loss"', 'doc="the training loss"'),
        (PAPER, '"the size"', 'f"the size of {1}"'),
        (PAPER, "The loss falls.", "The loss decreases."),
        (PAPER, "return mean(run)", "return mean(run) + 1"),
        (PAPER, "The caption.", "Another caption."),
        (PAPER, "They are ours.", "We chose them."),
        (PAPER, "import numpy as np\n", "import numpy as np\nimport scipy\n"),
        (PAPER, "def probes(p):", "def nobody_calls_it():\n    return 1\n\ndef probes(p):"),
        ("descentlab.files", "open(name).read()", "open(name, 'rb').read()"),
        ("descentlab.judging", "return x", "return x + 1"),
        (ENGINE, "return steps.jump(gradient)", "return steps.jump(2 * gradient)"),
        ("descentlab.engine._steps", "return gradient\n", "return -gradient\n"),
    ],
    ids=lambda text: str(text)[:30].strip() if "descentlab" not in str(text) else "",
)
def test_what_computes_nothing_does_not_count(tmp_path: Path, module: str, old: str, new: str):
    assert text_of(tmp_path, edited(module, old, new)) == text_of(tmp_path, TOY)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (PAPER, "return 2 * w", "return 3 * w"),
        (PAPER, "w**2", "w**4"),
        (PAPER, "once=False", "once=True"),
        (PAPER, '"the size", "seed"', '"the size", "step"'),
        (PAPER, "RATE, UNUSED = 0.5", "RATE, UNUSED = 0.6"),
        (PAPER, "@twice\n", ""),
        (PAPER, "2 * function", "3 * function"),
        (PAPER, '= np.sum', "= np.max"),
        (PAPER, "import numpy as np", "import jax.numpy as np"),
        (PAPER, "n: int", "n: float"),
        (PAPER, "PERIOD = 2", "PERIOD = 3"),
        (PAPER, "    eta: float = parameter(\"step size\", default=0.1, above=0)\n", ""),
        (PAPER, "start: float = 1.0", "start: float = 2.0"),
        (PAPER, "w: float\n", "w: int\n"),
        (PAPER, "if p.n < 0:", "if p.n < 1:"),
        (PAPER, "raise ValueError", "raise TypeError"),
        (PAPER, "files.content", "files.other"),
        ("descentlab", "engine import descent as", "engine import flow as"),
        ("descentlab.engine", "descent as descent, flow as flow", "flow as descent"),
        ("descentlab.engine", "64 bits", "32 bits"),
        ("descentlab.engine._setup", "return bits", "return 2 * bits"),
        (ENGINE, "steps.step(gradient, eta)", "steps.step(gradient, 2 * eta)"),
        ("descentlab.engine._steps", "w - eta", "w + eta"),
    ],
    ids=lambda text: str(text)[:30].strip() if "descentlab" not in str(text) else "",
)  # fmt: skip
def test_what_computes_counts(tmp_path: Path, module: str, old: str, new: str):
    assert text_of(tmp_path, edited(module, old, new)) != text_of(tmp_path, TOY)


def test_the_order_of_definitions_does_not_matter(tmp_path: Path):
    tree = ast.parse(TOY[PAPER])
    tree.body.reverse()
    assert text_of(tmp_path, TOY | {PAPER: ast.unparse(tree)}) == text_of(tmp_path, TOY)


SMALL = {
    "descentlab": "",
    "descentlab.papers": "",
    "descentlab.papers.parts": "def used():\n    return 1\nMORE = 2\n",
}


@pytest.mark.parametrize(
    ("source", "counts"),
    [
        ("import descentlab.papers.parts as parts\ndef make_task(): return parts.used()", False),
        ("import descentlab.papers.parts\ndef make_task(): return descentlab.papers.parts.used()", False),
        ("from descentlab.papers import parts\ndef make_task(): return parts.used()", False),
        ("from descentlab.papers.parts import used as own\ndef make_task(): return own()", False),
        ("from .parts import used\ndef make_task(): return used()", False),
        ("def make_task():\n    from descentlab.papers.parts import used\n    return used()", False),
        ("try:\n    from descentlab.papers.parts import used\nexcept ImportError:\n    used = None\n"
         "def make_task(): return used()", False),
        ("from descentlab.papers.parts import *\ndef make_task(): return used()", True),
        ("from descentlab.papers import parts\ndef make_task(): return vars(parts)", True),
        ("from descentlab.papers.parts import made_at_import\ndef make_task(): return made_at_import", True),
        ("from descentlab.papers.parts import used\nmake_task = [lambda: used()]\nMORE = 1", False),
    ],
    ids=["alias", "dotted", "module", "name", "relative", "inside", "either", "star", "whole", "unknown",
         "assigned"],
)  # fmt: skip
def test_imports_are_followed(tmp_path: Path, source: str, counts: bool):
    """Through every kind of import what is used counts; where that is not known, the whole module does."""

    def with_parts(old: str = "", new: str = "") -> str:
        parts = SMALL["descentlab.papers.parts"].replace(old, new)
        return text_of(tmp_path, SMALL | {PAPER: source, "descentlab.papers.parts": parts}, ("make_task",))

    assert with_parts("return 1", "return 2") != with_parts()
    assert (with_parts("MORE = 2", "MORE = 3") != with_parts()) == counts


def test_names_that_are_swapped_count(tmp_path: Path):
    source = "from descentlab.papers.parts import f as a, g as b\ndef make_task(): return a() - b()"
    sources = SMALL | {"descentlab.papers.parts": "def f(): return 1\ndef g(): return 2", PAPER: source}
    swapped = sources | {PAPER: source.replace("f as a, g as b", "g as a, f as b")}
    assert text_of(tmp_path, sources, ("make_task",)) != text_of(tmp_path, swapped, ("make_task",))


# ---------------------------------------------------------------- versions of Python

SAMPLE = r'''
from numpy import exp
@exp.decorator(k=1)
async def make_task(a, /, b: int = 2, *rest, c=None, **more) -> str:
    """A sample of the language."""
    x: dict[str, int] = {"a": -1, **more}
    y = f"{a!r:>{b}} {{}} ä" f"it's {c=}" "\n" + b"\x00".hex() + "ä\U0001fae9"
    match x:
        case {"a": int(v), **kept} if (n := v) > 0.1:
            return [i async for i in kept[1:, ...]]
    with open(a) as file, file:
        del x["a"]
    try:
        assert (lambda z=1j: not z)(), 10**20
    except* ValueError as error:
        raise KeyError(f"{error}") from error
    global state
    state += exp(*rest, axis=None)
'''
RECORDED = Path(__file__).with_name("recorded_code.txt")


def test_the_text_is_the_recorded_one_in_every_python(tmp_path: Path):
    assert text_of(tmp_path, {PAPER: SAMPLE}, ("make_task",)) + "\n" == RECORDED.read_text()


ELSEWHERE = """
import hashlib, importlib.util, json, pathlib, sys
work = json.load(sys.stdin)
spec = importlib.util.spec_from_file_location("code_of_runs", work["code"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for roots in work["roots"]:
    closure = module.Closure(lambda name: pathlib.Path(path) if (path := work["files"].get(name)) else None)
    for root in roots:
        closure.reach(*root)
    print(hashlib.sha256(closure.text().encode()).hexdigest())
"""


def others() -> Iterator[Path]:
    """Other supported versions of Python on this machine, one of each that runs."""
    for minor in {11, 12, 13, 14} - {sys.version_info.minor}:
        places = [Path(folder) / f"python3.{minor}" for folder in os.get_exec_path()]
        found = [place for place in places if place.exists()]
        yield from [p for p in found if subprocess.run([p, "-V"], capture_output=True).returncode == 0][:1]


def test_every_python_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files: dict[str, str] = {}
    roots: list[list[tuple[str, str, int]]] = []
    texts: list[str] = []

    class Watched(Closure):
        def __init__(self, find: Callable[[str], Path | None]) -> None:
            super().__init__(find)
            roots.append([])

        def reach(self, module: str, name: str, line: int = 0) -> str:
            roots[-1].append((module, name, line))
            return super().reach(module, name, line)

        def text(self) -> str:
            texts.append(super().text())
            return texts[-1]

    def source(module: str) -> Path | None:
        if path := find(module):
            files[module] = str(path)
        return path

    find = _code._source
    monkeypatch.setattr(_code, "Closure", Watched)
    monkeypatch.setattr(_code, "_source", source)
    for paper, preset in every_setting():
        version(paper, preset)
    assert len(texts) == len(roots) >= 6
    work = json.dumps({"code": _code.__file__, "files": files, "roots": roots})
    expected = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    for python in others():
        found = subprocess.run(
            [python, "-c", ELSEWHERE], input=work, capture_output=True, text=True, check=True
        )
        assert found.stdout.split() == expected, python


# ---------------------------------------------------------------- the papers


def every_setting() -> Iterator[tuple[Paper, Settings]]:
    """A preset of each class of settings."""
    for name in names():
        paper = load(name)
        for preset in {type(preset): preset for preset in paper.presets.values()}.values():
            yield paper, preset


def version(paper: Paper, preset: Settings) -> str:
    code_hash.cache_clear()
    return paper.code_version(preset)


@pytest.fixture
def edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, Callable[[str], str]], None]]:
    """Edits modules of this package, or has a change made to all (""), as far as hashes see them."""
    changes: dict[str, Callable[[str], str]] = {}
    find = _code._source

    @cache
    def changed(path: Path, change: Callable[[str], str]) -> Path:
        copy = tmp_path / str(next(counter)) / path.name
        copy.parent.mkdir()
        copy.write_text(change(path.read_text()))
        return copy

    def source(module: str) -> Path | None:
        path, change = find(module), changes.get(module) or changes.get("")
        return changed(path, change) if path and change else path

    monkeypatch.setattr(_code, "_source", source)
    yield changes.__setitem__
    code_hash.cache_clear()


def reworded(source: str) -> str:
    """A source with other docstrings, other formatting and no comments."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() if ast.get_docstring(node) is not None:
                node.body[0] = ast.Expr(ast.Constant("Other words."))
            case _:
                pass
    return ast.unparse(tree)


def test_a_rule_that_is_attached_to_a_function_counts(edit: Any):
    paper = load("bilinear_teachers")
    before = version(paper, paper.preset("quick"))
    edit(
        "descentlab.papers.bilinear_teachers",
        lambda source: source.replace("jnp.where(z > 0, 1.0, jnp.where(z < 0, k, at_zero))", "0 * z"),
    )
    assert version(paper, paper.preset("quick")) != before


def test_no_words_count(edit: Any):
    before = [version(*setting) for setting in every_setting()]
    edit("", reworded)
    assert [version(*setting) for setting in every_setting()] == before


def test_the_engine_counts(edit: Any):
    before = [version(*setting) for setting in every_setting()]
    assert len(set(before)) == len(before)
    for module, old, new in (
        ("_rollout", "DIVERGED = 1e6", "DIVERGED = 1e7"),
        ("_program", "jax.random.split(key, 3)[2]", "jax.random.split(key, 4)[2]"),
    ):
        edit(f"descentlab.engine.{module}", lambda source, old=old, new=new: source.replace(old, new))
        now = [version(*setting) for setting in every_setting()]
        assert not set(now) & set(before)
        before = now


def looked_at(paper: Paper, preset: Settings, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The modules that are read to name a run."""
    asked: set[str] = set()
    find = _code._source
    monkeypatch.setattr(_code, "_source", lambda module: (asked.add(module), find(module))[1])
    version(paper, preset)
    monkeypatch.setattr(_code, "_source", find)
    return asked


def test_what_only_reads_runs_is_not_read(monkeypatch: pytest.MonkeyPatch):
    readers = {"theorems", "figures", "judging", "drawing"}
    for setting in every_setting():
        looked = looked_at(*setting, monkeypatch)
        assert not [module for module in looked if readers & set(module.split("."))]


def test_what_reads_and_makes_real_data_counts(monkeypatch: pytest.MonkeyPatch):
    def data(name: str, preset: str) -> set[str]:
        paper = load(name)
        looked = looked_at(paper, paper.preset(preset), monkeypatch)
        return {module.split(".")[2] for module in looked if module.startswith("descentlab.data.")}

    makers = {"_compiled", "_pathfinder_kernel", "imdb", "pathfinder"}
    assert data("attention_kernels", "pathfinder") == makers | {"files"}
    assert data("sign_descent", "mnist") == {"mnist", "files"}
    assert data("attention_kernels", "quick") == set()


def test_a_mended_generator_makes_the_runs_on_its_images_stale(edit: Any):
    paper = load("attention_kernels")

    def now() -> list[str]:
        return [version(paper, paper.preset(name)) for name in ("pathfinder", "quick")]

    before = now()
    for module in ("descentlab.data.files", "descentlab.errors", "descentlab.places"):
        edit(module, lambda source: source.replace("return ", "return 0 or "))
    assert now() == before
    edit("descentlab.data._pathfinder_kernel", lambda source: source.replace("FREE = 0.3", "FREE = 0.4"))
    after = now()
    assert after[0] != before[0]
    assert after[1] == before[1]


# ---------------------------------------------------------------- papers of your own


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], ModuleType]]:
    """Writes a module of a folder of papers and imports it."""
    monkeypatch.setattr(descentlab.papers, "__path__", [*descentlab.papers.__path__, str(tmp_path)])
    imported: list[str] = []

    def write(name: str, source: str) -> ModuleType:
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        now = next(counter)
        os.utime(path, ns=(now, now))
        code_hash.cache_clear()
        importlib.invalidate_caches()
        imported.append(f"descentlab.papers.{name}")
        sys.modules.pop(imported[-1], None)
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        module = importlib.import_module(imported[-1])
        sys.dont_write_bytecode = before
        return module

    yield write
    for name in imported:
        sys.modules.pop(name, None)


def test_modules_that_papers_share_name_their_runs(own: Callable[[str, str], ModuleType]):
    own("_shared", "eta = 1\n")
    paper = own("tables", "from descentlab.papers._shared import eta\ndef make_task(): return eta\n")
    found = []
    for source in ("eta = 1\n", "eta = 2\n", "eta = 2  # the same\nbeta = 3\n"):
        own("_shared", source)
        found.append(code_hash(paper.make_task))
    assert found[0] != found[1] == found[2]


def test_a_paper_in_one_file_is_named_by_what_computes(own: Callable[[str, str], ModuleType]):
    text = (Path(descentlab.papers.__file__).parents[1] / "scaffold" / "your_paper.py").read_text()

    def named(text: str) -> str:
        own("one_file", text)
        load.cache_clear()
        paper = load("one_file")
        return version(paper, paper.preset("quick"))

    before = named(text)
    for old, new, counts in (
        (
            "return task.eigenvalues * (w - task.w_star)",
            "return 2 * task.eigenvalues * (w - task.w_star)",
            True,
        ),
        ("jnp.asarray(p.rate)", "jnp.asarray(2 * p.rate)", True),
        ("probe(excess_loss, ", "probe(lambda w, task: excess_loss(2 * w, task), ", True),
        ('"L(w) - L(w*)"', '"the excess loss"', False),
        ('"numbers of an input"', '"how many numbers an input has"', False),
        ("stays below (1 - eta mu)", "is below (1 - eta mu)", False),
        ("over all seeds: below it", "over seeds: below it", False),
        ("those of the presets are ours", "we chose those of the presets", False),
    ):
        assert text.count(old) == 1, old
        assert (named(text.replace(old, new)) != before) == counts, old


HELD = """
from dataclasses import dataclass
from functools import cache, partial

@dataclass(frozen=True)
class Probe:
    measure: object
    doc: str
    once: bool = False

def scaled(factor):
    def measure(w):
        return measure(factor * w) if w < 0 else w
    return measure

def probe(measure, doc):
    return Probe(lambda w: measure(w), doc)

def loss(w):
    return w**2

def size(w):
    return abs(w)

PROBES = (("loss", probe(loss, "the loss")), ("large", Probe(lambda w: w > 1, "a switch")))
CLAIMS = "claims"
"""


def test_what_roots_hold_counts(own: Callable[[str, str], ModuleType]):
    def named(source: str, root: Callable[[ModuleType], Any]) -> str:
        return code_hash(root(own("held", source)))

    def same(root: Callable[[ModuleType], Any], old: str, new: str) -> bool:
        assert old in HELD
        return named(HELD, root) == named(HELD.replace(old, new), root)

    def probes(module: ModuleType) -> Any:
        return module.PROBES

    assert not same(probes, "return w**2", "return w**3")
    assert not same(probes, "w > 1", "w > 2")
    assert not same(probes, '"large"', '"great"')
    assert not same(probes, 'a switch"', 'a switch", True')
    assert same(probes, "the loss", "the training loss")
    assert same(probes, "a switch", "whether it is large")
    assert same(probes, '"claims"', '"other claims"')
    assert same(probes, "return abs(w)", "return -w")
    module = own("held", HELD)
    assert code_hash(module.scaled(2)) == code_hash(module.scaled(2)) != code_hash(module.scaled(3))
    assert code_hash(partial(module.size, w=1)) == code_hash(partial(module.size, w=1))
    assert code_hash(partial(module.size, w=1)) != code_hash(partial(module.size, w=2))
    assert code_hash(partial(module.size, w=1)) != code_hash(partial(module.loss, w=1))
    assert code_hash(("a", module.loss), ("b", module.size)) != code_hash(
        ("b", module.loss), ("a", module.size)
    )
    assert len(code_hash(module.Probe(module.loss, "").__eq__)) == 16


def test_a_lambda_without_a_statement_counts_its_module(own: Callable[[str, str], ModuleType]):
    def named(source: str) -> str:
        module = own("made", source)
        exec("made = lambda: 1", vars(module))
        return code_hash(module.made)

    assert named("A = 1\n") != named("A = 2\n")


def test_what_has_no_lasting_name_is_refused():
    with pytest.raises(TypeError, match="let a top-level function of a module make it"):
        code_hash(object())
