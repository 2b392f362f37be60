"""Compares verdicts with the recorded ones: every outcome, and every number to six digits.

    python tests/compare_recorded.py [--store DIR] [--against DIR] [PAPER.PRESET ...]

Judges every file of docs/recorded (or of another folder) again, or the named ones, and prints what differs;
exit code 1 if anything does. The store decides what has to be trained: an empty one makes this a whole
reproduction of the verdicts.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).resolve().parents[1] / "docs" / "recorded"
NUMBERS = ("value", "low", "high", "predicts", "seeds")
# Numbers of this size are what rounding leaves of an exact zero.
ROUNDING = 1e-9


def differences(recorded: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    """What differs between two documents of `judge --json`, a line each."""
    ours = {claim["claim"]: claim for claim in found["claims"]}
    for claim in recorded["claims"]:
        name = claim["claim"]
        if name not in ours:
            yield f"{name} is gone"
            continue
        if ours[name]["outcome"] != claim["outcome"]:
            yield f"{name} is {ours[name]['outcome']}, recorded {claim['outcome']}"
        shared = claim["range"].keys() & ours[name]["range"].keys()  # sizes are among the settings too
        if any(not _same(claim["range"][key], ours[name]["range"][key]) for key in shared):
            yield f"{name}: range is {ours[name]['range']}, recorded {claim['range']}"
        for key in NUMBERS:
            if not _same(claim[key], ours[name][key]):
                yield f"{name}: {key} is {ours[name][key]}, recorded {claim[key]}"
    for name in ours.keys() - {claim["claim"] for claim in recorded["claims"]}:
        yield f"{name} is new"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(_same(one[k], other[k]) for k in one)
        )
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(_same, one, other))
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=ROUNDING)


def judged(paper: str, preset: str, seeds: int, store: str | None) -> dict[str, Any]:
    """The document that `descentlab judge` prints."""
    words = [sys.executable, "-m", "descentlab", "judge", paper, preset, "--seeds", str(seeds), "--json"]
    words += ["--store", store] if store else []
    return json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)


def main() -> int:
    """Compares, and prints what differs."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("names", nargs="*", metavar="PAPER.PRESET")
    words.add_argument("--store", help="the store; else $DESCENTLAB_STORE, else ./store")
    words.add_argument("--against", type=Path, default=RECORDED, help="a folder of files of `judge --json`")
    options = words.parse_args()
    files = [options.against / f"{name}.json" for name in options.names]
    files = files or sorted(options.against.glob("*.json"))
    count = 0
    for file in files:
        recorded = json.loads(file.read_text())
        found = judged(recorded["paper"], recorded["preset"], recorded["seeds"], options.store)
        lines = list(differences(recorded, found))
        count += len(lines)
        print(f"{file.stem}: {len(recorded['claims'])} claims, {len(lines)} differences", flush=True)
        print("".join(f"  {line}\n" for line in lines), end="", flush=True)
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
