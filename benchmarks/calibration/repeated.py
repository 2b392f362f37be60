"""Verdicts in company and repeated: families under Holm, more seeds, as many as asked for, several looks."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from calibration.planting import (
    Experiment,
    Rng,
    Series,
    Streams,
    exponent,
    mean_sample,
    samples,
)
from calibration.scoring import DECIDED, decidable, part_of, spread
from descentlab.judging import Claim, Interval, Outcome, at_least, judge, judge_family

FAMILY = 20
FEW, MANY = 8, 32
# A truth closer to an edge of the prediction than this, in margins, may stay undecided.
EDGE = 0.1
# More seeds than this take too long to draw and judge.
MOST_SEEDS = 256
LOOKS = (8, 16, 32)
# Cases are found in so many independent streams, on however many processes.
STREAMS = 8
SEEDS_ASKED = re.compile(r"about (\d+) seeds")


def planted(part: str, rng: Rng) -> Iterator[Experiment]:
    """Experiments of decidable families, mixed."""
    plants = list(decidable(part).values())
    while True:
        yield plants[rng.integers(len(plants))](rng)


def streams(what: int, part: str, seed: int, cases: int) -> list[tuple[Any, ...]]:
    """Arguments for `spread`: part, generator key, cases."""
    share = math.ceil(cases / STREAMS)
    return [(part, (seed, what, i), share) for i in range(STREAMS)]


def holm(part: str, seed: int, cases: int, jobs: int) -> dict[str, Any]:
    """The share of families of 20 claims, on data of their own, with any wrong verdict."""
    found = [own for some in spread(holm_some, streams(1, part, seed, cases), jobs) for own in some]
    wrong = sum(own[0] > 0 for own in found)
    decided = sum(own[1] for own in found)
    return {
        "families": len(found),
        "claims_each": FAMILY,
        "any_wrong": wrong,
        "any_wrong_share": part_of(wrong, len(found)),
        "decided_share": part_of(decided, FAMILY * len(found)),
    }


def holm_some(part: str, key: tuple[int, ...], cases: int) -> list[tuple[int, int]]:
    """Wrong and decided verdicts of each family."""
    rng = np.random.default_rng(key)
    source = planted(part, rng)
    found: list[tuple[int, int]] = []
    for _ in range(cases):
        members = {f"planted_{i}": next(source) for i in range(FAMILY)}
        claims = [replace(own.claim, name=name) for name, own in members.items()]
        verdicts = judge_family(claims, lambda claim, of=members: of[claim.name].data)
        outcomes = {verdict.claim: verdict.outcome for verdict in verdicts}
        decided = [name for name, outcome in outcomes.items() if outcome in DECIDED]
        wrong = sum(outcomes[name] in members[name].wrong for name in decided)
        found.append((wrong, len(decided)))
    return found


def more_seeds(part: str, seed: int, cases: int, jobs: int) -> dict[str, Any]:
    """Of cases decided at 8 seeds, clear of the edges, the share that 32 seeds leave undecided or reverse."""
    found = [own for some in spread(more_seeds_some, streams(2, part, seed, cases), jobs) for own in some]
    undecided = sum(after == "UNDECIDED" for _, after in found)
    reversed_ = sum(after in DECIDED and after != before for before, after in found)
    return {
        "decided_at_8": len(found),
        "undecided_at_32": undecided,
        "undecided_share": part_of(undecided, len(found)),
        "reversed_share": part_of(reversed_, len(found)),
    }


def more_seeds_some(part: str, key: tuple[int, ...], cases: int) -> list[tuple[str, str]]:
    """Outcomes at 8 and at 32 seeds, the first 8 the same."""
    source, found = planted(part, np.random.default_rng(key)), []
    while len(found) < cases:
        experiment = next(source)
        # What can be told from fewer seeds can be told from 8.
        if experiment.seeds > FEW or experiment.clearance <= EDGE:
            continue
        before = judge(experiment.claim, experiment.draw(FEW)).outcome
        if before in DECIDED:
            found.append((str(before), str(judge(experiment.claim, experiment.draw(MANY)).outcome)))
    return found


def needs(part: str, seed: int, cases: int, jobs: int) -> dict[str, Any]:
    """Of UNDECIDED verdicts that ask for about N seeds, the share that N decide, old ones among them."""
    parts = spread(needs_some, streams(3, part, seed, cases), jobs)
    found = [own for some, _ in parts for own in some]
    return {
        "asked": len(found),
        "decided": sum(own in DECIDED for own in found),
        "decided_share": part_of(sum(own in DECIDED for own in found), len(found)),
        f"left_out_over_{MOST_SEEDS}_seeds": sum(left for _, left in parts),
    }


def needs_some(part: str, key: tuple[int, ...], cases: int) -> tuple[list[str], int]:
    """Outcomes with the seeds that were asked for, and cases that asked for too many."""
    source, found, left = planted(part, np.random.default_rng(key)), [], 0
    # A rule that never asks must not be waited for.
    for _ in range(100 * cases):
        if len(found) == cases:
            break
        experiment = next(source)
        verdict = judge(experiment.claim, experiment.data)
        asked = SEEDS_ASKED.search(verdict.reason)
        if verdict.outcome != Outcome.UNDECIDED or asked is None:
            continue
        seeds = int(asked.group(1))
        if seeds > MOST_SEEDS:
            left += 1
        elif seeds > experiment.seeds:
            found.append(str(judge(experiment.claim, experiment.draw(seeds)).outcome))
    return found, left


def looks(part: str, seed: int, cases: int, jobs: int) -> dict[str, Any]:
    """The share of repetitions that SUPPORT what is false by a hair, looking at 8, then 16, then 32 seeds.

    Judged naively, and, where `judge_family` takes `looks`, with the number of looks that are planned.
    """
    ways = [False, True] if takes_looks() else [False]
    found: dict[str, Any] = {}
    for kind in EDGES:
        for corrected in ways:
            arguments = [(*own, kind, corrected) for own in streams(4, part, seed, cases)]
            counts = spread(looks_some, arguments, jobs)
            repetitions, wrong = (sum(own[i] for own in counts) for i in (0, 1))
            found[f"{kind}, {'looks declared' if corrected else 'naively'}"] = {
                "repetitions": repetitions,
                "wrong": wrong,
                "wrong_share": part_of(wrong, repetitions),
            }
    return found


def takes_looks() -> bool:
    """Whether `judge_family` can be told how many looks are planned."""
    return "looks" in inspect.signature(judge_family).parameters


def looks_some(part: str, key: tuple[int, ...], cases: int, kind: str, corrected: bool) -> tuple[int, int]:
    """Repetitions, and those of them in which a false claim is SUPPORTED at one of the looks."""
    rng, wrong = np.random.default_rng(key), 0
    for _ in range(cases):
        experiment = EDGES[kind](rng)
        for seeds in LOOKS:
            outcome = look(experiment.claim, experiment, seeds, corrected)
            if outcome in DECIDED:
                wrong += outcome in experiment.wrong
                break
    return cases, wrong


def look(claim: Claim, experiment: Experiment, seeds: int, corrected: bool) -> Outcome:
    """The outcome at one look."""
    data = experiment.draw(seeds)
    further: dict[str, Any] = {"looks": len(LOOKS)} if corrected else {}
    return judge_family([claim], lambda _: data, **further)[0].outcome


def edge_of_mean(rng: Rng) -> Experiment:
    """A mean just below the interval that is claimed."""
    draw = samples(rng, lambda rng, seeds: rng.standard_normal(seeds))
    return Experiment(draw, LOOKS[0], mean_sample, Interval(1e-6, 6.0), 0.0)


def edge_of_order(rng: Rng) -> Experiment:
    """A mean just below the half line that is claimed."""
    return replace(edge_of_mean(rng), predicts=at_least(1e-6))


def edge_of_exponent(rng: Rng) -> Experiment:
    """A pure power whose exponent is just below the interval that is claimed; seeds differ by 0.05."""
    steps = np.unique(np.geomspace(1, 10_000, 60).round())

    def own(streams: Streams, seeds: int, steps: np.ndarray) -> np.ndarray:
        return 0.05 * streams("own").standard_normal((seeds, 1)) * np.log(steps)

    course = Series(steps, -np.log(steps), LOOKS[0], 0.02, Streams.of(rng), each=own)
    return Experiment(course, LOOKS[0], exponent, Interval(-1 + 1e-6, -0.4), -1.0)


EDGES = {
    "mean in an interval": edge_of_mean,
    "mean on a half line": edge_of_order,
    "exponent in an interval": edge_of_exponent,
}
