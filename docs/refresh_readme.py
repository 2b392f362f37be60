"""Writes README's verdict tables and picture anew from the store, running what it lacks.

make readme
"""

import re
from collections import Counter
from pathlib import Path

from descentlab import Outcome, Store, experiment, paper
from descentlab.claim import Verdict
from descentlab.fleet import Processes
from descentlab.paper import Figure, Paper
from descentlab.plot import save
from descentlab.report.number import interval, number
from descentlab.terminal import Overview

ROOT = Path(__file__).parents[1]
PICTURES = {
    ("sign_descent", "figure_all_stages"): "stages",
    ("sign_descent", "figure_generalisation"): "generalisation",
}
SHOWN = (Outcome.SUPPORTED, Outcome.REFUTED, Outcome.UNDECIDED)
SEEDS = 8


def row(verdict: Verdict) -> str:
    """A line of a paper's table."""
    measured = f"{number(verdict.value)} {interval(verdict.low, verdict.high)}"
    predicted = interval(verdict.predicts.low, verdict.predicts.high)
    return f"| `{verdict.claim}` | {verdict.outcome} | {measured} | {predicted} |"


def names(verdicts: list[Verdict], outcome: Outcome) -> str:
    """The claims with an outcome, or how many they are where that is what one expects."""
    found = [f"`{v.claim}`" for v in verdicts if v.outcome == outcome]
    return str(len(found)) if outcome == Outcome.SUPPORTED else ", ".join(found) or "none"


def tables(judged: dict[str, list[Verdict]]) -> str:
    """One line a paper, then every claim of it, folded."""
    lines = ["| paper | supported | refuted | undecided |", "| --- | --- | --- | --- |"]
    lines += [f"| `{name}` | {' | '.join(names(own, o) for o in SHOWN)} |" for name, own in judged.items()]
    for name, own in judged.items():
        counts = Counter(v.outcome for v in own)
        summary = ", ".join(f"{counts[o]} {o}" for o in SHOWN if counts[o])
        lines += [
            "",
            f"<details><summary><code>{name}</code>: all {len(own)} claims ({summary})</summary>",
            "",
        ]
        lines += ["| claim | verdict | measured, 95 % interval | predicted |", "| --- | --- | --- | --- |"]
        lines += [row(verdict) for verdict in own]
        lines += ["", "</details>"]
    return "\n".join(lines)


def draw(one: Paper, view: Overview) -> None:
    """The paper's pictures in README."""
    for figure in one.figures:
        preset = one.preset(figure.presets[0] if figure.presets else "quick")
        file = PICTURES.get((one.name, figure.name))
        if file and isinstance(figure, Figure):
            runs = experiment.gather(one, preset, [figure], SEEDS, Store(), view, Processes())
            canvas = figure.draw(**experiment.datasets(figure, preset, runs))
            save(canvas, ROOT / f"docs/images/{file}.png")


def main() -> None:
    """Judges every paper at quick scale and replaces what stands between README's markers."""
    judged = {}
    with Overview(Store()) as view:
        for one in (paper.load(name) for name in paper.names()):
            for name in ("quick", *one.along_with("quick")):
                found = experiment.judge_paper(one, name, one.preset(name), SEEDS, Store(), view, Processes())
                judged[one.name if name == "quick" else f"{one.name} {name}"] = found
            draw(one, view)
    readme = ROOT / "README.md"
    between = f"<!-- verdicts -->\n{tables(judged)}\n<!-- end of verdicts -->"
    text = re.sub(
        r"<!-- verdicts -->.*<!-- end of verdicts -->", lambda _: between, readme.read_text(), flags=re.DOTALL
    )
    readme.write_text(text)


if __name__ == "__main__":
    main()
