"""Forecasts: how much there is to do, and about how long training takes on this machine."""

import time
from collections.abc import Sequence

import jax

from descentlab.engine import PIECE_SECONDS, OneThread, Settings, System, begun
from descentlab.papers import Paper
from descentlab.running._plan import label
from descentlab.running._progress import Progress

STEPS = 50  # that are timed together
LONG_SECONDS = 120  # of training, which are worth a message
MANY_STEPS, MANY_DATA_STEPS = 10**6, 10**4  # which are worth timing beforehand; the latter go through data


def announce(paper: Paper, cells: int, missing: Sequence[Settings], seeds: int, progress: Progress) -> None:
    """Says how many of the cells are missing and, if computing them is long, about how long it takes."""
    runs = "1 run" if cells == 1 else f"{cells} runs"
    progress.say(f"{paper.name}: {runs}, {cells - len(missing)} of them in the store")
    if not missing:
        return
    system = paper.system_of(missing[0])
    steps = sum(preset.steps for preset in missing)
    many = MANY_STEPS if system.data is None else MANY_DATA_STEPS
    if steps * seeds < many or not system.divisible(missing[0]):  # a flow chooses its steps
        return
    system.require(missing[0])
    progress.say(f"timing {label(paper.name, missing[:1])} ...")
    seconds = steps * seconds_per_step(system, missing[0], seeds)
    if seconds > LONG_SECONDS:
        progress.say(f"about {span(seconds)} of training on this machine; a stop loses a few seconds")


def span(seconds: float) -> str:
    """A long time in words.

    >>> span(600), span(4e4), span(9e5)
    ('10 minutes', '11 hours', '10 days')
    """
    units = (("days", 86_400), ("hours", 3600), ("minutes", 60))
    unit, length = next((one for one in units if seconds >= 2 * one[1]), units[-1])
    return f"{seconds / length:.0f} {unit}"


@OneThread()
def seconds_per_step(system: System, preset: Settings, seeds: int) -> float:
    """The time a step of so many seeds takes here, compiled; of several steps where one is short."""
    arguments = begun(system, preset, seeds)

    def seconds(count: int) -> float:
        began = time.monotonic()
        jax.block_until_ready(system.advance(*arguments, 0, count))
        return time.monotonic() - began

    seconds(1)  # compiles
    one = seconds(1)
    return one if one > PIECE_SECONDS else seconds(STEPS) / STEPS
