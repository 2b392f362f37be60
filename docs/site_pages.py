"""The pages that are written when the site is built (a hook of MkDocs): papers, API, examples, navigation.

All by discovery: a new paper, decision or document has its page without being listed anywhere.
"""

import ast
import html
import importlib
import inspect
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

import descentlab
from descentlab.engine._settings import allowed
from descentlab.judging import Claim
from descentlab.papers import Figure, Paper, Study, Table
from descentlab.papers import _registry as paper
from descentlab.words import number

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import verdict_tables  # noqa: E402
from docstrings import escaped  # noqa: E402

# What comes first, in this order; every further page of docs/ follows.
GUIDE = (
    "tour.md",
    "adding_a_paper.md",
    "verdicts.md",
    "sweeps.md",
    "cluster.md",
    "data.md",
    "report.md",
    "performance.md",
)
SHIM = re.compile(r"https://[^\"']+/iframe-worker/shim")
# The rooms whose names one writes claims, papers and scripts with.
ROOMS = ("judging", "engine", "papers", "drawing", "running", "sweeping", "store")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation."""
    there = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    guide = [name for name in GUIDE if name in there]
    decisions = sorted(path.name for path in (DOCS / "decisions").glob("*.md"))
    config.nav = [
        {"Home": "index.md"},
        {"Guide": [*guide, *sorted(there - set(guide)), "examples.md"]},
        {"Papers": ["papers/index.md", *(f"papers/{name}.md" for name in shipped())]},
        {"API": ["api/index.md", *(f"api/{room}.md" for room in ROOMS)]},
        {
            "Project": [
                "contributing.md",
                "changelog.md",
                {"Decisions": [f"decisions/{d}" for d in decisions]},
            ]
        },
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages that are not files of docs/."""
    pages = {"papers/index.md": papers_page(), "api/index.md": nouns_page(), "examples.md": examples_page()}
    pages |= {f"papers/{name}.md": paper_page(paper.load(name)) for name in shipped()}
    pages |= {f"api/{room}.md": room_page(room) for room in ROOMS}
    for name in ("contributing", "changelog"):
        text = (DOCS.parent / f"{name.upper()}.md").read_text()
        pages[f"{name}.md"] = text.replace("](docs/", "](")
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Where a page asks for the verdicts, they stand."""
    if "<!-- verdicts -->" not in markdown:
        return markdown
    return markdown.replace("<!-- verdicts -->", linked(verdict_tables.overview(verdict_tables.recorded())))


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Pages load nothing from elsewhere: what searches without a server is a script of ours."""
    return SHIM.sub(get_relative_url("offline_search.js", page.url), output)


def on_post_template(output: str, **_: Any) -> str:
    """The same for the page that stands for missing ones, wherever they are."""
    return SHIM.sub("/offline_search.js", output)


def shipped() -> list[str]:
    """The papers of the package: one's own have no page here."""
    home = Path(inspect.getfile(descentlab)).parent / "papers"
    return [name for name in paper.names() if (home / name).exists() or (home / f"{name}.py").exists()]


def linked(table: str) -> str:
    """A table whose papers lead to their pages."""
    for name in shipped():
        table = table.replace(f"| `{name}", f"| [`{name}`](papers/{name}.md)`", 1).replace(")``", ")")
    return table


# ---------------------------------------------------------------- papers


def papers_page() -> str:
    """All papers, with what the lab says of them."""
    lines = ["# Papers", "", "| paper | module | claims at quick scale |", "| --- | --- | --- |"]
    for one in map(paper.load, shipped()):
        judged = verdict_tables.recorded(one.name)
        said = "; ".join(verdict_tables.counts(j) for j in judged if j["preset"] == "quick") or "not recorded"
        title = f"[{one.title}]({one.name}.md). {one.citation.rstrip('.')}"
        lines.append(f"| {title} | `{one.name}` | {said} |")
    return "\n".join(lines)


def paper_page(one: Paper) -> str:
    """Setting, verdicts, figures, deviations and settings of a paper."""
    about = escaped(inspect.getdoc(one.module) or "")
    heading, _, setting = about.partition("\n")
    judged = verdict_tables.recorded(one.name)
    parts = [
        f"# {heading.rstrip('.')}",
        f"*{one.title}.* {one.citation.rstrip('.')}. Module `descentlab.papers.{one.name}`.",
        "```shell\n" + f"descentlab judge {one.name} --seeds 8\ndescentlab reproduce {one.name}\n" + "```",
        "## Setting",
        setting.strip(),
        "## Verdicts",
        *(part for document in judged for part in verdicts(one, document)),
    ]
    if not judged:
        parts.append("None is recorded; `make readme` records them.")
    parts += ["## Figures", *drawings(one), "## Deviations", *deviations(one)]
    parts += ["## Presets", *presets(one)]
    return "\n\n".join(parts) + "\n"


def verdicts(one: Paper, judged: verdict_tables.Judged) -> list[str]:
    """The verdicts at a preset: a table, then each claim with what it means."""
    claims = {claim.name: claim for claim in one.claims}
    known = [found for found in judged["claims"] if found["claim"] in claims]
    lines = verdict_tables.head()
    for found in known:
        link = f"[`{found['claim']}`](#{found['claim']})"
        lines.append(f"| {link} | {badge(found)} | {verdict_tables.numbers(found)} |")
    command = f"`descentlab judge {one.name} {judged['preset']} --seeds {judged['seeds']}`"
    return [
        f"### At preset {judged['preset']}",
        f"Recorded from {command}: {verdict_tables.counts(judged)}.",
        "\n".join(lines),
        *(statement(claims[found["claim"]], found) for found in known),
    ]


def badge(found: dict[str, Any]) -> str:
    """An outcome in its colour."""
    return f'<span class="verdict {found["outcome"]}">{found["outcome"].replace("_", " ")}</span>'


def statement(claim: Claim, found: dict[str, Any]) -> str:
    """A claim in words, with its margin, assumptions and mutants."""
    lines = [f'<a id="{claim.name}"></a>**`{claim.name}`** ({escaped(claim.cite)}) {badge(found)}  ']
    lines.append(escaped(claim.statement))
    if found.get("reason"):
        lines.append(f"*{escaped(found['outcome'])}: {escaped(found['reason'])}.*")
    assumes = ", ".join(f"`{one.name}`" + ("" if one.exact else " (measured)") for one in claim.assumes)
    details = [
        f"Margin: {escaped(claim.margin)}",
        *([f"Assumes {assumes}."] if assumes else []),
        f"Must refute: {escaped(', '.join(mutant.name for mutant in claim.mutants))}.",
    ]
    return "\n".join([*lines, "", " ".join(details)])


def drawings(one: Paper) -> list[str]:
    """The pictures that are recorded, and what else can be drawn."""
    shown, named = [], []
    for figure in one.figures:
        file = DOCS / "images" / one.name / f"{figure.name}.webp"
        words = f"`{figure.name}`: {html.escape(figure.caption)}"
        if isinstance(figure, Figure) and file.exists():
            source = f"../images/{one.name}/{file.name}"
            picture = f"![{html.escape(figure.name)}]({source}){{ loading=lazy }}"
            shown.append(
                f"<figure markdown>\n{picture}\n<figcaption markdown>{words}</figcaption>\n</figure>"
            )
        else:
            named.append(f"- {words}" + (" (table)" if isinstance(figure, Table) else ""))
    if named:
        shown += [f"`descentlab figures {one.name}` draws:" if not shown else "Also:", "\n".join(named)]
    return shown


def deviations(one: Paper) -> list[str]:
    """Where the module departs from the paper."""
    return ["\n".join(f"- **{escaped(d.subject)}**: {escaped(d.reason)}" for d in one.deviations)]


def presets(one: Paper) -> list[str]:
    """The settings with their values at the paper's own presets, then studies and branches by name."""
    own = dict(one.module.PRESETS)
    lines = [f"| setting | {' | '.join(f'`{name}`' for name in own)} | meaning | takes |"]
    lines.append("| --- |" + " --- |" * (len(own) + 2))
    for f in fields(next(iter(own.values()))):
        values = " | ".join(f"`{cell(getattr(preset, f.name))}`" for preset in own.values())
        lines.append(f"| `{f.name}` | {values} | {cell(f.metadata['doc'])} | {cell(allowed(f))} |")
    found = ["\n".join(lines)]
    rest = [name for name in one.presets if name not in own and name not in one.studies]
    if rest:
        found.append(
            "Experiments with settings of their own: " + ", ".join(f"`{name}`" for name in rest) + "."
        )
    if one.studies:
        studies: list[Study] = list(one.studies.values())
        found.append("Studies (`descentlab sweep`, `judge` or `reproduce --scale`):")
        found.append("\n".join(f"- `{study.name}`: {escaped(study.doc)}" for study in studies))
    return found


def cell(value: Any) -> str:
    """A value as a cell of a table."""
    text = number(value) if isinstance(value, float) else str(value)
    return escaped(text).replace("|", "\\|") or " "


# ---------------------------------------------------------------- API and examples


def nouns_page() -> str:
    """The public nouns, by the room they come from."""
    parts = ["# The nouns", "`from descentlab import ...` gives these."]
    for room, names in descentlab.HOMES.items():
        parts += [f"## {room}", summary(f"descentlab.{room}")]
        parts += [f"::: descentlab.{room}.{name}" for name in names.split()]
    return "\n\n".join(parts)


def room_page(room: str) -> str:
    """All that a room exports."""
    module = importlib.import_module(f"descentlab.{room}")
    names = [name for name in dir(module) if not name.startswith("_") and documented(getattr(module, name))]
    parts = [f"# {room.capitalize()}", summary(module.__name__)]
    return "\n\n".join([*parts, *(f"::: descentlab.{room}.{name}" for name in names)])


def documented(thing: Any) -> bool:
    """Whether a page can say something about it: functions and classes with docstrings of this project."""
    own = getattr(thing, "__module__", "") or ""
    return callable(thing) and own.startswith("descentlab.") and bool(inspect.getdoc(thing))


def summary(module: str) -> str:
    """The first line of a module's docstring."""
    return escaped((inspect.getdoc(importlib.import_module(module)) or "").partition("\n")[0])


def examples_page() -> str:
    """The scripts in examples/, as they are."""
    parts = ["# Examples", "Scripts that run as they are; `make examples` runs them all."]
    for path in sorted((DOCS.parent / "examples").glob("*.py")):
        text = path.read_text()
        about = ast.get_docstring(ast.parse(text)) or ""
        parts += [f"## {path.stem.replace('_', ' ').capitalize()}", about.partition("\n\n")[0]]
        parts.append(f'```python title="examples/{path.name}"\n{text}```')
    return "\n\n".join(parts)
