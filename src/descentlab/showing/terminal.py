"""What people see in a terminal: progress on standard error, verdicts on standard output."""

import datetime
import math
import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from descentlab.running import Tally, View, burning, identify, label

if TYPE_CHECKING:
    from descentlab.engine import Settings
    from descentlab.judging import Verdict
    from descentlab.papers import Paper
    from descentlab.store import Store
    from descentlab.sweeping import Sweep

LONG_SECONDS = 120
QUIET_SECONDS, RUN_QUIET_SECONDS = 10, 30  # between lines about a campaign, and about a run
MANY_STEPS, MANY_DEAR_STEPS = 10**6, 10**4  # worth timing beforehand; dear ones go through data
EARLY = 0.02  # of the work


S = TypeVar("S", bound="_Screen")


class _Screen(View):
    """A display on standard error that moves if that is a terminal."""

    def __init__(self) -> None:
        self.console = Console(file=sys.stderr)
        self.display: Progress | Live

    def __enter__(self: S) -> S:
        if self.console.is_terminal:
            self.display.start()
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        self.display.stop()
        if kind is KeyboardInterrupt:
            self.say("stopped; the same command goes on from here")

    def say(self, message: str) -> None:
        """A line on standard error."""
        self.console.print(message, highlight=False, markup=False, soft_wrap=True)

    def foretell(self, paper: "Paper", missing: "list[Settings]", seeds: int) -> None:
        """Says about how long training takes here, where that is long."""
        from descentlab.engine import seconds_per_step

        work = sum(p.steps for p in missing)  # type: ignore[attr-defined]
        system = paper.system_of(missing[0])
        if work * seeds < (MANY_STEPS if system.data is None else MANY_DEAR_STEPS):
            return
        if not system.divisible(missing[0]):
            return  # a flow chooses its own steps
        system.require(missing[0])
        self.say(f"timing {label(paper.name, missing[:1])} ...")
        seconds = work * seconds_per_step(system, missing[0], seeds)
        if seconds > LONG_SECONDS:
            self.say(f"about {span(seconds)} of training on this machine; a stop loses a few seconds")


class Bars(_Screen):
    """A bar a run on a terminal, elsewhere a line now and then; everywhere a line when a run is whole."""

    def __init__(self) -> None:
        super().__init__()
        self.display = self.bars = Progress(
            TextColumn("{task.description}"), BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"), TextColumn("loss {task.fields[loss]:.3g}"),
            TimeRemainingColumn(),
            console=self.console, transient=True,
        )  # fmt: skip
        self.task: TaskID | None = None
        self.label, self.steps, self.began, self.told = "", 0, 0.0, 0.0

    def begin(self, label: str, steps: int, seeds: int, cells: int = 1) -> None:
        """A new bar."""
        self.label, self.steps = f"{label} ({seeds} seeds)", steps
        self.began = self.told = time.monotonic()
        if self.console.is_terminal:
            self.task = self.bars.add_task(self.label, total=steps, loss=float("nan"))

    def progress(self, step: int, loss: float) -> None:
        """Moves the bar."""
        if self.task is not None:
            self.bars.update(self.task, completed=step, loss=loss)
        elif time.monotonic() - self.told > RUN_QUIET_SECONDS:
            self.told = time.monotonic()
            self.say(f"{self.label} step {step} of {self.steps}, loss {loss:.3g}")

    def drop(self) -> None:
        """Removes the bar."""
        if self.task is not None:
            self.bars.remove_task(self.task)
            self.task = None

    def end(self) -> None:
        """Removes the bar and leaves a line."""
        self.drop()
        self.say(f"{self.label} {time.monotonic() - self.began:.1f} s")


class Overview(_Screen):
    """A live table of a sweep on a terminal; elsewhere a line now and then."""

    def __init__(self, store: "Store") -> None:
        super().__init__()
        self.store, self.told, self.news = store, 0.0, (0.0, False)
        self.display = self.live = Live(console=self.console, transient=True, auto_refresh=False)

    def overview(self, tally: "Tally") -> None:
        """Draws the table again; elsewhere a line at the beginning, at the end, and every ten seconds."""
        running = [one for one in burning(self.store) if tally.runs.intersection(one["runs"])]
        words = progress_of(tally, running, time.monotonic() - tally.began)
        if self.console.is_terminal:
            table = Table(box=None, pad_edge=False, show_header=False)
            table.add_row(words)
            for one in running:
                loss = "" if one["loss"] is None else f"  loss {one['loss']:.3g}"
                table.add_row(
                    Text(f"  {one['label']}  {one['step']}/{one['steps']}{loss}  {one['host']}:{one['pid']}"),
                    ProgressBar(total=one["steps"], completed=one["step"], width=24),
                )
            self.live.update(table, refresh=True)
            return
        late = tally.left > 0 and time.monotonic() - self.told > QUIET_SECONDS
        news = (tally.began, tally.left == 0)
        if late or news != self.news:
            self.told, self.news = time.monotonic(), news
            self.say(words)

    def plan(self, paper: "Paper", presets: "list[Settings]", seeds: int) -> None:
        """Says beforehand what is to be done and, for long work, about how long it takes."""
        missing = [p for p in presets if self.store.seeds(identify(paper, p)) < seeds]
        self.say(f"{paper.name}: {len(presets)} runs, {len(presets) - len(missing)} of them in the store")
        if missing:
            self.foretell(paper, missing, seeds)


def span(seconds: float) -> str:
    """A long time in words.

    >>> span(600), span(4e4), span(9e5)
    ('10 minutes', '11 hours', '10 days')
    """
    units = (("days", 86_400), ("hours", 3600), ("minutes", 60))
    unit, length = next((one for one in units if seconds >= 2 * one[1]), units[-1])
    return f"{seconds / length:.0f} {unit}"


def progress_of(tally: "Tally", running: list[dict[str, Any]], seconds: float) -> str:
    """A sweep in one line: cells in the store, done, failed, running and left; pace and time left.

    Work is counted in cells, running ones by the share of their steps.
    """
    begun = sum(one["cells"] * one["step"] / max(one["steps"], 1) for one in running)
    work = min(tally.done + begun, tally.done + tally.left)
    words = [
        f"{_cells(tally.cells)}: {tally.stored} in the store", f"{tally.done} done",
        f"{len(tally.failed)} failed", f"{sum(one['cells'] for one in running)} running",
        f"{tally.left} to go",
    ]  # fmt: skip
    # While programs are compiled nothing moves, and no pace could be told.
    if work > EARLY * (tally.done + tally.left):
        words.append(f"{work / seconds:.3g} cells/s")
        if tally.left:
            left = (tally.left + tally.done - work) * seconds / work
            words.append(f"{datetime.timedelta(seconds=round(left))} left")
    return ", ".join(words)


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def print_sweep(result: "Sweep") -> None:
    """The exponents of a sweep, which of them are laws, and where it lies."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("quantity", "in", "exponent", "95 % interval", "drift", "", "cells left out"):
        table.add_column(column, justify="left" if column in ("quantity", "in", "") else "right")
    fits = [(quantity, name, fit) for quantity, own in result.exponents.items() for name, fit in own.items()]
    for quantity, name, fit in fits:
        known = math.isfinite(fit.low) or math.isfinite(fit.high)
        interval = f"\\[{short(fit.low)}, {short(fit.high)}]" if known else "-"
        law = {True: "a power", False: "bends", None: "?"}[fit.power_law]
        table.add_row(
            quantity, name, short(fit.value), interval, short(fit.drift), law, str(fit.left_out or "")
        )
    if fits:
        _print_table(table)
    if any(fit.power_law is False for *_, fit in fits):
        print("bends: the slope changes over the range, so there is no exponent")
    if any(fit.power_law is None for *_, fit in fits):
        print("?: more values (at least 7) or more seeds would tell whether it is a power")
    for cell, where in result.diverged().items():
        print(f"{cell} diverged: {where}")
    paper = next(iter(result.grids.values())).attrs["paper"]
    for preset, error in result.tally.failed.items():
        print(f"{label(paper, [preset])} failed: {error}; --retry runs it again")
    print(result.path.resolve())


def print_verdicts(verdicts: "list[Verdict]") -> None:
    """A table of verdicts, with the reason under those that have one."""
    colours = {"SUPPORTED": "cyan", "REFUTED": "yellow", "OUT_OF_REGIME": "magenta", "BROKEN": "red"}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, justify in (
        ("claim", "left"),
        ("outcome", "left"),
        ("at", "right"),
        ("value", "right"),
        ("95 % interval", "right"),
        ("predicts", "right"),
        ("seeds", "right"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for v in verdicts:
        interval = f"[{short(v.low)}, {short(v.high)}]".replace("[", "\\[")
        outcome = f"[{colours.get(v.outcome, 'default')}]{v.outcome}[/]"
        predicts = str(v.predicts).replace("[", "\\[")
        table.add_row(
            v.claim, outcome, f"{100 * v.level:.4g} %", short(v.value), interval, predicts, str(v.seeds)
        )
        if v.reason:
            table.add_row(f"  {v.reason}", style="dim")
    _print_table(table)
    if len(verdicts) > 1:
        print("Claims are judged together (Holm): the interval at the level under `at` decides.")


def _print_table(table: Table) -> None:
    """On standard output; wide where that is no terminal."""
    console = Console(soft_wrap=True) if sys.stdout.isatty() else Console(width=200, soft_wrap=True)
    console.print(table)


def short(x: float | None) -> str:
    """A number in four digits, a dash where there is none."""
    return "-" if x is None or x != x else f"{x:.4g}"
