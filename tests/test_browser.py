"""The report and the live page in a real browser: no errors, everything moves, everything can be reached."""

import importlib.util
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from descentlab.beacon import Beacon
from descentlab.fleet import Here
from descentlab.live import server
from descentlab.paper import load
from descentlab.reproduce import reproduce
from descentlab.store import Store
from descentlab.watcher import Watcher

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

spec = importlib.util.spec_from_file_location("get_browser", Path(__file__).with_name("get_browser.py"))
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
MOVIE = "#bilinear_teachers-tiny-figure-figure_3 .moves"


@pytest.fixture(scope="module")
def report(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a small real run, with curves, matrices along training and tables."""
    paper = load("bilinear_teachers")
    out = tmp_path_factory.mktemp("report")
    path, _ = reproduce([(paper, paper.preset("tiny"))], "tiny", 6, store.path, out, Here())
    return path.parent


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
        self.page.on(
            "console", lambda m: self.wrong.append(m.text) if m.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("requestfailed", lambda request: self.wrong.append(request.url))

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


def test_every_plot_is_drawn(tab: Tab, report: Path):
    page = tab.open(report / "bilinear_teachers.html")
    plates = page.locator("[data-plot]")
    assert plates.count() >= 8
    for i in range(plates.count()):
        plates.nth(i).scroll_into_view_if_needed()
        page.wait_for_function(f"document.querySelectorAll('[data-plot]')[{i}].classList.contains('drawn')")
        assert plates.nth(i).locator(".main-svg").count() > 0
        assert not plates.nth(i).locator("img.still").is_visible()


def test_a_plot_tells_its_numbers_under_the_pointer(tab: Tab, report: Path):
    page = tab.open(report / "bilinear_teachers.html", "#bilinear_teachers-tiny-figure-figure_2")
    figure = page.locator("#bilinear_teachers-tiny-figure-figure_2 [data-plot]")
    page.wait_for_selector("#bilinear_teachers-tiny-figure-figure_2 .drawn")
    drag = figure.locator(".nsewdrag").first
    box = drag.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    for share in (0.3, 0.45, 0.6, 0.75):
        page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * share)
        page.wait_for_timeout(150)
        if figure.locator(".hovertext").count():
            break
    assert figure.locator(".hovertext").count() > 0
    assert figure.get_by_role("button", name="Share").count() == 0


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
    beacon = Beacon(store, ["bowl-1"], Watcher())
    with server(store, 0) as httpd:
        threading.Thread(target=httpd.serve_forever, args=(0.05,), daemon=True).start()
        page = tab.page
        page.goto(f"http://127.0.0.1:{httpd.server_address[1]}/")
        page.wait_for_function(
            "document.querySelector('#where').textContent.startsWith('Nothing is being computed')"
        )
        beacon.begin("bowl eta=0.1", 100, 3)
        beacon.recorded([0, 1, 10, 100], "loss")
        beacon.progress(40, 0.5)
        beacon._light()
        page.wait_for_function("document.querySelectorAll('.tasks progress').length === 1")
        assert page.locator(".tasks progress").get_attribute("value") == "40"
        assert "bowl eta=0.1" in page.locator(".tasks").inner_text()
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide == 0
        page.goto("about:blank")
        httpd.shutdown()
    # The run has no folder yet, which the page is told by a 404.
    tab.wrong[:] = [text for text in tab.wrong if "404" not in text and "run/bowl-1" not in text]
