"""The report: one page that holds every verdict, needs nothing else, and survives what papers do wrong."""

import csv
import dataclasses
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure as Canvas

from descentlab.engine import Settings, parameter, preset
from descentlab.judging import Assumption, Claim, Interval, Mutant, Outcome
from descentlab.judging import _claims as claim
from descentlab.judging import _estimates as estimate
from descentlab.papers import Deviation, Experiment, Figure, Paper, Table
from descentlab.running import _experiments as experiment
from descentlab.showing.report import Section, write
from descentlab.showing.report.drawing import _picture
from descentlab.showing.report.files import Files
from descentlab.showing.report.strip import EDGE, WIDTH, strip
from descentlab.showing.report.tables import _bare, escaped
from descentlab.words import distinct, interval, number

HOSTILE = "<script>alert('x')</script> & \"quoted\""
VOID = {"meta", "link", "br", "img", "input", "hr"}


@preset
class Preset(Settings):
    """Few letters."""

    n: int = parameter("training samples", default=20)
    eta: float = parameter("step size", default=1e-4)
    steps: int = parameter("training steps", default=20_000)

    @property
    def reach(self) -> float:
        """How far sign descent gets, eta steps.

        More words that the page leaves out.
        """
        return self.eta * self.steps


DEFAULT = Preset(n=20, eta=1e-4, steps=20_000)


def trajectory(rate: float) -> xr.Dataset:
    steps = np.unique(np.geomspace(1, 20_000, 40).astype(int))
    wobble = 1 + 0.02 * np.random.default_rng(0).normal(size=(5, 1))
    loss = wobble * steps[None] ** -rate
    return xr.Dataset({"loss": (("seed", "step"), loss)}, coords={"seed": np.arange(5), "step": steps})


def slope(run: xr.Dataset) -> estimate.Estimate:
    x, y = np.log(run["step"].values), np.log(run["loss"].values)
    slopes = [np.polyfit(x, series, 1)[0] for series in y] + np.linspace(-0.02, 0.02, 5)
    return estimate.mean(slopes, range={"step": (1, 20_000)}, notes={"r_squared": 0.99987654})


def last(run: xr.Dataset) -> estimate.Estimate:
    return estimate.mean(run["loss"][:, -1])


def missing(run: xr.Dataset) -> estimate.Estimate:
    return estimate.mean(run["no_such_probe"])


def curve(run: xr.Dataset, other: xr.Dataset) -> Canvas:
    canvas = Canvas(figsize=(7, 3.6), layout="constrained")
    axes = canvas.subplots(1, 2)
    for ax, data in zip(axes, (run, other), strict=True):
        ax.loglog(data["step"], data["loss"].T)
        ax.set(xlabel="step", ylabel="training loss")
    return canvas


def fails(run: xr.Dataset) -> Canvas:
    raise RuntimeError(f"no ink {HOSTILE}")


def no_rows(run: xr.Dataset) -> tuple[list[str], list[list]]:
    raise ZeroDivisionError("division by zero")


def rows(run: xr.Dataset) -> tuple[list[str], list[list]]:
    return ["step", "loss"], [[int(t), float(run["loss"].sel(step=t).mean())] for t in (1, 20_000)]


REGIME = Assumption("n >= 2 d", lambda p: p.n >= 40, lambda p: p.n / 20)
SMALL = Assumption("eta = O(1/n)", lambda p: True, lambda p: p.eta * p.n, exact=False)
FLAT = Mutant("flat_loss", alter=lambda data: data)
CLAIMS = (
    Claim(
        "decays", "Theorem 3.1(2)", "The training loss decays like 1/T.", slope, Interval(-1.1, -0.9),
        assumes=(SMALL,), mutants=(FLAT,), margin="A tenth is the drift of a log factor here.",
    ),
    Claim("decays_fast", "Theorem 3.2", "The training loss decays like 1/T².", slope, Interval(-2.1, -1.9)),
    Claim("stays_up", "Remark 4", "The loss stays above a constant.", slope, Interval(-1.005, math.inf)),
    Claim("in_regime", "Lemma 5", "The loss is small for large n.", last, Interval(0, 1), assumes=(REGIME,)),
    Claim("is_there", "Lemma 6", "The probe is bounded.", missing, Interval(0, 1)),
)  # fmt: skip
TWO = {"run": {}, "other": {"eta": 2e-4}}
FIGURES = (
    Figure("figure_1", "Training loss at two step sizes.", curve, TWO, ("decays",)),
    Table("table_1", "Loss at the ends.", rows, claims=("decays", "decays_fast")),
)
DEVIATIONS = (Deviation("Sizes", "The paper does not give them."),)


def make_paper(**attributes: Any) -> Paper:
    experiment = Experiment({"quick": DEFAULT}, unused, unused, {})
    found: dict[str, Any] = {
        "title": "Toy descent", "citation": "A. Author, Journal, 2025.", "experiment": experiment,
        "name": "toy", "module": ModuleType("toy"), "experiments": (experiment,), "claims": CLAIMS,
        "figures": FIGURES, "deviations": DEVIATIONS,
    }  # fmt: skip
    return Paper(**(found | attributes))


def unused(*_: object) -> None:
    """What a report does not call."""


def make_section(store: Path, paper: Paper | None = None, chosen: Preset | None = None) -> Section:
    paper, chosen = paper or make_paper(), chosen or DEFAULT
    runs = {}
    for one in experiment.needed(chosen, [*paper.claims, *paper.figures]):
        name = f"toy-{one.settings()['eta']:g}"
        (store / name).mkdir(parents=True, exist_ok=True)
        manifest = {
            "seeds": 5, "written": "2025-01-01T00:00:00+00:00", "versions": {"jax": "0.12.3"},
            "machine": {"system": "Linux", "processor": "x86_64", "cores": 8},
        }  # fmt: skip
        (store / name / "run.json").write_text(json.dumps(manifest))
        runs[one] = experiment.Run(name, one, store / name / "seeds-5.nc", 12.3456, trajectory(1.0))
    return Section(paper, "quick", chosen, 5, experiment.verdicts(list(paper.claims), chosen, runs), runs)


def pages(tmp_path: Path, *sections: Section) -> dict[str, str]:
    """All pages of a report by name, the front page first."""
    front = write(sections, tmp_path / "report")
    others = sorted(path for path in front.parent.glob("*.html") if path != front)
    return {path.name: path.read_text(encoding="utf-8") for path in (front, *others)}


def written(tmp_path: Path, *sections: Section) -> str:
    return "\n".join(pages(tmp_path, *sections).values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def section(folder: Path) -> Section:
    return make_section(folder / "store")


@pytest.fixture(scope="module")
def report(folder: Path, section: Section) -> dict[str, str]:
    return pages(folder, section)


@pytest.fixture(scope="module")
def page(report: dict[str, str]) -> str:
    return "\n".join(report.values())


class Reader(HTMLParser):
    """Tags that do not match, ids, links, sources, texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.text: list[str] = []
        self.numbers: list[tuple[str, str]] = []
        self.feed(page)
        self.close()

    def handle_startendtag(self, tag, attrs):
        self.note(attrs)

    def handle_starttag(self, tag, attrs):
        self.note(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "data":
            self.numbers.append((dict(attrs)["value"] or "", ""))

    def note(self, attrs):
        self.ids += [v for k, v in attrs if k == "id"]
        self.targets += [v for k, v in attrs if k in ("href", "src", "xlink:href", "srcset", "poster")]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] == "data":
            value, text = self.numbers[-1]
            self.numbers[-1] = value, text + data


def test_the_toy_paper_shows_every_outcome(section: Section):
    assert {v.outcome for v in section.verdicts} == set(Outcome)


def test_every_claim_stands_on_the_page_with_its_outcome(page: str, section: Section):
    for v in section.verdicts:
        row = re.search(rf'<tr data-outcome="{v.outcome}">\s*<th[^>]*><a [^>]*><code>{v.claim}</code>', page)
        assert row, v.claim
        assert v.statement in page


def test_outcomes_are_counted_in_the_header(page: str):
    for outcome in Outcome:
        assert f'<strong>1</strong> <span class="badge {outcome}">{outcome}</span>' in page


def test_numbers_are_those_of_the_json(page: str, section: Section):
    shown = dict(Reader(page).numbers)
    for v in (v.as_json() for v in section.verdicts):
        if v["value"] is None:
            continue
        low, value, high = distinct(v["low"], v["value"], v["high"])
        assert shown[str(v["value"])] == value
        assert f"[{low}, {high}]" in page
        assert value.replace("−", "-") == f"{v['value']:.4g}" or abs(v["value"]) < 1e-4


def test_predictions_and_adjusted_levels_are_shown(page: str, section: Section):
    assert "[−1.1, −0.9]" in page
    assert "[−1.005, ∞)" in page
    assert f"{100 * section.verdicts[0].level:.4g} % (Holm)" in page


def test_a_card_holds_all_that_is_known_of_a_claim(page: str):
    card = page[page.index('<details class="card" id="toy-quick-claim-decays"') :].partition("</details>")[0]
    for part in ("Theorem 3.1(2)", "step 1 to 20000", "eta = O(1/n)", "0.002</data>", "does not gate",
                 "r_squared", "0.9999", "A tenth is the drift", "flat_loss", "toy-0.0001",
                 'href="#toy-quick-figure-figure_1"', 'href="#toy-quick-figure-table_1"'):  # fmt: skip
        assert part in card, part


def test_reasons_and_unmet_assumptions_are_shown(page: str):
    assert "missing in the data: " in page
    assert "no_such_probe" in page
    assert "needs" in page
    assert re.search(r'class="unmet">n &gt;= 2 d: measured <data value="1.0">1</data>, not met', page)


def test_settings_come_with_meaning_and_derived_numbers(page: str):
    assert "<code>eta</code></th><td>0.0001</td><td>step size</td>" in page
    assert "<code>reach</code></th><td>2</td><td>How far sign descent gets, eta steps. <small>" in page
    assert "More words" not in page


def test_a_changed_setting_is_marked_and_in_the_command(tmp_path: Path):
    page = written(tmp_path, make_section(tmp_path / "store", make_paper(figures=()), DEFAULT.replace(n=50)))
    assert "(preset: 20)" in page
    assert "descentlab judge toy quick --set n=50 --seeds 5" in page


def test_provenance_names_versions_machine_and_how_to_open(page: str):
    for part in ("jax 0.12.3", "Linux x86_64, 8 cores", "12.3", "toy eta=0.0002",
                 'xarray.open_dataset("../store/toy-0.0001/seeds-5.nc")'):  # fmt: skip
        assert part in page, part


def test_a_lost_manifest_is_told(tmp_path: Path):
    section = make_section(tmp_path / "store", make_paper(figures=()))
    (tmp_path / "store" / "toy-0.0001" / "run.json").unlink()
    assert "its run.json cannot be read" in written(tmp_path, section)


def test_deviations_and_commands_are_there(page: str):
    assert "The paper does not give them." in page
    assert "descentlab reproduce toy --scale quick --seeds=5" in page


def test_tables_are_tables(page: str):
    assert '<td class="n">20000</td>' in page
    assert "Loss at the ends." in page


def test_the_report_refers_to_nothing_outside(report: dict[str, str], folder: Path):
    texts = [
        *report.values(),
        *((folder / "report" / "assets" / f"page.{kind}").read_text() for kind in ("css", "js")),
    ]
    for text in texts:
        assert not re.search(r"https?://|@import|url\((?!#)", text)


def test_the_pages_are_well_formed(report: dict[str, str]):
    assert list(report) == ["index.html", "toy.html"]
    for page in report.values():
        reader = Reader(page)
        assert reader.wrong == []
        assert reader.open == []
        assert len(reader.ids) == len(set(reader.ids))


def test_every_link_has_its_target(report: dict[str, str], folder: Path):
    ids = {name: set(Reader(page).ids) for name, page in report.items()}
    for name, page in report.items():
        for target in Reader(page).targets:
            if target.startswith("data:"):
                continue
            file, _, anchor = target.partition("#")
            if not file.endswith(".nc"):  # the toy runs were never written
                assert (folder / "report" / (file or name)).exists(), target
            assert not anchor or anchor in ids[file or name], target


def test_two_sections_of_one_preset_have_ids_of_their_own(tmp_path: Path, section: Section):
    found = pages(tmp_path, section, section)
    assert list(found) == ["index.html", "toy.html"]
    for page in found.values():
        reader = Reader(page)
        assert len(reader.ids) == len(set(reader.ids))


def test_hostile_words_are_escaped(tmp_path: Path):
    claims = (dataclasses.replace(CLAIMS[0], statement=HOSTILE, cite=HOSTILE, margin=HOSTILE),)
    figures = (
        dataclasses.replace(FIGURES[0], name=HOSTILE, caption=HOSTILE),
        Table("t", HOSTILE, lambda run: ([HOSTILE], [[HOSTILE]])),
    )
    paper = make_paper(
        title=HOSTILE, citation=HOSTILE, claims=claims, figures=figures,
        deviations=(Deviation(HOSTILE, HOSTILE),),
    )  # fmt: skip
    for page in pages(tmp_path, make_section(tmp_path / "store", paper)).values():
        assert page.count("<script") == 1
        assert Reader(page).wrong == []
        assert "&lt;script&gt;alert" in page


def test_a_figure_that_raises_is_shown_and_costs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    broken = (Figure("figure_9", "Never seen.", fails), Table("table_9", "Neither.", no_rows))
    page = written(tmp_path, make_section(tmp_path / "store", make_paper(figures=(*broken, *FIGURES))))
    assert "2 figures could not be drawn" in page
    assert page.count("RuntimeError: no ink &lt;script&gt;") == 2
    assert "ZeroDivisionError: division by zero" in page
    assert "Training loss at two step sizes." in page
    assert Reader(page).wrong == []
    assert "toy: figure_9 could not be drawn." in capsys.readouterr().err


def test_figures_carry_their_caption_as_alternative_text(page: str):
    assert re.search(r'<img class="still"[^>]*figure_1\.svg" alt="Training loss at two step sizes."', page)


def test_a_large_figure_becomes_a_png(tmp_path: Path):
    canvas, files = curve(trajectory(1.0), trajectory(2.0)), Files(tmp_path)
    assert _picture(canvas, "f", files) == "figures/f.svg"
    assert _picture(canvas, "f", files, largest=1000) == "figures/f.png"
    assert (tmp_path / "figures" / "f.png").read_bytes().startswith(b"\x89PNG")


def test_an_empty_report_is_a_page(tmp_path: Path):
    assert Reader(written(tmp_path)).wrong == []


def test_a_report_takes_the_place_of_an_earlier_one_and_of_nothing_else(tmp_path: Path, section: Section):
    out = tmp_path / "deep" / "report"
    path = write([section], out)
    assert path == out / "index.html"
    first = {file.relative_to(out) for file in out.rglob("*") if file.is_file()}
    (out / "plots" / "old.js").write_text("left by an earlier report")
    (out / "notes.txt").write_text("somebody's own")
    write([section], out)
    assert {file.relative_to(out) for file in out.rglob("*") if file.is_file()} == {*first, Path("notes.txt")}


# ---------------------------------------------------------------- tables to take along


def test_the_json_is_that_of_the_command_line(folder: Path, report: dict[str, str], section: Section):
    [found] = json.loads((folder / "report" / "verdicts.json").read_text())
    assert set(found) == {"paper", "preset", "settings", "seeds", "claims"}
    assert found["claims"] == json.loads(json.dumps([v.as_json() for v in section.verdicts]))


def test_the_csv_has_the_numbers_of_the_json(folder: Path, report: dict[str, str], section: Section):
    with (folder / "report" / "verdicts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, verdict in zip(rows, (v.as_json() for v in section.verdicts), strict=True):
        assert (row["paper"], row["claim"], row["outcome"]) == ("toy", verdict["claim"], verdict["outcome"])
        for name in ("value", "low", "high"):
            assert (float(row[name]) if row[name] else None) == verdict[name]
        bounds = [
            float(row[f"predicted_{end}"]) if row[f"predicted_{end}"] else None for end in ("low", "high")
        ]
        assert bounds == verdict["predicts"]


def test_the_latex_table_has_a_row_a_claim_and_no_bare_signs(folder: Path, report: dict[str, str]):
    text = (folder / "report" / "verdicts.tex").read_text()
    assert r"decays\_fast (Theorem 3.2) & refuted & $-1$" in text
    assert r"$[-1.005,\ \infty]$ \\" in text
    assert r"is\_there (Lemma 6) & broken & -- & --" in text
    assert text.isascii()
    assert text.count(r"\\") == len(CLAIMS) + 2


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("a_b & 5 %", r"a\_b \& 5 \%"),
        ("x^2 ~ {y}", r"x\textasciicircum{}2 \textasciitilde{} \{y\}"),
        ("\\", r"\textbackslash{}"),
    ],
)
def test_words_are_escaped_for_latex(words: str, shown: str):
    assert escaped(words) == shown


def test_powers_are_latexs_own():
    assert _bare("−2.5×10⁻⁷") == r"-2.5 \times 10^{-7}"
    assert _bare("10³⁰⁰") == "10^{300}"


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0, "0"), (1e-5, "10⁻⁵"), (-2.5e-7, "−2.5×10⁻⁷"), (0.1 + 0.2, "0.3"),
        (99999.7, "100000"), (123456.7, "123457"), (1e300, "10³⁰⁰"), (999.96, "1000"), (0.5, "0.5"),
        (math.nan, "–"), (None, "–"), (-math.inf, "−∞"), (np.float32(0.5), "0.5"), (np.int64(7), "7"),
        (True, "yes"), (np.False_, "no"), ("word", "word"), (xr.DataArray(2.0), "2"),
    ],
)  # fmt: skip
def test_numbers_read_well(x: object, text: str):
    assert number(x) == text


def test_close_ends_of_an_interval_get_more_digits():
    assert interval(1.00001, 1.00002) == "[1.00001, 1.00002]"
    assert interval(1.0, 1.0 + 1e-12) == "[1, 1]"


def verdict(value: float, low: float, high: float, predicts: Interval) -> claim.Verdict:
    return claim.Verdict("c", "T", "s", Outcome.UNDECIDED, predicts, 0.95, value, low, high)


def test_a_strip_keeps_the_order_of_its_numbers():
    s = strip(verdict(1.0, 0.9, 1.1, Interval(0.5, 1.5)))
    assert s.bar is not None
    assert s.dot is not None
    assert EDGE < s.band.start < s.bar.start < s.dot < s.bar.end < s.band.end < WIDTH - EDGE
    assert (s.band.left, s.band.right, s.bar.left, s.bar.right) == (False, False, False, False)


def test_infinite_ends_of_a_strip_are_arrows():
    s = strip(verdict(math.inf, 3.0, math.inf, Interval(2.0, math.inf)))
    assert s.bar is not None
    assert s.dot is None
    assert (s.band.left, s.band.right, s.bar.left, s.bar.right) == (False, True, False, True)


def test_a_wide_estimate_does_not_squeeze_the_prediction():
    s = strip(verdict(-1.0, -1e6, 1e6, Interval(-1.1, -0.9)))
    assert s.bar is not None
    assert s.band.width > WIDTH / 12
    assert s.bar.left
    assert s.bar.right


def test_nothing_measured_leaves_the_band_alone():
    s = strip(verdict(math.nan, math.nan, math.nan, Interval()))
    assert (s.bar, s.dot) == (None, None)
    assert s.band.left
    assert s.band.right
