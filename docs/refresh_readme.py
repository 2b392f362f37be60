"""Records verdicts and pictures anew from the store, running what it lacks, and writes README's tables.

make readme                                  all papers
python docs/refresh_readme.py sign_descent   one paper; the others stay as they are recorded

It writes docs/recorded/PAPER.PRESET.json, pictures into docs/images/PAPER/, and what README has of both.
"""

import argparse
import io
import json
import re
from pathlib import Path

import verdict_tables
from PIL import Image

from descentlab import Store
from descentlab.drawing import rendered, save
from descentlab.papers import Figure, Paper
from descentlab.papers import _registry as paper
from descentlab.running import Processes
from descentlab.showing.report import Section
from descentlab.showing.report.tables import as_json
from descentlab.showing.reproduce import section
from descentlab.showing.terminal import Display

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images"
README_PICTURES = {
    ("sign_descent", "figure_all_stages"): "stages",
    ("sign_descent", "figure_generalisation"): "generalisation",
}
STUDIES = {"sign_descent": ("generalisation",)}  # whose pictures README has
SEEDS = 8
MARKS = re.compile(r"(<!-- verdicts -->\n).*(\n<!-- end of verdicts -->)", re.DOTALL)


def draw(found: Section) -> None:
    """The section's figures as pictures for pages: WebP without loss, and PNG for README."""
    folder = IMAGES / found.paper.name
    folder.mkdir(parents=True, exist_ok=True)
    for figure in found.paper.figures_of(found.preset_name):
        if not isinstance(figure, Figure):
            continue
        data = {name: found.runs[found.preset.replace(own)].data for name, own in figure.runs.items()}
        canvas = figure(**data)
        if file := README_PICTURES.get((found.paper.name, figure.name)):
            save(canvas, IMAGES / f"{file}.png")
        picture = io.BytesIO(rendered(canvas, "png"))
        Image.open(picture).convert("RGB").quantize(256).save(folder / f"{figure.name}.webp", lossless=True)


def record(one: Paper, display: Display) -> None:
    """Keeps verdicts and pictures of a paper at quick scale, and of what is reproduced along with it."""
    for name in ("quick", *one.along_with.get("quick", ())):
        found = section(one, name, one.preset(name), SEEDS, Store(), pool=Processes(), progress=display)
        text = json.dumps(as_json(found), indent=1)
        (verdict_tables.RECORDED / f"{one.name}.{name}.json").write_text(text + "\n")
        draw(found)
    for name in STUDIES.get(one.name, ()):
        draw(section(one, name, one.preset(name), SEEDS, Store(), pool=Processes(), progress=display))


def write_readme() -> None:
    """Replaces what stands between README's markers."""
    readme = ROOT / "README.md"
    tables = verdict_tables.readme(verdict_tables.recorded())
    readme.write_text(MARKS.sub(lambda marks: marks[1] + tables + marks[2], readme.read_text()))


def main() -> None:
    """Records the papers that are named, or all."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("papers", nargs="*", metavar="PAPER", help="papers to record; all if none is named")
    names = words.parse_args().papers or paper.names()
    verdict_tables.RECORDED.mkdir(exist_ok=True)
    with Display(Store()) as display:
        for name in names:
            record(paper.load(name), display)
    write_readme()


if __name__ == "__main__":
    main()
