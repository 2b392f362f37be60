"""The report: a folder of pages, pictures, interactive plots and tables that needs no network.

write([Section(paper, "quick", preset, seeds, verdicts, runs)], Path("report"))

    index.html      all verdicts at a glance
    atlas.html      papers' tasks crossed with optimisers and kernels, if asked for
    PAPER.html      claims as cards, figures, settings, deviations, runs
    verdicts.*      the verdicts as CSV, LaTeX and JSON
    figures/        pictures as SVG     plots/  what moves under the pointer     data/  the figures' numbers
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup

from descentlab.atlas import Atlas
from descentlab.judging import Outcome
from descentlab.showing.report import tables, typeface
from descentlab.showing.report.atlas import PAGE as ATLAS_PAGE
from descentlab.showing.report.atlas import atlas_map
from descentlab.showing.report.chapter import Chapter, chapter, judge_command
from descentlab.showing.report.chapter import Section as Section
from descentlab.showing.report.files import Files
from descentlab.showing.report.tex import prose
from descentlab.words import interval, number, percent

MEANINGS = {
    Outcome.SUPPORTED: "the measured interval lies inside what the theorem predicts",
    Outcome.REFUTED: "it lies outside",
    Outcome.UNDECIDED: "neither is certain enough: the runs are too short or too few",
    Outcome.OUT_OF_REGIME: "an exact assumption of the theorem is not met",
    Outcome.BROKEN: "nothing could be measured",
}


def write(sections: Sequence[Section], out: Path, atlas: Atlas | None = None) -> Path:
    """Writes the report into a folder, its front page last, and returns that page's path.

    A figure that cannot be drawn is replaced by its error, listed on the front page and printed to stderr.
    """
    files, taken = Files(out), Counter[str]()
    chapters = [chapter(section, files, taken) for section in sections]
    about = {"all_outcomes": list(Outcome), "meanings": MEANINGS, "written": datetime.now(UTC)}
    templates = _templates()
    pages: dict[str, list[Chapter]] = {}
    for one in chapters:
        pages.setdefault(one.page, []).append(one)
    for page, own in pages.items():
        files.put(page, templates.get_template("paper.html").render(chapters=own, **about))
    for name in ("page.css", "page.js"):
        files.put(f"assets/{name}", (resources.files(__name__) / name).read_text(encoding="utf-8"))
    files.put("assets/typeface.css", typeface.stylesheet())
    if any(d.plot or d.moving for one in chapters for d in one.drawings):
        library = resources.files("plotly") / "package_data" / "plotly.min.js"
        files.put("assets/plotly.min.js", library.read_bytes())
    for name, text in tables.written(sections).items():
        files.put(name, text)
    if atlas is not None:
        files.put(ATLAS_PAGE, templates.get_template(ATLAS_PAGE).render(map=atlas_map(atlas, files), **about))
    front = templates.get_template("front.html").render(
        atlas=atlas,
        chapters=chapters,
        outcomes=Counter(verdict.outcome for section in sections for verdict in section.verdicts),
        failures=[(one.page, d) for one in chapters for d in one.drawings if d.error],
        commands=_commands(sections, atlas),
        **about,
    )
    files.sweep()
    return files.put("index.html", front)


def _commands(sections: Iterable[Section], atlas: Atlas | None) -> list[str]:
    """The commands that make everything on the page: a scale's papers at once, a changed preset alone."""
    scales: dict[tuple[str, int], list[str]] = {}
    changed = []
    for section in sections:
        if section.preset == section.paper.presets.get(section.preset_name):
            scales.setdefault((section.preset_name, section.seeds), []).append(section.paper.name)
        else:
            changed.append(judge_command(section))
    whole = [
        shlex.join(["descentlab", "reproduce", *dict.fromkeys(papers), "--scale", scale, f"--seeds={seeds}"])
        for (scale, seeds), papers in scales.items()
    ]
    crossed = [f"descentlab reproduce atlas --seeds={atlas.seeds}"] if atlas else []
    return [*whole, *changed, *crossed]


def _templates() -> jinja2.Environment:
    source = resources.files("descentlab.showing.report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (source / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, percent=percent, prose=lambda text: Markup(prose(text)))
    environment.globals.update(interval=interval)
    return environment
