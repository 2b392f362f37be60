"""Requests: what a command line asks for, checked before anything runs."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from descentlab.engine import Settings
from descentlab.errors import SettingError
from descentlab.judging import Grid
from descentlab.papers import Figure, Paper, load
from descentlab.running import Processes

if TYPE_CHECKING:
    from descentlab.showing.gallery import Wanted


def parse_settings(words: Iterable[str], steps: int | None = None) -> dict[str, str]:
    """NAME=VALUE words, and the steps if they are given apart, as a mapping.

    >>> parse_settings(["d=1500", "eta=1e-3"])
    {'d': '1500', 'eta': '1e-3'}
    """
    settings = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise SettingError(f"a setting is written NAME=VALUE, got {word!r}.")
        settings[name.strip()] = value.strip()
    return settings if steps is None else settings | {"steps": str(steps)}


def chosen(name: str, preset: str, set_: list[str], steps: int | None, seeds: int) -> tuple[Paper, Settings]:
    """The paper and the preset that are asked for."""
    if seeds < 1:
        raise SettingError(f"seeds takes a whole number >= 1, got seeds={seeds}.")
    try:
        found = load(name)
        base = found.preset(preset)
    except KeyError as error:
        raise SettingError(error.args[0]) from None
    return found, base.replace(parse_settings(set_, steps))


def swept_and_set(axes: Sequence[Grid], set_: list[str], steps: int | None) -> None:
    """Refuses a setting that is both swept and set: one of both would be ignored."""
    fixed = parse_settings(set_, steps)
    # Where a value is a function of the preset's own, setting that moves it.
    values = [(name, value) for axis in axes for cell in axis.cells for name, value in cell.items()]
    for name in dict.fromkeys(name for name, value in values if not callable(value)):
        if name in fixed:
            raise SettingError(f"{name} is swept or set, got --over {name} and {name}={fixed[name]}.")


def atlas_wanted(names: list[str], scale: str, seeds: int) -> bool:
    """Whether the atlas is asked for, which has one scale and needs two halves of seeds."""
    from descentlab.atlas import NAME
    from descentlab.papers import FEWEST_SEEDS

    if NAME not in names:
        return False
    one_of("scale of the atlas", scale, ["quick"])
    if seeds < FEWEST_SEEDS:
        raise SettingError(
            f"the atlas takes {FEWEST_SEEDS} seeds or more, since one half chooses rates for the other; "
            f"got seeds={seeds}."
        )
    return True


def processes(workers: int | None, fewest: int = Processes.fewest) -> Processes:
    """A pool of `workers` processes on this machine, by default one for each core."""
    if workers is not None and workers < 1:
        raise SettingError(f"workers takes a whole number >= 1, got workers={workers}.")
    return Processes(fewest=fewest) if workers is None else Processes(workers, fewest)


def wanted_claims(found: Paper, preset: str, claims: str | None) -> set[str]:
    """The names of the claims that are asked for: all of the preset's, or some separated by commas."""
    known = [claim.name for claim in found.claims_of(preset)]
    wanted = known if claims is None else [name.strip() for name in claims.split(",")]
    for name in wanted:
        if name not in known:
            raise SettingError(f"{found.name} {preset} has no claim {name}; there are {', '.join(known)}.")
    return set(wanted)


def expectations(path: Path) -> dict[str, str]:
    """The outcomes that a file of `judge --json` records."""
    try:
        return {c["claim"]: c["outcome"] for c in json.loads(path.read_text())["claims"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingError(
            f"--expect takes a file written by `judge --json`, got {path} ({error})."
        ) from None


def one_of(name: str, value: str, allowed: list[str]) -> None:
    """Refuses a value that is not allowed."""
    if value not in allowed:
        raise SettingError(f"{name} takes {', '.join(allowed)}, got {name}={value}.")


def figures_of(name: str, wanted: list[str], preset: str | None, seeds: int) -> "list[Wanted]":
    """The figures that are asked for, each with the preset it is drawn at; `2` is short for `figure_2`."""
    from descentlab.showing.gallery import usual_preset

    found, _ = chosen(name, preset or "quick", [], None, seeds)
    there = {figure.name: figure for figure in found.figures if isinstance(figure, Figure)}
    own = [n for n, figure in there.items() if figure in found.figures_of(preset or "quick")]
    full = [n if n in there else f"figure_{n}" for n in wanted] or own
    for short, n in zip(wanted or own, full, strict=True):
        if n not in there:
            raise SettingError(f"{name} has no figure {short}; there are {', '.join(there)}.")
        if preset is not None and n not in own:
            raise SettingError(f"{name} {preset} has no figure {short}; there are {', '.join(own)}.")
    at = {n: preset or usual_preset(found, there[n]) for n in full}
    return [(found, found.preset(at[n]), there[n]) for n in full]
