"""The main job: everything that papers ask for is run, judged, drawn and reported."""

from pathlib import Path

from descentlab import experiment
from descentlab.claim import Outcome
from descentlab.paper import Paper
from descentlab.preset import Settings
from descentlab.report import Section, write
from descentlab.store import Store
from descentlab.terminal import Bars, print_verdicts


def reproduce(
    chosen: list[tuple[Paper, Settings]], scale: str, seeds: int, store: Path | None, out: Path
) -> tuple[Path, bool]:
    """The report's path, and whether any verdict is BROKEN. What the store holds is not computed again."""
    here, sections = Store(store), []
    with Bars() as watcher:
        for paper, preset in chosen:
            claims = [c for c in paper.claims if scale in c.presets]
            needs = [*claims, *paper.figures]
            watcher.plan(paper, experiment.needed(preset, needs), seeds, here)
            runs = experiment.gather(paper, preset, needs, seeds, here, watcher)
            verdicts = experiment.verdicts(claims, preset, runs)
            sections.append(Section(paper, scale, preset, seeds, verdicts, runs))
    for section in sections:
        print_verdicts(section.verdicts)
    broken = any(v.outcome == Outcome.BROKEN for section in sections for v in section.verdicts)
    return write(sections, out), broken
