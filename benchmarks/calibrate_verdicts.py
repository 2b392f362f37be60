"""Plants laws whose constants are known, judges claims on them, and counts the wrong verdicts.

    .venv/bin/python benchmarks/calibrate_verdicts.py [--part shaped|unseen] [--experiments N] [--seed S]
        [--families WORD ...] [--jobs 2] [--json] [--against FILE]
    .venv/bin/python benchmarks/calibrate_verdicts.py --what holm|seeds|needs|looks [--part ...] [--cases N]

The table has, for each family, the share that is decided, how many of those are wrong, how often the 95 %
interval covers the truth, and its median width over that of OLS; beside it the same for plain OLS with
Student's interval over seeds and for the percentile bootstrap over seeds. Families of `UNDECIDABLE`, which
no data could tell, stand apart and do not count. `--against` compares with a table written with --json.

    --what holm    families of 20 claims under Holm: the share with any wrong verdict
    --what seeds   cases decided at 8 seeds: the share that is undecided at 32
    --what needs   verdicts that ask for about N seeds: the share that N seeds decide
    --what looks   false by a hair, judged at 8, 16, 32 seeds until decided: the share that is SUPPORTED

Rules are shaped on `--part shaped`; `--part unseen` is for the report of a rule that is fixed. Only public
names of descentlab.judging are used: PYTHONPATH may point at another version's src. Exits 1 if in a family
clearly more than 5 % of the decided verdicts are wrong, if something is misread (BROKEN without need, or
not BROKEN in need), or if fewer than 95 % of the textbook cases are decided.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Arrays are small: threads of linear algebra would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from calibration import repeated
from calibration.scoring import PARTS, calibrate, too_wrong, total

LEAST_POWER = 0.95
MODES: dict[str, tuple[Callable[[str, int, int, int], dict[str, Any]], int]] = {
    "holm": (repeated.holm, 300),
    "seeds": (repeated.more_seeds, 1000),
    "needs": (repeated.needs, 400),
    "looks": (repeated.looks, 2000),
}
HEAD = (
    "decided", "wrong", "covers", "width", "OLS decided", "wrong", "covers",
    "bootstrap decided", "wrong", "covers", "misread",
)  # fmt: skip
HEAD_AGAINST = ("decided then", "now", "wrong then", "now", "covers then", "now")


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def cells(found: dict[str, Any]) -> list[str]:
    """A row of the table: shares in percent, the width as a ratio to that of OLS."""
    width = found["width_to_ols"]
    words = [percent(found[key]) for key in ("decided_share", "wrong_of_decided", "coverage")]
    words.append("-" if width is None else f"{width:.2f}" if isinstance(width, float) else str(width))
    for plain in (found["ols"], found["bootstrap"]):
        words += [percent(plain[key]) for key in ("decided_share", "wrong_of_decided", "coverage")]
    return [*words, str(found["misread"])]


def cells_against(now: dict[str, Any], then: dict[str, Any]) -> list[str]:
    """A row of the table that compares with an earlier one."""
    keys = ("decided_share", "wrong_of_decided", "coverage")
    return [percent(own.get(key)) for key in keys for own in (then, now)]


def print_table(head: tuple[str, ...], rows: dict[str, list[str]]) -> None:
    first = max(len(name) for name in ("planted", *rows))
    head = tuple(f"{column:>6}" for column in head)
    print(f"| {'planted':<{first}} | " + " | ".join(head) + " |")
    print(f"| {'-' * first} | " + " | ".join("-" * (len(column) - 1) + ":" for column in head) + " |")
    for name, words in rows.items():
        line = " | ".join(f"{word:>{len(column)}}" for word, column in zip(words, head, strict=True))
        print(f"| {name:<{first}} | {line} |")


def document(part: str, experiments: int, seed: int, words: list[str], jobs: int) -> dict[str, Any]:
    """All that the table says, and whether it is good enough."""
    found = calibrate(part, experiments, seed, words, jobs)
    counted = {name: own for name, own in found.items() if name not in PARTS[part].UNDECIDABLE}
    textbook = [own["decided_share"] for name, own in counted.items() if name.startswith("textbook")]
    bad = [name for name, own in counted.items() if too_wrong(own) or own["misread"]]
    return {
        "part": part,
        "seed": seed,
        "experiments_each": experiments,
        "families": found,
        "undecidable": {name: why for name, why in PARTS[part].UNDECIDABLE.items() if name in found},
        "all_counted": total(counted.values()),
        "too_wrong_or_misread": bad,
        "textbook_decided": textbook[0] if textbook else None,
    }


def show(found: dict[str, Any], against: dict[str, Any] | None) -> None:
    """Prints the table, then the undecidable families, then the totals."""
    undecidable = found["undecidable"]
    head = HEAD if against is None else HEAD_AGAINST

    def rows(apart: bool) -> dict[str, list[str]]:
        return {
            name: cells(own) if against is None else cells_against(own, against["families"].get(name, {}))
            for name, own in found["families"].items()
            if (name in undecidable) == apart
        }

    print(
        f"Part {found['part']}, seed {found['seed']}, {found['experiments_each']} experiments each, in %.\n"
    )
    print_table(head, rows(False))
    if undecidable:
        print("\nNot counted, since no data could tell:\n")
        print_table(head, rows(True))
        print()
        print(*(f"{name}: {why}" for name, why in undecidable.items()), sep="\n")
    print()
    whole = found["all_counted"]
    print(*(f"{name}: {value:.4g}" for name, value in whole.items() if value is not None), sep="\n")
    if found["too_wrong_or_misread"]:
        print(f"wrong or misread too often: {'; '.join(found['too_wrong_or_misread'])}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--what", choices=("table", *MODES), default="table")
    parser.add_argument("--part", choices=tuple(PARTS), default="shaped")
    parser.add_argument("--experiments", type=int, default=300, help="per family")
    parser.add_argument("--cases", type=int, help="of --what holm, seeds, needs or looks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", nargs="+", default=[], metavar="WORDS", help="parts of their names")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--against", type=Path, metavar="FILE", help="written earlier with --json")
    given = parser.parse_args()

    if given.what != "table":
        mode, cases = MODES[given.what]
        found = mode(given.part, given.seed, given.cases or cases, given.jobs)
        print(json.dumps({"what": given.what, "part": given.part, "seed": given.seed, **found}, indent=2))
        return 0
    found = document(given.part, given.experiments, given.seed, given.families, given.jobs)
    if not found["families"]:
        parser.error(f"No family of {given.part} has a name with {' or '.join(given.families)}.")
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        show(found, json.loads(given.against.read_text()) if given.against else None)
    textbook = found["textbook_decided"]
    return int(bool(found["too_wrong_or_misread"]) or (textbook is not None and textbook < LEAST_POWER))


if __name__ == "__main__":
    sys.exit(main())
