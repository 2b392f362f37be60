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
    from descentlab import scaffold

    module, test = scaffold.write(name, out)
    print(f"{module}\n{test}")
    print(f"{_finding(module)}descentlab judge {name} tiny\npython -m pytest {test}", file=sys.stderr)


def _finding(module: Path) -> str:
    """What a command needs before it to find the module, if anything."""
    import descentlab.papers

    folder = module.parent.absolute()
    return "" if str(folder) in descentlab.papers.__path__ else f"DESCENTLAB_PAPERS={folder} "
