"""Commands that look: papers, doctor."""

import typer

from descentlab.cli.options import Json, StoreDir
from descentlab.cli.output import print_json


def papers(json_: Json = False) -> None:
    """Papers with their presets, settings, claims and figures."""
    from descentlab.catalogue import catalogue, text

    found = catalogue()
    if json_:
        shown = ("paper", "title", "presets", "claims", "figures")
        print_json([{name: entry[name] for name in shown} for entry in found])
        return
    for entry in found:
        print(text(entry))


def doctor(store: StoreDir = None) -> None:
    """Versions, devices, a numerical self-test, data found, and the store's health."""
    from descentlab.doctor import examine

    lines, problems = examine(store)
    print("\n".join([*lines, *(f"  {problem}" for problem in problems)]))
    if problems:
        raise typer.Exit(1)
