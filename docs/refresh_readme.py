"""Writes README's verdict table and picture anew from the store, running what it lacks.

make readme
"""

import re
from pathlib import Path

from descentlab import Store, experiment, paper
from descentlab.claim import Verdict
from descentlab.paper import Figure
from descentlab.plot import save
from descentlab.report.number import interval, number
from descentlab.terminal import Bars

ROOT = Path(__file__).parents[1]
PICTURE = ("sign_descent", "figure_all_stages")
SEEDS = 8


def row(verdict: Verdict) -> str:
    """A line of the table."""
    measured = f"{number(verdict.value)} {interval(verdict.low, verdict.high)}"
    predicted = interval(verdict.predicts.low, verdict.predicts.high)
    return f"| `{verdict.claim}` | {verdict.outcome} | {measured} | {predicted} |"


def main() -> None:
    """Judges every paper at quick scale and replaces what stands between README's markers."""
    lines = ["| claim | verdict | measured, 95 % interval | predicted |", "| --- | --- | --- | --- |"]
    with Bars() as watcher:
        for one in (paper.load(name) for name in paper.names()):
            preset = one.preset("quick")
            verdicts = experiment.judge_paper(one, "quick", preset, SEEDS, Store(), watcher)
            lines += [row(verdict) for verdict in verdicts]
            for figure in one.figures:
                if (one.name, figure.name) == PICTURE and isinstance(figure, Figure):
                    runs = experiment.gather(one, preset, [figure], SEEDS, Store(), watcher)
                    save(
                        figure.draw(**experiment.datasets(figure, preset, runs)),
                        ROOT / "docs/images/stages.png",
                    )
    readme = ROOT / "README.md"
    between = "<!-- verdicts -->\n" + "\n".join(lines) + "\n<!-- end of verdicts -->"
    text = re.sub(
        r"<!-- verdicts -->.*<!-- end of verdicts -->", lambda _: between, readme.read_text(), flags=re.DOTALL
    )
    readme.write_text(text)


if __name__ == "__main__":
    main()
