"""Tables of recorded verdicts in Markdown, for README and the site.

`make readme` writes docs/recorded/PAPER.PRESET.json as `descentlab judge PAPER PRESET --json` prints it.
"""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from descentlab import Outcome
from descentlab.words import interval, number, percent

RECORDED = Path(__file__).parent / "recorded"
SHOWN = (Outcome.SUPPORTED, Outcome.REFUTED, Outcome.UNDECIDED)

Judged = dict[str, Any]  # a document of `descentlab judge --json`


def recorded(paper: str = "*") -> list[Judged]:
    """What is recorded, of one paper or of all: by paper, the preset quick first."""
    found = [json.loads(path.read_text()) for path in RECORDED.glob(f"{paper}.*.json")]
    return sorted(found, key=lambda one: (one["paper"], one["preset"] != "quick", one["preset"]))


def title(judged: Judged) -> str:
    """The paper, and its preset where that is another than quick."""
    return judged["paper"] if judged["preset"] == "quick" else f"{judged['paper']} {judged['preset']}"


def measured(claim: dict[str, Any]) -> str:
    """The estimate and its 95 % interval."""
    if claim["value"] is None:
        return "–"
    return f"{number(claim['value'])} {_interval(claim['low'], claim['high'])}"


def predicted(claim: dict[str, Any]) -> str:
    """The interval that the claim predicts."""
    return _interval(*claim["predicts"])


def _interval(low: float | None, high: float | None) -> str:
    # JSON has no infinities: they are null.
    return interval(-math.inf if low is None else low, math.inf if high is None else high)


def counts(judged: Judged) -> str:
    """How many verdicts of each kind, in words."""
    found = Counter(claim["outcome"] for claim in judged["claims"])
    return ", ".join(f"{found[o]} {o}" for o in Outcome if found[o])


def all_claims(judged: Judged) -> str:
    """A row a claim, with the level that decided: claims judged together are held to more than 95 %."""
    rows = [f"| `{one['claim']}` | {one['outcome']} | {numbers(one)} |" for one in judged["claims"]]
    return "\n".join([*head(), *rows])


def head() -> list[str]:
    """The first lines of a table of claims."""
    return ["| claim | verdict | decided at | measured, 95 % interval | predicted |", "|" + " --- |" * 5]


def numbers(claim: dict[str, Any]) -> str:
    """What a table has of a claim after its verdict."""
    return f"{percent(claim['level'])} | {measured(claim)} | {predicted(claim)}"


def overview(all_judged: list[Judged]) -> str:
    """A row a paper: how many claims are supported, and which are not."""

    def names(judged: Judged, outcome: Outcome) -> str:
        found = [f"`{claim['claim']}`" for claim in judged["claims"] if claim["outcome"] == outcome]
        return str(len(found)) if outcome == Outcome.SUPPORTED else ", ".join(found) or "none"

    lines = ["| paper | supported | refuted | undecided |", "| --- | --- | --- | --- |"]
    lines += [f"| `{title(one)}` | {' | '.join(names(one, o) for o in SHOWN)} |" for one in all_judged]
    return "\n".join(lines)


def readme(all_judged: list[Judged]) -> str:
    """What stands between README's markers: one line a paper, then every claim of it, folded."""
    parts = [overview(all_judged)]
    for one in all_judged:
        summary = f"all {len(one['claims'])} claims ({counts(one)})"
        fold = f"<details><summary><code>{title(one)}</code>: {summary}</summary>"
        parts += [fold, all_claims(one), "</details>"]
    return "\n\n".join(parts)
