"""The main job: everything that papers ask for is run, judged, drawn and reported; or reported again."""

from pathlib import Path

from descentlab import atlas as crossed
from descentlab import running
from descentlab.atlas import Atlas, as_text
from descentlab.engine import Settings
from descentlab.judging import Outcome
from descentlab.papers import FEWEST_SEEDS, Paper, load, names
from descentlab.running import Pool, Progress
from descentlab.showing.report import Section, write
from descentlab.showing.terminal import Display, print_verdicts
from descentlab.store import Store


def reproduce(
    chosen: list[tuple[Paper, Settings]],
    scale: str,
    seeds: int,
    store: Path | None,
    out: Path,
    pool: Pool | None = None,
    atlas: bool = False,
) -> tuple[Path, bool]:
    """The report's path, and whether any verdict is BROKEN. What the store holds is not computed again."""
    here, sections = Store(store), []
    with Display(here, forecast=True) as display:
        for paper, preset in chosen:
            along = {name: paper.preset(name) for name in paper.along_with.get(scale, ())}
            for name, own in ({scale: preset} | along).items():
                sections.append(section(paper, name, own, seeds, here, pool=pool, progress=display))
        found = crossed.survey(seeds, here, pool=pool, progress=display) if atlas else None
    return finish(sections, out, found)


def report(store: Path | None, out: Path) -> tuple[Path, bool] | None:
    """The same for all that the store holds whole, training nothing; None where that is nothing."""
    here, sections = Store(store), []
    display = Display(here)
    for paper in (load(name) for name in names()):
        shown: set[Settings] = set()
        for scale, preset in paper.presets.items():
            wanted = running.needed(preset, needs(paper, scale))
            if shown.issuperset(wanted):
                continue  # a study of runs that an earlier section has
            held = [here.seeds(running.identify(paper, p)) for p in wanted]
            if all(held):
                sections.append(section(paper, scale, preset, min(held), here, progress=display))
                shown.update(wanted)
            elif any(held):
                runs = f"{held.count(0)} of {len(held)} runs of {paper.name} at {scale}"
                command = f"descentlab reproduce {paper.name} --scale {scale}"
                display.say(f"{runs} are not in the store; `{command}` makes them")
    seeds = crossed.held(here)
    atlas = crossed.survey(seeds, here, progress=display) if seeds >= FEWEST_SEEDS else None
    return finish(sections, out, atlas) if sections or atlas else None


def needs(paper: Paper, scale: str) -> list[running.Need]:
    """The claims and figures that belong to a preset."""
    return [*paper.claims_of(scale), *paper.figures_of(scale)]


def section(
    paper: Paper,
    scale: str,
    preset: Settings,
    seeds: int,
    store: Store,
    *,
    pool: Pool | None = None,
    progress: Progress | None = None,
) -> Section:
    """One paper at one preset, judged."""
    runs = running.gather(paper, preset, needs(paper, scale), seeds, store, pool=pool, progress=progress)
    verdicts = running.verdicts(paper.claims_of(scale), preset, runs)
    return Section(paper, scale, preset, seeds, verdicts, runs)


def finish(sections: list[Section], out: Path, atlas: Atlas | None = None) -> tuple[Path, bool]:
    """Prints the verdicts and the atlas, and writes the report."""
    for one in sections:
        print_verdicts(one.verdicts)
    broken = any(v.outcome == Outcome.BROKEN for one in sections for v in one.verdicts)
    if atlas is not None:
        print(as_text(atlas))
    return write(sections, out, atlas), broken
