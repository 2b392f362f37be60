"""What people see in a terminal: progress on standard error, verdicts on standard output."""

import datetime
import math
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from descentlab.running import Progress, Tally, jobs_in_progress, label

if TYPE_CHECKING:
    from descentlab.judging import Verdict
    from descentlab.store import Store
    from descentlab.sweeping import Sweep

QUIET_SECONDS = 10  # between two lines where there is no terminal
EARLY = 0.02  # of the work, before which no pace is shown
BAR_WIDTH = 24


class Display(Progress):
    """Progress on standard error: a live table with a bar for each job on a terminal, elsewhere lines.

    The table is drawn by a thread, from what the store says of jobs in progress: so it moves also while this
    process computes or compiles, and shows jobs of other processes.
    """

    def __init__(self, store: "Store", forecast: bool = False) -> None:
        self.store, self.forecast = store, forecast
        self.tally: Tally | None = None
        self.shown = (0.0, False)  # the tally that the last line was about, and whether it was the end
        self.spoke = 0.0
        self.console = Console(file=sys.stderr)
        self.live = Live(
            get_renderable=self.table, console=self.console, transient=True, refresh_per_second=2,
            # What is printed meanwhile must not go to standard error, unless it would tear the table.
            redirect_stdout=sys.stdout.isatty(),
        )  # fmt: skip

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        self.live.stop()
        if kind is KeyboardInterrupt:
            self.say("stopped; the same command goes on from here")

    def say(self, message: str) -> None:
        """Prints a line on standard error."""
        self.console.print(message, highlight=False, markup=False, soft_wrap=True)

    def overview(self, tally: Tally) -> None:
        """Shows the tally; without a terminal, a line at the beginning and at the end."""
        self.tally = tally
        self.tick()

    def step(self, step: int, loss: float) -> None:
        """Without a terminal, prints a line if the last one is old."""
        self.tick()

    def tick(self) -> None:
        """Without a terminal, prints a line if the last one is old."""
        if self.console.is_terminal or self.tally is None:
            return
        shown = (self.tally.began, self.tally.left == 0)
        late = self.tally.left > 0 and time.monotonic() - self.spoke > QUIET_SECONDS
        if late or shown != self.shown:
            self.shown, self.spoke = shown, time.monotonic()
            jobs = self._jobs(self.tally)
            words = [progress_of(self.tally, jobs, time.monotonic() - self.tally.began)]
            if len(jobs) == 1:
                words += [f"step {jobs[0]['step']} of {jobs[0]['steps']}", _loss(jobs[0])]
            self.say(", ".join(filter(None, words)))

    def table(self) -> Group:
        """The tally in a line, and for each job in progress its label and a bar."""
        if self.tally is None:
            return Group()
        jobs = self._jobs(self.tally)
        words = progress_of(self.tally, jobs, time.monotonic() - self.tally.began)
        lines: list[RenderableType] = [Text(words)]
        for job in jobs:
            bar = ProgressBar(total=job["steps"], completed=job["step"], width=BAR_WIDTH)
            left = job["seconds_left"]
            time_left = "" if left is None else f"{datetime.timedelta(seconds=round(left))} left"
            line = Table.grid(padding=(0, 2))
            line.add_row("", bar, Text(f"{job['step']}/{job['steps']}"), Text(_loss(job)), Text(time_left))
            lines += [Text(f"{job['label']} ({job['seeds']} seeds)"), line]
        return Group(*lines)

    def _jobs(self, tally: Tally) -> list[dict[str, Any]]:
        """The jobs in progress that compute cells of the tally, in any process."""
        return [job for job in jobs_in_progress(self.store) if tally.runs.intersection(job["runs"])]


def _loss(job: dict[str, Any]) -> str:
    return "" if job["loss"] is None else f"loss {job['loss']:.3g}"


def progress_of(tally: Tally, running: list[dict[str, Any]], seconds: float) -> str:
    """A tally in one line: cells in the store, done, failed, running and left; pace and time left.

    Work is counted in cells, of running ones the share of their steps.
    """
    begun = sum(one["cells"] * one["step"] / max(one["steps"], 1) for one in running)
    work = min(tally.done + begun, tally.done + tally.left)
    words = [
        f"{tally.cells} cell{'s' if tally.cells != 1 else ''}: {tally.stored} in the store",
        f"{tally.done} done",
        f"{len(tally.failed)} failed", f"{sum(one['cells'] for one in running)} running",
        f"{tally.left} to go",
    ]  # fmt: skip
    # While programs are compiled no step is taken, so there is no pace.
    if work > EARLY * (tally.done + tally.left):
        words.append(f"{work / seconds:.3g} cells/s")
        if tally.left:
            left = (tally.left + tally.done - work) * seconds / work
            words.append(f"{datetime.timedelta(seconds=round(left))} left")
    return ", ".join(words)


def print_sweep(result: "Sweep") -> None:
    """The exponents of a sweep, which of them are laws, and where it lies."""
    columns = ("quantity", "in", "exponent", "95 % interval", "drift", "", "cells left out")
    table = _table(columns, left=("quantity", "in", ""))
    rows = [(quantity, name, fit) for quantity, own in result.exponents.items() for name, fit in own.items()]
    for quantity, name, fit in rows:
        known = math.isfinite(fit.low) or math.isfinite(fit.high)
        interval = f"\\[{short(fit.low)}, {short(fit.high)}]" if known else "-"
        law = {True: "a power", False: "bends", None: "?"}[fit.power_law]
        left_out = str(fit.left_out or "")
        table.add_row(quantity, name, short(fit.value), interval, short(fit.drift), law, left_out)
    if rows:
        _print_table(table)
    laws = {fit.power_law for *_, fit in rows}
    if False in laws:
        print("bends: the slope changes over the range, so there is no exponent")
    if None in laws:
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
    columns = ("claim", "outcome", "at", "value", "95 % interval", "predicts", "seeds")
    table = _table(columns, left=("claim", "outcome"))
    for v in verdicts:
        interval = f"\\[{short(v.low)}, {short(v.high)}]"
        outcome = f"[{colours.get(v.outcome, 'default')}]{v.outcome}[/]"
        predicts, level = str(v.predicts).replace("[", "\\["), f"{100 * v.level:.4g} %"
        table.add_row(v.claim, outcome, level, short(v.value), interval, predicts, str(v.seeds))
        if v.reason:
            table.add_row(f"  {v.reason}", style="dim")
    _print_table(table)
    if len(verdicts) > 1:
        print("Claims are judged together (Holm): the interval at the level under `at` decides.")


def _table(columns: Sequence[str], left: Sequence[str]) -> Table:
    """An empty table; numbers stand to the right, what is in `left` does not."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right")
    return table


def _print_table(table: Table) -> None:
    """On standard output; wide where that is no terminal."""
    console = Console(soft_wrap=True) if sys.stdout.isatty() else Console(width=200, soft_wrap=True)
    console.print(table)


def short(x: float | None) -> str:
    """A number in four digits, a dash where there is none."""
    return "-" if x is None or x != x else f"{x:.4g}"
