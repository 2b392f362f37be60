"""The command line: papers, run, judge, sweep, reproduce, report, doctor.

Results go to standard output, as text or with --json as one JSON document; progress and
messages go to standard error. Exit codes: 0 done, 1 something is BROKEN, 2 wrong usage,
3 a verdict differs from a recorded one (judge --expect).
"""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from descentlab.errors import UserError
from descentlab.options import Json, Out, PaperName, PresetName, Scale, Seeds, Set, Steps, StoreDir, Workers

SEEDS = 8

app = typer.Typer(
    help="A laboratory for the training dynamics of transformers.",
    epilog="Exit codes: 0 done, 1 a run or a claim is BROKEN, 2 wrong usage, 3 a verdict differs (--expect).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Runs the command line; errors a user can mend end in one line, not in a traceback."""
    try:
        app(standalone_mode=True)
    except UserError as error:
        _fail(f"descentlab: {error}", error.exit_code)
    except OSError as error:
        _fail(f"descentlab: {error.strerror or error}: {error.filename or ''}", 1)


@app.callback(invoke_without_command=True)
def version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Options before any command."""
    if version:
        import descentlab

        print(descentlab.__version__)
        raise typer.Exit


@app.command()
def papers(json_: Json = False) -> None:
    """Papers with their presets, settings, claims and figures."""
    from descentlab import paper
    from descentlab.terminal import print_paper

    found = [paper.load(name) for name in paper.names()]
    if json_:
        _print_json([
            {
                "paper": p.name, "title": p.about.title, "presets": list(p.presets),
                "claims": [c.name for c in p.claims], "figures": [f.name for f in p.figures],
            }
            for p in found
        ])  # fmt: skip
        return
    for one in found:
        print_paper(one)


@app.command()
def run(
    paper: PaperName,
    preset: PresetName = "quick",
    set_: Set = [],  # noqa: B006
    seeds: Seeds = SEEDS,
    steps: Steps = None,
    store: StoreDir = None,
    json_: Json = False,
) -> None:
    """Trains one preset on some seeds and stores the trajectory."""
    from descentlab import experiment
    from descentlab.request import chosen
    from descentlab.store import Store
    from descentlab.terminal import Bars, short

    found, settings = chosen(paper, preset, set_, steps, seeds)
    with Bars() as watcher:
        result = experiment.run(found, settings, seeds, Store(store), watcher)
    last = experiment.final(result.data)
    broken = experiment.diverged(result.data)
    if json_:
        _print_json({
            "paper": paper, "preset": preset, "settings": settings.settings(), "run": result.id,
            "path": str(result.path.resolve()), "steps": int(result.data["step"][-1]), "seeds": seeds,
            "seconds": result.seconds, "final": last,
        })  # fmt: skip
    else:
        print(f"{result.id}: {seeds} seeds, {result.seconds:.1f} s\n{result.path}")
        for name, value in settings.derived().items():
            print(f"  {name:24s} {short(value)}")
        for name, summary in last.items():
            print(f"  {name:24s} {short(summary['mean'])} ± {short(summary['std'])}")
    if broken:
        _fail("BROKEN: " + "; ".join(broken), 1)


@app.command()
def judge(
    paper: PaperName,
    preset: PresetName = "quick",
    set_: Set = [],  # noqa: B006
    seeds: Seeds = SEEDS,
    steps: Steps = None,
    claims: Annotated[str | None, typer.Option(help="Only these claims, separated by commas.")] = None,
    expect: Annotated[
        Path | None, typer.Option(help="A file of `judge --json`; exit 3 where a verdict differs.")
    ] = None,
    workers: Workers = None,
    store: StoreDir = None,
    json_: Json = False,
) -> None:
    """Judges a paper's claims: runs what the store lacks, then reads the store alone."""
    from descentlab import experiment
    from descentlab.request import chosen, expectations, processes, wanted_claims
    from descentlab.store import Store
    from descentlab.terminal import Overview, print_verdicts

    found, settings = chosen(paper, preset, set_, steps, seeds)
    wanted = wanted_claims(found, preset, claims)
    recorded = expectations(expect) if expect else {}
    fleet = processes(workers)
    with Overview(Store(store)) as view:
        verdicts = experiment.judge_paper(found, preset, settings, seeds, Store(store), view, fleet)
    shown = [v for v in verdicts if v.claim in wanted]
    if json_:
        _print_json({
            "paper": paper, "preset": preset, "settings": settings.settings(), "seeds": seeds,
            "claims": [v.as_json() for v in shown],
        })  # fmt: skip
    else:
        print_verdicts(shown)
    differing = [
        f"{v.claim} is {v.outcome}, recorded {recorded[v.claim]}"
        for v in shown
        if recorded.get(v.claim, v.outcome) != v.outcome
    ]
    if any(v.outcome == "BROKEN" for v in shown):
        raise typer.Exit(1)
    if differing:
        _fail("; ".join(differing), 3)


@app.command()
def sweep(
    paper: PaperName,
    preset: PresetName = "quick",
    over: Annotated[
        list[str],
        typer.Option(
            "--over",
            metavar="NAME=V1,V2,...",
            help="Values of a setting, or linspace(FIRST,LAST,COUNT), logspace(FIRST,LAST,COUNT); "
            "A,B=A1:B1,A2:B2 moves two together. Several --over make a product.",
        ),
    ] = [],  # noqa: B006
    set_: Set = [],  # noqa: B006
    seeds: Seeds = SEEDS,
    steps: Steps = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run cells again that failed before.")] = False,
    workers: Workers = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A dask scheduler, such as tcp://host:8786; or slurm, pbs, slurm:FILE, pbs:FILE.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for tables and figures.")] = None,
    store: StoreDir = None,
    json_: Json = False,
) -> None:
    """Runs a preset over a grid of settings, or a study: one dataset, exponents, phase diagrams."""
    from descentlab import cluster as clusters
    from descentlab.request import chosen, processes
    from descentlab.store import Store
    from descentlab.sweep import sweep
    from descentlab.terminal import Overview, print_sweep

    found, settings = chosen(paper, preset, set_, steps, seeds)
    local = nullcontext(processes(workers))
    with clusters.connect(cluster) if cluster else local as fleet, Overview(Store(store)) as view:
        study = found.studies.get(preset)
        axes = study.grids if study and not over else over
        result = sweep(found, settings, axes, seeds, store, fleet, view, retry)
    if out is not None:
        from descentlab.diagram import draw_all

        draw_all(result, out)
    if json_:
        _print_json({
            "paper": paper, "preset": preset, "settings": settings.settings(), "over": result.over(),
            "seeds": seeds, **result.as_json(),
        })  # fmt: skip
    else:
        print_sweep(result)
    if result.tally.failed or result.diverged():
        raise typer.Exit(1)


@app.command()
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
    from descentlab.reproduce import reproduce
    from descentlab.request import chosen, processes

    wanted = [chosen(name, scale, [], None, seeds) for name in names or paper.names()]
    _reported(*reproduce(wanted, scale, seeds, store, out, processes(workers)))


@app.command()
def report(store: StoreDir = None, out: Out = Path("report")) -> None:
    """Writes the report again from what the store holds; trains nothing."""
    from descentlab import reproduce

    done = reproduce.report(store, out)
    if done is None:
        _fail("descentlab: the store holds no paper whole; `descentlab reproduce` makes one.", 1)
    _reported(*done)


@app.command()
def doctor(store: StoreDir = None) -> None:
    """Versions, devices, a numerical self-test, and the store's health."""
    from descentlab.doctor import examine

    lines, problems = examine(store)
    print("\n".join([*lines, *(f"  {problem}" for problem in problems)]))
    if problems:
        raise typer.Exit(1)


def _reported(path: Path, broken: bool) -> None:
    print(path.resolve())
    if broken:
        raise typer.Exit(1)


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=1, allow_nan=False))


def _fail(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(code)
