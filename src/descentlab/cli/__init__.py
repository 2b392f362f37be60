"""The command line.

Results go to standard output, as text or with --json as one JSON document; progress and messages go to
standard error.
"""

from typing import Annotated

import typer

from descentlab.cli.about import doctor, papers
from descentlab.cli.bench import bench
from descentlab.cli.data import data
from descentlab.cli.new import new
from descentlab.cli.output import fail
from descentlab.cli.reports import figures, report, reproduce, view
from descentlab.cli.runs import judge, run, sweep
from descentlab.errors import UserError

app = typer.Typer(
    help="A laboratory for the training dynamics of transformers.",
    epilog="Exit codes: 0 done, 1 a run or a claim is BROKEN, 2 wrong usage, 3 a verdict differs (--expect).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (papers, run, judge, sweep, reproduce, report, figures, view, doctor, data, new, bench):
    app.command()(command)


def main() -> None:
    """Runs the command line; errors a user can mend end in one line, not in a traceback."""
    try:
        app(standalone_mode=True)
    except UserError as error:
        fail(f"descentlab: {error}", error.exit_code)
    except OSError as error:
        fail(f"descentlab: {error.strerror or error}: {error.filename or ''}", 1)


@app.callback(invoke_without_command=True)
def version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Options before any command."""
    if version:
        import descentlab

        print(descentlab.__version__)
        raise typer.Exit
