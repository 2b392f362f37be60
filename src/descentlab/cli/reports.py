"""Commands of the report: reproduce, report."""

from pathlib import Path
from typing import Annotated

import typer

from descentlab.cli.options import SEEDS, Out, Scale, Seeds, StoreDir, Workers
from descentlab.cli.output import fail


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PAPER]...", help="Papers; all of them if none is named.")
    ] = None,
    scale: Scale = "quick",
    seeds: Seeds = SEEDS,
    workers: Workers = None,
    store: StoreDir = None,
    out: Out = Path("report"),
) -> None:
    """The main job: runs, judges, draws and reports everything."""
    from descentlab import paper
    from descentlab.cli.request import chosen, processes
    from descentlab.reproduce import reproduce

    wanted = [chosen(name, scale, [], None, seeds) for name in names or paper.names()]
    _reported(*reproduce(wanted, scale, seeds, store, out, processes(workers)))


def report(store: StoreDir = None, out: Out = Path("report")) -> None:
    """Writes the report again from what the store holds; trains nothing."""
    from descentlab import reproduce

    done = reproduce.report(store, out)
    if done is None:
        fail("descentlab: the store holds no paper whole; `descentlab reproduce` makes one.", 1)
    _reported(*done)


def _reported(path: Path, broken: bool) -> None:
    print(path.resolve())
    if broken:
        raise typer.Exit(1)
