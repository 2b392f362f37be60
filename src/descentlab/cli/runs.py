"""Commands that train: run, judge, sweep."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from descentlab.cli.options import SEEDS, Json, PaperName, PresetName, Seeds, Set, Steps, StoreDir, Workers
from descentlab.cli.output import fail, print_json
from descentlab.errors import SettingError


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
    from descentlab import running
    from descentlab.cli.request import chosen
    from descentlab.showing.terminal import Display, short
    from descentlab.store import Store

    found, settings = chosen(paper, preset, set_, steps, seeds)
    place = Store(store)
    with Display(place, forecast=True) as display:
        result = running.run(found, settings, seeds, place, pool=running.Here(), progress=display)
    last = running.final(result.data)
    broken = running.diverged(result.data)
    if json_:
        print_json({
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
        fail("BROKEN: " + "; ".join(broken), 1)


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
    from descentlab import running
    from descentlab.cli.request import chosen, expectations, processes, wanted_claims
    from descentlab.showing.terminal import Display, print_verdicts
    from descentlab.store import Store

    found, settings = chosen(paper, preset, set_, steps, seeds)
    wanted = wanted_claims(found, preset, claims)
    recorded = expectations(expect) if expect else {}
    pool, place = processes(workers), Store(store)
    with Display(place, forecast=True) as display:
        verdicts = running.judge_paper(found, preset, settings, seeds, place, pool=pool, progress=display)
    shown = [v for v in verdicts if v.claim in wanted]
    if json_:
        print_json({
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
        fail("; ".join(differing), 3)


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
    from descentlab.cli.request import chosen, processes, swept_and_set
    from descentlab.running import connect
    from descentlab.showing.terminal import Display, print_sweep
    from descentlab.store import Store
    from descentlab.sweeping import FEWEST_JOBS, axes_of, cells, sweep

    found, settings = chosen(paper, preset, set_, steps, seeds)
    study = found.studies.get(preset)
    axes = axes_of(found, study.grids if study and not over else over)
    for own in axes.values():
        swept_and_set(own, set_, steps)
    if cluster is not None:
        if workers is not None:
            raise SettingError(f"workers is for this machine, cluster for others, got {workers=} and both.")
        for own in axes.values():
            cells(settings, own)  # a wrong value is refused before any job is submitted
    computing = nullcontext(processes(workers, fewest=FEWEST_JOBS)) if cluster is None else connect(cluster)
    with computing as pool, Display(Store(store)) as display:
        result = sweep(found, settings, axes, seeds, store, pool, display, retry)
    if out is not None:
        from descentlab.sweeping import draw_all

        draw_all(result, out)
    if json_:
        print_json({
            "paper": paper, "preset": preset, "settings": settings.settings(), "over": result.over(),
            "seeds": seeds, **result.as_json(),
        })  # fmt: skip
    else:
        print_sweep(result)
    if result.tally.failed or result.diverged():
        raise typer.Exit(1)
