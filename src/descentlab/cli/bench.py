"""The command that measures: bench."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from descentlab.cli.options import Json
from descentlab.cli.output import fail


def bench(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORKLOAD]...", help="Workloads; all if none is named."),
    ] = None,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="Interleaved rounds.")] = 3,
    check: Annotated[bool, typer.Option("--check", help="Only see whether both sides agree.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the workloads and stop.")] = False,
    write: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page of it too.")] = None,
    json_: Json = False,
) -> None:
    """Times the laboratory against PyTorch, workload by workload, and against the machine's own limits."""
    script = benchmarks()
    if script is None:
        fail(
            "descentlab: bench needs the benchmarks/ folder, which is not installed; run it in a checkout: "
            "git clone the repository, then make bench.",
            2,
        )
    flags = {"--check": check, "--list": list_, "--json": json_}
    words = [*(workloads or []), "--repeats", str(repeats), *(flag for flag, given in flags.items() if given)]
    words += ["--write", str(write)] if write else []
    raise typer.Exit(subprocess.run([sys.executable, str(script), *words]).returncode)


def benchmarks() -> Path | None:
    """The script of the checkout that this package belongs to, or that the current folder is."""
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        script = root / "benchmarks" / "bench.py"
        if script.is_file() and (root / "src" / "descentlab").is_dir():
            return script
    return None
