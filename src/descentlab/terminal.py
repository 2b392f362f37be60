"""What people see in a terminal: progress on standard error, verdicts on standard output."""

import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from descentlab.experiment import Watcher, identify, label

if TYPE_CHECKING:
    from descentlab.claim import Verdict
    from descentlab.paper import Paper
    from descentlab.preset import Settings
    from descentlab.store import Store

LONG_SECONDS = 120


class Bars(Watcher):
    """A bar a run on a terminal; everywhere a line when a run is whole."""

    def __init__(self) -> None:
        self.console = Console(file=sys.stderr)
        self.bars = Progress(
            TextColumn("{task.description}"), BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"), TextColumn("loss {task.fields[loss]:.3g}"),
            TimeRemainingColumn(),
            console=self.console, transient=True,
        )  # fmt: skip
        self.task: TaskID | None = None
        self.label, self.began = "", 0.0

    def __enter__(self) -> "Bars":
        if self.console.is_terminal:
            self.bars.start()
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        self.bars.stop()
        if kind is KeyboardInterrupt:
            self.say("stopped; the same command goes on from here")

    def begin(self, label: str, steps: int, seeds: int) -> None:
        """A new bar."""
        self.label, self.began = f"{label} ({seeds} seeds)", time.monotonic()
        if self.console.is_terminal:
            self.task = self.bars.add_task(self.label, total=steps, loss=float("nan"))

    def progress(self, step: int, loss: float) -> None:
        """Moves the bar."""
        if self.task is not None:
            self.bars.update(self.task, completed=step, loss=loss)

    def end(self) -> None:
        """Removes the bar and leaves a line."""
        if self.task is not None:
            self.bars.remove_task(self.task)
            self.task = None
        self.say(f"{self.label} {time.monotonic() - self.began:.1f} s")

    def say(self, message: str) -> None:
        """A line on standard error."""
        self.console.print(message, highlight=False, markup=False, soft_wrap=True)

    def plan(self, paper: "Paper", presets: "list[Settings]", seeds: int, store: "Store") -> None:
        """Says beforehand what is to be done and, for long work, about how long it takes."""
        missing = [p for p in presets if store.seeds(identify(paper, p)) < seeds]
        self.say(f"{paper.name}: {len(presets)} runs, {len(presets) - len(missing)} of them in the store")
        if not missing:
            return
        from descentlab.rollout import seconds_per_step

        work = sum(p.steps for p in missing)  # type: ignore[attr-defined]
        if work * seeds < 10**6:
            return
        self.say(f"timing {label(paper, missing[0])} ...")
        seconds = work * seconds_per_step(paper.system, missing[0], seeds)
        if seconds > LONG_SECONDS:
            self.say(
                f"about {seconds / 60:.0f} minutes on this machine; a stop loses at most a few seconds of it"
            )


def print_paper(paper: "Paper") -> None:
    """What a paper offers: presets, settings with their meaning, claims, figures."""
    lists = {
        "presets": [", ".join(paper.presets)],
        "settings": paper.preset("quick").explained(),
        "claims": [claim.name for claim in paper.claims],
        "figures": [figure.name for figure in paper.figures],
    }
    print(f"{paper.name}: {paper.about.title}\n  {paper.about.citation}")
    for title, lines in lists.items():
        print(f"  {title:9s}" + "\n           ".join(lines))


def print_verdicts(verdicts: "list[Verdict]") -> None:
    """A table of verdicts, with the reason under those that have one."""
    colours = {"SUPPORTED": "cyan", "REFUTED": "yellow", "OUT_OF_REGIME": "magenta", "BROKEN": "red"}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, justify in (
        ("claim", "left"),
        ("outcome", "left"),
        ("value", "right"),
        ("95 % interval", "right"),
        ("predicts", "right"),
        ("seeds", "right"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for v in verdicts:
        interval = f"[{short(v.low)}, {short(v.high)}]".replace("[", "\\[")
        outcome = f"[{colours.get(v.outcome, 'default')}]{v.outcome}[/]"
        table.add_row(
            v.claim, outcome, short(v.value), interval, str(v.predicts).replace("[", "\\["), str(v.seeds)
        )
        if v.reason:
            table.add_row(f"  {v.reason}", style="dim")
    console = Console(soft_wrap=True) if sys.stdout.isatty() else Console(width=200, soft_wrap=True)
    console.print(table)


def short(x: float | None) -> str:
    """A number in four digits, a dash where there is none."""
    return "-" if x is None or x != x else f"{x:.4g}"
