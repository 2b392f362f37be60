"""Figures for print: drawn from the store, each in a file of its own."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from descentlab import running
from descentlab.drawing import rendered, width
from descentlab.engine import Settings
from descentlab.papers import Figure, Paper, Table
from descentlab.running import Pool, Progress
from descentlab.store import Store, write_entry, writing

Wanted = tuple[Paper, Settings, Figure]


def draw(
    wanted: Sequence[Wanted],
    seeds: int,
    store: Store,
    out: Path,
    format: str = "pdf",
    inches: float | None = None,
    pool: Pool | None = None,
    progress: Progress | None = None,
) -> Iterator[Path]:
    """Draws figures into a folder, as PAPER_FIGURE.FORMAT, at most `inches` wide; yields their paths.

    Runs that the store lacks are made.
    """
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    for paper, preset, figure in wanted:
        runs = running.gather(paper, preset, [figure], seeds, store, pool=pool, progress=progress)
        with width(inches):
            canvas = figure(**running.datasets(figure, preset, runs))
        path = out / f"{paper.name}_{figure.name}.{format}"
        write_entry(path, rendered(canvas, format))
        yield path


def usual_preset(paper: Paper, figure: Figure | Table) -> str:
    """The preset that a figure is drawn at unless another is named: quick, or its own setting's main one."""
    fitting = [name for name in paper.presets if figure in paper.figures_of(name)]
    main = [name for name in fitting if not name.endswith(("tiny", "paper", "small"))]
    return "quick" if "quick" in fitting else (main or fitting)[0]
