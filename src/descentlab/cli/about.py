"""Commands that look: papers, doctor."""

import typer

from descentlab.cli.options import Json, StoreDir
from descentlab.cli.output import print_json


def papers(json_: Json = False) -> None:
    """Papers with their presets, settings, claims and figures."""
    from descentlab import paper
    from descentlab.terminal import print_paper

    found = [paper.load(name) for name in paper.names()]
    if json_:
        print_json([
            {
                "paper": p.name, "title": p.about.title, "presets": list(p.presets),
                "claims": [c.name for c in p.claims], "figures": [f.name for f in p.figures],
            }
            for p in found
        ])  # fmt: skip
        return
    for one in found:
        print_paper(one)


def doctor(store: StoreDir = None) -> None:
    """Versions, devices, a numerical self-test, data found, and the store's health."""
    from descentlab.doctor import examine

    lines, problems = examine(store)
    print("\n".join([*lines, *(f"  {problem}" for problem in problems)]))
    if problems:
        raise typer.Exit(1)
