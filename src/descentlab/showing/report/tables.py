"""The verdicts as tables for people's own papers: CSV, LaTeX, and the JSON of `descentlab judge`."""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from descentlab.judging import Verdict
from descentlab.showing.report.chapter import Section
from descentlab.words import csv_table, distinct

COLUMNS = ("paper", "preset", "claim", "cite", "outcome", "value", "low", "high", "predicted_low",
           "predicted_high", "level", "seeds", "statement", "reason")  # fmt: skip
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    sign: rf"\{sign}" for sign in "&%$#_{}"
}


def written(sections: Sequence[Section]) -> dict[str, str]:
    """The tables by the names of their files."""
    return {
        "verdicts.csv": as_csv(sections),
        "verdicts.tex": as_latex(sections),
        "verdicts.json": json.dumps([as_json(section) for section in sections], indent=1),
    }


def as_json(section: Section) -> dict[str, Any]:
    """A section as `descentlab judge --json` prints it."""
    return {
        "paper": section.paper.name, "preset": section.preset_name, "settings": section.preset.settings(),
        "seeds": section.seeds, "claims": [verdict.as_json() for verdict in section.verdicts],
    }  # fmt: skip


def as_csv(sections: Sequence[Section]) -> str:
    """A row a claim; cells of what is not finite are empty."""
    rows = []
    for section in sections:
        own = {"paper": section.paper.name, "preset": section.preset_name}
        for verdict in section.verdicts:
            found = verdict.as_json() | own
            found["predicted_low"], found["predicted_high"] = found["predicts"]
            rows.append([found[name] for name in COLUMNS])
    return csv_table([COLUMNS, *rows])


def as_latex(sections: Sequence[Section]) -> str:
    """A longtable with rules by booktabs, a heading for each paper."""
    lines = [
        r"% needs \usepackage{booktabs,longtable}",
        r"\begin{longtable}{llrrr}",
        r"\toprule",
        r"claim & verdict & measured & 95\,\% interval & predicted \\",
        r"\midrule",
        r"\endhead",
    ]
    for section in sections:
        title = f"{section.paper.title} ({section.preset_name}, {section.seeds} seeds)"
        lines.append(rf"\multicolumn{{5}}{{l}}{{\emph{{{escaped(title)}}}}} \\")
        lines += [_row(verdict) for verdict in section.verdicts]
        lines.append(r"\addlinespace")
    return "\n".join([*lines, r"\bottomrule", r"\end{longtable}", ""])


def _row(verdict: Verdict) -> str:
    low, value, high = distinct(verdict.low, verdict.value, verdict.high)
    measured = (f"${_bare(value)}$", _interval(low, high)) if not math.isnan(verdict.value) else ("--", "--")
    predicted = _interval(*distinct(verdict.predicts.low, verdict.predicts.high))
    claim = rf"{escaped(verdict.claim)} ({escaped(verdict.cite)})"
    return " & ".join((claim, escaped(verdict.outcome).lower(), *measured, predicted)) + r" \\"


def _interval(low: str, high: str) -> str:
    return f"$[{_bare(low)},\\ {_bare(high)}]$"


def _bare(text: str) -> str:
    """A number of a page in LaTeX's mathematics."""
    plain = text.replace("−", "-").replace("∞", r"\infty").replace("–", "-")
    power = re.fullmatch(r"(-?)(?:(.*)×)?10([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)", plain)
    if power is None:
        return plain
    digits = power[3].translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-"))
    factor = rf"{power[2]} \times " if power[2] else ""
    return rf"{power[1]}{factor}10^{{{digits}}}"


def escaped(text: str) -> str:
    """Words as LaTeX prints them."""
    return "".join(SPECIAL.get(sign, sign) for sign in str(text))
