"""Commands that look: papers, doctor."""

from typing import Annotated

import typer

from descentlab.cli.options import Json, StoreDir
from descentlab.cli.output import fail, print_json

Papers = Annotated[
    list[str] | None, typer.Argument(metavar="[PAPER]...", help="Papers; all of them if none is named.")
]


def papers(names: Papers = None, json_: Json = False) -> None:
    """Papers with their presets, settings, claims and figures."""
    from descentlab.papers import catalogue, text

    every = {entry["paper"]: entry for entry in catalogue()}
    if unknown := [name for name in names or () if name not in every]:
        fail(f"descentlab: there is no paper {unknown[0]}; there are {', '.join(every)}.", 2)
    found = [every[name] for name in names or every]
    if json_:
        shown = ("paper", "title", "presets", "claims", "figures")
        print_json([{name: entry[name] for name in shown} for entry in found])
        return
    for entry in found:
        print(text(entry))


def doctor(store: StoreDir = None) -> None:
    """Versions, devices, a numerical self-test, data found, and the store's health."""
    from descentlab.showing.doctor import examine

    lines, problems = examine(store)
    print("\n".join([*lines, *(f"  {problem}" for problem in problems)]))
    if problems:
        raise typer.Exit(1)
