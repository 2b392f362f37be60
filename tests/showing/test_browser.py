"""The report and the live page in a real browser: no errors, everything moves, everything can be reached."""

import dataclasses
import importlib.util
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from descentlab.drawing import Surface
from descentlab.papers import Table, load
from descentlab.running import Here, Progress, ProgressFile, run
from descentlab.showing.live import server
from descentlab.showing.report import write
from descentlab.showing.reproduce import section
from descentlab.store import Store

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

spec = importlib.util.spec_from_file_location("get_browser", Path(__file__).parents[1] / "get_browser.py")
assert spec is not None
assert spec.loader is not None
get_browser = importlib.util.module_from_spec(spec)
spec.loader.exec_module(get_browser)

BROWSER = get_browser.found()
pytestmark = [
    pytest.mark.skipif(
        BROWSER is None, reason="no browser is here: `python tests/get_browser.py` installs one"
    ),
    pytest.mark.xdist_group("browser"),
]
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
SIZES = {"phone": (375, 740), "desk": (1440, 900)}
CLAIMS = ("excess_loss_in_T", "ood_excess_in_T", "value_direction_recovers", "heatmap_matches_teacher")
CURVES = "#bilinear_teachers-tiny-figure-figure_2"
MOVIE = "#bilinear_teachers-tiny-figure-figure_3 .moves"


def hills(**data: xr.Dataset) -> list[Surface]:
    """The excess loss over steps and seeds, as a landscape."""
    loss = np.log10(next(iter(data.values()))["excess_loss"].transpose("step", "seed").values[1:])
    step, seed = (np.arange(n, dtype=float) for n in loss.shape)
    return [Surface("excess loss", step, seed, loss, "record", "seed")]


def rows(data: dict[str, xr.Dataset]) -> list[list[float]]:
    return [[float(run["excess_loss"][0, -1])] for run in data.values()]


@pytest.fixture(scope="module")
def report(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of real runs: curves, matrices along training, a surface, a table, and claims of two kinds."""
    whole = load("bilinear_teachers")
    figures = {figure.name: figure for figure in whole.figures}
    six = figures["figure_2"].runs
    ends = Table("table_ends", "Excess loss at the end.", lambda **data: (["loss"], rows(data)), six)
    paper = dataclasses.replace(
        whole,
        figures=(dataclasses.replace(figures["figure_2"], moving=hills), figures["figure_3"], ends),
        claims=tuple(claim for claim in whole.claims if claim.name in CLAIMS),
    )
    done = section(paper, "tiny", paper.preset("tiny"), 6, store, pool=Here())
    return write([done], tmp_path_factory.mktemp("report")).parent


# The words of a plot that leave it at a side or below, and pairs of words that overlap.
CUT_OR_CROWDED = """(plate) => {
    const whole = plate.querySelector(".live").getBoundingClientRect(), found = [];
    const words = ".xtick text, .ytick text, .annotation-text, .legendtext, .cbaxis text";
    const boxes = Array.from(plate.querySelectorAll(words))
        .filter((word) => word.textContent.trim() !== "")
        .map((word) => [word.textContent, word.getBoundingClientRect()]);
    boxes.forEach(([text, a], i) => {
        if (a.left < whole.left - 1 || a.right > whole.right + 1 || a.bottom > whole.bottom + 1)
            found.push([text, "cut"]);
        for (const [other, b] of boxes.slice(i + 1)) {
            const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
            const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
            if (across > 2 && down > 4) found.push([text, other]);
        }
    });
    return found;
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser
        browser.close()


class Tab:
    """A page of the browser that remembers what went wrong on it."""

    def __init__(self, browser: Any, size: str, scheme: str) -> None:
        width, height = SIZES[size]
        self.page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.wrong: list[str] = []
        self.page.on("console", self.hear)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("requestfailed", self.fail)

    def fail(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # what a page no longer waits for when it is left
            self.wrong.append(request.url)

    def hear(self, message: Any) -> None:
        # Without a graphics card the browser itself remarks how slow surfaces are.
        slow = any(word in message.text for word in ("ReadPixels", "willReadFrequently"))
        if message.type in ("error", "warning") and not slow:
            self.wrong.append(message.text)

    def open(self, path: Path, anchor: str = "") -> Any:
        self.page.goto(path.as_uri() + anchor)
        return self.page


@pytest.fixture
def tab(chromium: Any, request: pytest.FixtureRequest) -> Iterator[Tab]:
    size, scheme = getattr(request, "param", ("desk", "light"))
    found = Tab(chromium, size, scheme)
    yield found
    found.page.close()
    assert found.wrong == []


everywhere = pytest.mark.parametrize(
    "tab", [(size, scheme) for size in SIZES for scheme in ("light", "dark")], indirect=True, ids="-".join
)


@everywhere
@pytest.mark.parametrize("name", ["index", "bilinear_teachers"])
def test_pages_load_fit_and_are_readable(tab: Tab, report: Path, name: str):
    page = tab.open(report / f"{name}.html")
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0
    ink, ground = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        ".map((c) => c.match(/\\d+/g).slice(0, 3).map(Number))"
    )
    assert abs(sum(ink) - sum(ground)) > 450
    assert (sum(ground) < 200) == page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert page.evaluate("Array.from(document.images).every((image) => image.alt.trim() !== '')")
    assert page.locator("h1").count() == 1


def test_every_plot_is_drawn_and_its_words_are_neither_cut_nor_on_one_another(tab: Tab, report: Path):
    page = tab.open(report / "bilinear_teachers.html")
    plates = page.locator("[data-plot], [data-moving]")
    assert plates.count() == 4
    for i in range(plates.count()):
        plate = plates.nth(i)
        plate.scroll_into_view_if_needed()
        page.wait_for_function(
            f"document.querySelectorAll('[data-plot], [data-moving]')[{i}].classList.contains('drawn')"
        )
        assert plate.locator(".main-svg").count() > 0
        assert not plate.locator(".still").is_visible()
        wrong = plate.evaluate(CUT_OR_CROWDED)
        assert wrong == []


def test_a_surface_is_drawn_and_turns(tab: Tab, report: Path):
    page = tab.open(report / "bilinear_teachers.html", CURVES)
    page.wait_for_selector(f"{CURVES} .moves.drawn")
    eye = f"document.querySelector('{CURVES} .moves .live')._fullLayout.scene.camera.eye"
    before = page.evaluate(eye)
    box = page.locator(f"{CURVES} .moves .gl-container").first.bounding_box()
    page.mouse.move(box["x"] + 150, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 250, box["y"] + 210, steps=5)
    page.mouse.up()
    page.wait_for_function(f"{eye}.x !== {before['x']}")


def test_a_plot_tells_its_numbers_and_finds_ticks_where_it_is_zoomed(tab: Tab, report: Path):
    page = tab.open(report / "bilinear_teachers.html", CURVES)
    page.wait_for_selector(f"{CURVES} [data-plot].drawn")
    figure = page.locator(f"{CURVES} [data-plot]")
    box = figure.locator(".nsewdrag").first.bounding_box()
    for share in (0.3, 0.45, 0.6, 0.75):
        page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * share)
        for _ in range(20):  # a busy machine takes its time
            page.wait_for_timeout(100)
            if figure.locator(".hovertext").count():
                break
        else:
            continue
        break
    assert "seeds" in figure.locator(".hovertext").first.text_content()
    assert figure.get_by_role("button", name="Share").count() == 0
    plot = f"document.querySelector('{CURVES} [data-plot] .live')"
    printed = page.evaluate(f"{plot}.layout.xaxis.range")
    for ends, mode in (([1.1, 1.4], "auto"), (printed, "array")):
        page.evaluate(f"Plotly.relayout({plot}, {{'xaxis.range': {ends}}})")
        page.wait_for_function(f"{plot}.layout.xaxis.tickmode === '{mode}'")


def entries(page: Any) -> list[float]:
    return page.evaluate(f"document.querySelector('{MOVIE} .live').data[0].z.flat()")


@everywhere
def test_the_slider_moves_the_matrix(tab: Tab, report: Path):
    page = tab.open(report / "bilinear_teachers.html", "#bilinear_teachers-tiny-figure-figure_3")
    page.wait_for_selector(f"{MOVIE}.drawn")
    slider, words = page.locator(f"{MOVIE} input"), page.locator(f"{MOVIE} output")
    last = entries(page)
    assert words.inner_text() != "step 0"
    slider.focus()
    page.keyboard.press("Home")
    page.wait_for_function(f"document.querySelector('{MOVIE} output').textContent === 'step 0'")
    first = entries(page)
    assert max(first) - min(first) < 0.01 < 0.5 < max(last) - min(last)
    page.keyboard.press("ArrowRight")
    assert slider.input_value() == "1"
    assert slider.get_attribute("aria-valuetext") == words.inner_text()


def test_the_movie_plays_and_stops(tab: Tab, report: Path):
    page = tab.open(report / "bilinear_teachers.html", "#bilinear_teachers-tiny-figure-figure_3")
    page.wait_for_selector(f"{MOVIE}.drawn")
    button, slider = page.locator(f"{MOVIE} button.play"), page.locator(f"{MOVIE} input")
    button.press("Enter")
    assert button.inner_text() == "Stop"
    page.wait_for_function(f"Number(document.querySelector('{MOVIE} input').value) >= 3")
    button.press("Enter")
    assert button.inner_text() == "Play"
    at = slider.input_value()
    page.wait_for_timeout(400)
    assert slider.input_value() == at


def test_cards_open_by_pointer_by_keys_and_by_link(tab: Tab, report: Path):
    page = tab.open(report / "bilinear_teachers.html")
    cards = page.locator("details.card")
    assert page.locator("details.card[open]").count() == 0
    cards.nth(0).locator("summary").click()
    cards.nth(1).locator("summary").press("Enter")
    assert page.locator("details.card[open]").count() == 2
    assert cards.nth(0).get_by_text("Must refute").is_visible()
    assert cards.nth(0).locator("img").is_visible()
    page.get_by_role("button", name="Open all").click()
    assert page.locator("details.card[open]").count() == cards.count()
    page.goto((report / "index.html").as_uri())
    tile = page.locator(".tile").last
    target = tile.get_attribute("href").partition("#")[2]
    tile.click()
    assert page.locator(f"#{target}[open]").count() == 1


def test_claims_are_filtered_by_outcome(tab: Tab, report: Path):
    page = tab.open(report / "index.html")
    rows = page.locator("tr[data-outcome]")
    page.get_by_role("button", name="SUPPORTED").click()
    shown = [row for row in rows.all() if row.is_visible()]
    assert len(shown) > 0
    assert {row.get_attribute("data-outcome") for row in shown} == {"SUPPORTED"}
    page.get_by_role("button", name="All").click()
    assert all(row.is_visible() for row in rows.all())
    page.locator(".counts a", has_text="REFUTED").click()
    assert {row.get_attribute("data-outcome") for row in rows.all() if row.is_visible()} == {"REFUTED"}


@everywhere
def test_everything_can_be_reached_by_keys(tab: Tab, report: Path):
    page = tab.open(report / "index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(200):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("document.activeElement.className.split(' ')[0] || document.activeElement.tagName")
        )
    assert {"tile", "A", "BUTTON", "scroll"} <= reached
    page.goto((report / "bilinear_teachers.html").as_uri())
    names = page.evaluate(
        "Array.from(document.querySelectorAll('a[href], button, input, summary, [role=region]'))"
        ".filter((e) => e.checkVisibility() && e.tabIndex < 0).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert names == []


def test_the_numbers_on_the_front_page_are_those_of_the_json(tab: Tab, report: Path):
    page = tab.open(report / "index.html")
    [section] = json.loads((report / "verdicts.json").read_text())
    shown = page.evaluate(
        "Array.from(document.querySelectorAll('tr[data-outcome]')).map((row) => ["
        "row.querySelector('code').textContent, row.dataset.outcome, "
        "Number(row.querySelector('.measured data')?.value ?? NaN)])"
    )
    for (name, outcome, value), claim in zip(shown, section["claims"], strict=True):
        assert (name, outcome) == (claim["claim"], claim["outcome"])
        assert value == claim["value"]


@everywhere
def test_the_live_page_follows_a_run(tab: Tab, tmp_path: Path):
    store = Store(tmp_path)
    file = ProgressFile(store, ["bowl-1"], "bowl eta=0.1", 100, 3, [0, 1, 10, 100], "loss")
    with server(store, 0) as httpd:
        threading.Thread(target=httpd.serve_forever, args=(0.05,), daemon=True).start()
        page = tab.page
        page.goto(f"http://127.0.0.1:{httpd.server_address[1]}/")
        page.wait_for_function(
            "document.querySelector('#where').textContent.startsWith('Nothing is being computed')"
        )
        file.step(40, 0.5)
        page.wait_for_function("document.querySelectorAll('.jobs progress').length === 1")
        assert page.locator(".jobs progress").get_attribute("value") == "40"
        assert "bowl eta=0.1" in page.locator(".jobs").inner_text()
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide == 0
        page.goto("about:blank")
        httpd.shutdown()


class Looks(Progress):
    """Looks at the page while a run goes on: its curve has what the latest checkpoint has."""

    def __init__(self, page: Any) -> None:
        self.page, self.seen = page, [0]

    def step(self, step: int, loss: float) -> None:
        if step in (8, 16):
            longer = f"document.querySelector('#curve').data?.[2].x.length > {self.seen[-1]}"
            self.page.wait_for_function(longer)
            self.seen.append(self.page.evaluate("document.querySelector('#curve').data[2].x.length"))


def test_curves_on_the_live_page_grow_while_a_run_goes_on(
    tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store, paper = Store(tmp_path), load("sign_descent")
    small = paper.preset("tiny").replace(d=60, s=8, m_k=10, m_v=10, n_test=20, steps=20)
    monkeypatch.setattr("descentlab.engine._rollout.PIECE_SECONDS", 0.0)
    monkeypatch.setattr("descentlab.running._worker.KEEP_SECONDS", -1.0)
    with server(store, 0) as httpd:
        threading.Thread(target=httpd.serve_forever, args=(0.05,), daemon=True).start()
        tab.page.goto(f"http://127.0.0.1:{httpd.server_address[1]}/")
        looks = Looks(tab.page)
        run(paper, small, 3, store, progress=looks)
        assert len(looks.seen) == 3
        assert looks.seen[2] > looks.seen[1] > 0
        assert tab.page.locator("#matrix .main-svg").count() > 0
        tab.page.goto("about:blank")
        httpd.shutdown()
