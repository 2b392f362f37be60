"""The command about data sets: data."""

from typing import Annotated

import typer

from descentlab.cli.options import Json
from descentlab.cli.output import print_json


def data(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A data set to get; all are listed if none is named."),
    ] = None,
    json_: Json = False,
) -> None:
    """Where real data sets are; with NAME, gets one that is missing."""
    from descentlab.data import DATASETS, look
    from descentlab.data.files import looked_in

    found = [look(one) for one in DATASETS] if name is None else [look(name, fetch=True)]
    if json_:
        shown = [finding.as_json() for finding in found]
        print_json(shown if name is None else shown[0])
    else:
        for finding in found:
            print(f"{finding.dataset.name:12s} {finding.dataset.about}")
            print(f"{'':12s} {finding.in_words()}\n{'':12s} terms: {finding.dataset.terms}")
        if name is None:
            print(f"Looked in {looked_in()}.")
    if any(finding.status == "damaged" for finding in found):
        raise typer.Exit(1)
