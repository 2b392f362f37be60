"""The command that begins a paper: new."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The paper's name, as a Python module.")],
    out: Annotated[
        Path, typer.Option(help="The folder of a project: a checkout of descentlab, or one of your own.")
    ] = Path(),
) -> None:
    """Writes a new paper module and its test, ready to fill in."""
    from descentlab import papers, scaffold

    module, test = scaffold.write(name, out)
    print(f"{module}\n{test}")
    folder = str(module.parent.absolute())
    finding = "" if folder in papers.__path__ else f"DESCENTLAB_PAPERS={folder} "
    print(f"{finding}descentlab judge {name} tiny\npython -m pytest {test}", file=sys.stderr)
