"""The options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

SEEDS = 8

PaperName = Annotated[str, typer.Argument(metavar="PAPER", help="A paper; `descentlab papers` lists them.")]
PresetName = Annotated[str, typer.Argument(metavar="[PRESET]", help="A preset of the paper.")]
Set = Annotated[
    list[str], typer.Option("--set", metavar="NAME=VALUE", help="Another value for a field of the preset.")
]
Seeds = Annotated[int, typer.Option("--seeds", metavar="N", help="How many seeds.")]
Steps = Annotated[int | None, typer.Option("--steps", help="The horizon; short for --set steps=T.")]
StoreDir = Annotated[
    Path | None, typer.Option("--store", help="The store; else $DESCENTLAB_STORE, else ./store.")
]
Workers = Annotated[
    int | None, typer.Option(metavar="N", help="Processes on this machine; by default a core each.")
]
Scale = Annotated[str, typer.Option(metavar="quick|paper", help="Which preset of each paper.")]
Out = Annotated[Path, typer.Option(help="Folder of the report.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
