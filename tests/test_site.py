"""The site: it builds without a warning, loads nothing from a network, and says what the code says."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import verdict_tables

from descentlab.papers import _registry as paper

ROOT = Path(__file__).parents[1]

# What a browser fetches by itself when it shows a page.
LOADS = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|srcset|data)=[\"']?([^\s\"'>]+)"
)
LINKS = re.compile(r"<link\b(?![^>]*rel=[\"']?(?:canonical|prev|next))[^>]*href=[\"']?([^\s\"'>]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_nothing_is_fetched_when_a_page_is_read(site: Path):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        text = page.read_text()
        for found in [*LOADS.findall(text), *LINKS.findall(text)]:
            assert not re.match(r"(https?:)?//", found), f"{page} loads {found}"
            if not found.startswith(("data:", "#")) and page.name != "404.html":
                assert (page.parent / found.partition("?")[0]).exists(), f"{page} lacks {found}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", sheet.read_text()), sheet


@pytest.mark.parametrize("name", paper.names())
def test_a_paper_has_a_page_with_all_of_its_claims_settings_and_deviations(name: str, site: Path):
    text = html.unescape(re.sub(r"<[^>]+>", "", (site / "papers" / f"{name}.html").read_text()))
    one = paper.load(name)
    judged = verdict_tables.recorded(name)
    for document in judged:
        for claim in document["claims"]:
            assert claim["claim"] in text
    for deviation in one.deviations:
        assert deviation.subject in text
    for setting in one.preset("quick").settings():
        assert setting in text
    assert f"descentlab judge {name}" in text


def test_recorded_verdicts_are_on_claims_that_there_are():
    recorded = verdict_tables.recorded()
    assert recorded
    for document in recorded:
        claims = paper.load(document["paper"]).claims_of(document["preset"])
        assert {found["claim"] for found in document["claims"]} == {claim.name for claim in claims}


def test_readme_has_the_recorded_verdicts():
    assert verdict_tables.readme(verdict_tables.recorded()) in (ROOT / "README.md").read_text()
