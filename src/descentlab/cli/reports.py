"""Commands that show: reproduce, report, figures, view."""

from pathlib import Path
from typing import Annotated

import typer

from descentlab.cli.options import SEEDS, Out, PaperName, Scale, Seeds, StoreDir, Workers
from descentlab.cli.output import fail


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PAPER]...", help="Papers, and `atlas`; all papers if none is named."),
    ] = None,
    scale: Scale = "quick",
    seeds: Seeds = SEEDS,
    workers: Workers = None,
    store: StoreDir = None,
    out: Out = Path("report"),
) -> None:
    """The main job: runs, judges, draws and reports everything."""
    from descentlab.cli.request import atlas_wanted, chosen, processes
    from descentlab.papers import names as all_papers
    from descentlab.showing.reproduce import reproduce

    atlas = atlas_wanted(names or [], scale, seeds)
    papers = all_papers() if not names else [name for name in names if name != "atlas"]
    wanted = [chosen(name, scale, [], None, seeds) for name in papers]
    _reported(*reproduce(wanted, scale, seeds, store, out, processes(workers), atlas))


def report(store: StoreDir = None, out: Out = Path("report")) -> None:
    """Writes the report again from what the store holds; trains nothing."""
    from descentlab.showing import reproduce

    done = reproduce.report(store, out)
    if done is None:
        fail("descentlab: the store holds no paper whole; `descentlab reproduce` makes one.", 1)
    _reported(*done)


def figures(
    paper: PaperName,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIGURE]...", help="Figures by name or number; all of the preset if none."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="A preset; by default the figure's own quick one.")
    ] = None,
    format_: Annotated[str, typer.Option("--format", metavar="pdf|svg|png", help="What to write.")] = "pdf",
    style: Annotated[
        str,
        typer.Option(metavar="drawn|column|text|slide", help="How wide: as drawn, 3.4, 6.8 or 12 inches."),
    ] = "drawn",
    seeds: Seeds = SEEDS,
    workers: Workers = None,
    store: StoreDir = None,
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("figures"),
) -> None:
    """Draws a paper's figures for print: runs what the store lacks, then reads the store alone."""
    from descentlab.cli.request import figures_of, one_of, processes
    from descentlab.drawing import DPI, WIDTHS
    from descentlab.showing.gallery import draw
    from descentlab.showing.terminal import Display
    from descentlab.store import Store

    one_of("format", format_, list(DPI))
    one_of("style", style, list(WIDTHS))
    wanted = figures_of(paper, names or [], preset, seeds)
    pool, place = processes(workers), Store(store)
    with Display(place) as display:
        for path in draw(wanted, seeds, place, out, format_, WIDTHS[style], pool, display):
            print(path.resolve())


def view(
    port: Annotated[int, typer.Option(metavar="N", help="Port on this machine; 0 takes a free one.")] = 8787,
    store: StoreDir = None,
) -> None:
    """Follows running experiments in a local page: progress, curves, matrices. Ctrl-C stops it."""
    from descentlab.showing.live import serve
    from descentlab.store import Store

    serve(Store(store), port)


def _reported(path: Path, broken: bool) -> None:
    print(path.resolve())
    if broken:
        raise typer.Exit(1)
