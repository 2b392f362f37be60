"""Requests: what a command line asks for, checked before anything runs."""

import json
from pathlib import Path

from descentlab import paper
from descentlab.errors import SettingError
from descentlab.fleet import Processes
from descentlab.paper import Paper
from descentlab.preset import Settings, parse_settings


def chosen(name: str, preset: str, set_: list[str], steps: int | None, seeds: int) -> tuple[Paper, Settings]:
    """The paper and the preset that are asked for."""
    if seeds < 1:
        raise SettingError(f"seeds takes a whole number >= 1, got seeds={seeds}.")
    try:
        found = paper.load(name)
        base = found.preset(preset)
    except KeyError as error:
        raise SettingError(error.args[0]) from None
    settings = parse_settings(set_)
    if steps is not None:
        settings["steps"] = str(steps)
    return found, base.replace(settings)


def processes(workers: int | None) -> Processes:
    """So many workers on this machine, by default one a core."""
    if workers is not None and workers < 1:
        raise SettingError(f"workers takes a whole number >= 1, got workers={workers}.")
    return Processes() if workers is None else Processes(workers)


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
