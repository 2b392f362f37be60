"""Claims: what a theorem says, in a form that a machine judges.

A claim measures an estimate on the data of its runs and predicts an interval for it; _verdicts.py says
what follows. The data may come from the store, or from anyone's logs: datasets with dimensions seed and step.

>>> import xarray as xr
>>> from descentlab.judging._estimates import mean
>>> losses = xr.DataArray([[1.0, 0.50], [1.0, 0.51], [1.0, 0.49]], dims=("seed", "step"))
>>> last_loss = lambda run: mean(run["loss"][:, -1])
>>> halved = Claim("halved", "Lemma 1", "The loss halves.", last_loss, Interval(0.4, 0.6))
>>> print(judge(halved, xr.Dataset({"loss": losses})))
SUPPORTED halved (Lemma 1): 0.5 in [0.4752, 0.5248], predicted [0.4, 0.6], 3 seeds
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import xarray as xr

from descentlab.judging._estimates import Broken, Estimate
from descentlab.judging._intervals import Interval
from descentlab.judging._verdicts import Outcome as Outcome
from descentlab.judging._verdicts import Verdict as Verdict
from descentlab.judging._verdicts import holm, needs, outcome, significance

Datasets = Mapping[str, xr.Dataset]


@dataclass(frozen=True)
class Assumption:
    """What a theorem assumes of the preset. Exact ones gate; those inside O(.) are measured and printed."""

    name: str
    holds: Callable[[Any], Any]
    measured: Callable[[Any], Any] | None = None
    exact: bool = True


def is_one_of(name: str, *allowed: object) -> Assumption:
    """That a field of the preset has one of some values."""
    words = " or ".join(str(value) for value in allowed)
    return Assumption(f"{name} = {words}", lambda p: getattr(p, name) in allowed)


@dataclass(frozen=True)
class Mutant:
    """A change that the claim must refute: of the preset, of single runs, or of the recorded data."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    alter: Callable[[Datasets], Datasets] | None = None


def mutant(name: str, **settings: Any) -> Mutant:
    """A mutant by other settings in all runs of the claim."""
    return Mutant(name, settings)


def data_mutant(name: str, change: Callable[[xr.Dataset], xr.Dataset]) -> Mutant:
    """A mutant by other data: `change` is applied to the dataset of every run."""
    return Mutant(name, alter=lambda runs: {run: change(data) for run, data in runs.items()})


Measure = Callable[..., Estimate]
KINDS = ("theorem", "lemma", "remark", "figure", "experiment", "ours")
BOUNDS = ("two-sided", "upper", "lower", "equality", "order", "existence")


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, how to measure it, and the interval it predicts.

    `runs` maps the name of a run to its overrides of the preset; `measure` gets the dataset of the only run,
    or those of several as keyword arguments under these names. `margin` says why the predicted interval is
    as wide as it is. Papers write claims with `Theorem.claim`.
    """

    name: str
    cite: str
    statement: str
    measure: Measure
    predicts: Interval
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"run": {}})
    assumes: tuple[Assumption, ...] = ()
    mutants: tuple[Mutant, ...] = ()
    presets: tuple[str, ...] = ("quick", "paper")
    margin: str = ""
    kind: str = "ours"
    bound: str = "two-sided"
    quote: str = ""
    link: str = ""
    # Claims of a paper stand in the order in which they were made.
    made: int = field(default_factory=count().__next__, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"name must be a Python identifier, got {self.name!r}.")
        for part, text in (("cite", self.cite), ("statement", self.statement)):
            if not text.strip():
                raise ValueError(f"{part} of claim {self.name} must not be empty, got {text!r}.")
        if not self.runs:
            raise ValueError(f"runs of claim {self.name} must name at least one run, got {dict(self.runs)}.")
        for part, value, known in (("kind", self.kind, KINDS), ("bound", self.bound, BOUNDS)):
            if value not in known:
                raise ValueError(f"{part} of claim {self.name} takes {', '.join(known)}, got {value!r}.")

    def __call__(self, *run: xr.Dataset, **runs: xr.Dataset) -> Estimate:
        """The estimate on the dataset of the only run, or on those of several by name."""
        return self.measure(*run, **runs)


@dataclass(frozen=True)
class Theorem:
    """Where statements of a paper stand, what they assume, and the claims that are made of them.

    `quote` is the statement as printed, `bound` says whether it is an upper bound, a lower one or two-sided
    (an upper bound is not refuted by being better). What a theorem says of all its claims, such as `presets`,
    a claim may say anew.
    """

    cite: str
    kind: str = "theorem"
    bound: str = "two-sided"
    quote: str = ""
    link: str = ""
    assumes: tuple[Assumption, ...] = ()
    presets: tuple[str, ...] = ("quick", "paper")
    claims: list[Claim] = field(default_factory=list[Claim])

    def claim(
        self, *, predicts: Interval, margin: str, name: str = "", statement: str = "", **further: Any
    ) -> Callable[[Measure], Claim]:
        """Makes a claim of a function: its name says what holds, its docstring is the statement.

        The first paragraph of the docstring is the statement; the rest says what is measured. The body
        measures. `further` are other fields of `Claim`: runs, mutants, and what differs from the theorem's
        own. `name` and `statement` are for claims that a loop makes of one function.
        """

        def made(measure: Measure) -> Claim:
            said = statement or " ".join(inspect.cleandoc(measure.__doc__ or "").split("\n\n")[0].split())
            common: dict[str, Any] = {
                "cite": self.cite, "kind": self.kind, "bound": self.bound, "quote": self.quote,
                "link": self.link, "assumes": self.assumes, "presets": self.presets,
            }  # fmt: skip
            claim = Claim(
                name=name or getattr(measure, "__name__", ""), statement=said, measure=measure,
                predicts=predicts, margin=margin, **(common | further),
            )  # fmt: skip
            self.claims.append(claim)
            return claim

        return made


theorem = Theorem  # as papers write it


def judge(
    claim: Claim,
    data: xr.Dataset | Datasets,
    *,
    preset: Any = None,
    runs: Iterable[str] = (),
    level: float = 0.95,
) -> Verdict:
    """The verdict on one claim by itself. `data` is the dataset of its run, or maps run names to datasets."""
    return _Case.of(claim, data, preset).verdict(level, runs)


def judge_family(
    claims: Sequence[Claim],
    data_of: Callable[[Claim], xr.Dataset | Datasets],
    *,
    preset: Any = None,
    runs_of: Callable[[Claim], Iterable[str]] | None = None,
    level: float = 0.95,
) -> list[Verdict]:
    """The verdicts on claims judged together: with probability `level`, none of them is wrong (Holm).

    Claims that are broken or out of regime count in the family, which is conservative.
    """
    cases = [_Case.of(claim, data_of(claim), preset) for claim in claims]
    levels = holm([case.significance() for case in cases], level)
    return [
        case.verdict(own, runs_of(case.claim) if runs_of else ())
        for case, own in zip(cases, levels, strict=True)
    ]


@dataclass(frozen=True)
class _Case:
    """A claim with its evidence: an estimate, or what broke it."""

    claim: Claim
    evidence: Estimate | str
    unmet: tuple[str, ...]
    assumptions: Mapping[str, float]

    @classmethod
    def of(cls, claim: Claim, data: xr.Dataset | Datasets, preset: Any) -> _Case:
        # Without a preset, as for foreign data, there is nothing to check assumptions on.
        assumes = claim.assumes if preset is not None else ()
        unmet = tuple(a.name for a in assumes if a.exact and not a.holds(preset))
        measured = {a.name: float(a.measured(preset)) for a in assumes if a.measured is not None}
        datasets = {next(iter(claim.runs)): data} if isinstance(data, xr.Dataset) else data
        parts: list[Any] = list(datasets.values()) if hasattr(datasets, "values") else [datasets]
        if not all(isinstance(part, xr.Dataset) for part in parts):
            raise TypeError(f"judge takes an xarray.Dataset, or datasets by names of runs; got {data!r}.")
        return cls(claim, _evidence(claim, datasets), unmet, measured)

    def significance(self) -> float:
        if self.unmet or isinstance(self.evidence, str):
            return 1.0
        return significance(self.claim.predicts, self.evidence)

    def verdict(self, level: float, runs: Iterable[str]) -> Verdict:
        claim, estimate = self.claim, self.evidence
        found: dict[str, Any] = {}
        if isinstance(estimate, str):
            said, reason = Outcome.BROKEN, estimate
        else:
            said, reason = outcome(claim.predicts, estimate, level), ""
            low, high = estimate.interval(0.95)
            found = {"value": estimate.value, "low": float(low), "high": float(high), "seeds": estimate.seeds}
            found |= {"range": estimate.range, "notes": estimate.notes}
            if said == Outcome.UNDECIDED:
                reason = needs(claim.predicts, estimate, level)
        if self.unmet:
            # Whatever was measured, or broke, the theorem does not speak of it.
            said, reason = Outcome.OUT_OF_REGIME, f"not met: {', '.join(self.unmet)}"
        return Verdict(
            claim=claim.name,
            cite=claim.cite,
            statement=claim.statement,
            kind=claim.kind,
            outcome=said,
            predicts=claim.predicts,
            level=level,
            unmet=self.unmet,
            runs=tuple(runs),
            reason=reason,
            assumptions=self.assumptions,
            **found,
        )


def _evidence(claim: Claim, datasets: Datasets) -> Estimate | str:
    """The estimate, or what broke it."""
    for run in claim.runs:
        if run not in datasets:
            return f"no data of run {run}; there are runs {', '.join(datasets) or '(none)'}"
        dims = [str(dim) for dim in datasets[run].dims]
        lacking = [dim for dim in ("seed", "step") if dim not in dims]
        if lacking:
            return f"{run} lacks dimension {' and '.join(lacking)}; it has {', '.join(dims) or '(none)'}"
        if "diverged_at" in datasets[run]:
            steps = datasets[run]["diverged_at"]
            seeds = steps["seed"].values
            where = [
                f"seed {seed} at step {step}"
                for seed, step in zip(seeds, steps.values, strict=True)
                if step >= 0
            ]
            if where:
                return f"{run} diverged: {', '.join(where)}"
    try:
        if len(claim.runs) == 1:
            found = claim.measure(datasets[next(iter(claim.runs))])
        else:
            found = claim.measure(**{run: datasets[run] for run in claim.runs})
        return found if found.range else replace(found, range=_steps([datasets[run] for run in claim.runs]))
    except Broken as broken:
        return str(broken)
    except KeyError as missing:
        return f"missing in the data: {missing.args[0]}"


def _steps(runs: Sequence[xr.Dataset]) -> dict[str, tuple[float, float]]:
    """The steps that runs were tested on, first to last record; none where steps have no values."""
    steps: list[Any] = [run["step"].values for run in runs if "step" in run.variables]
    if not steps:
        return {}
    return {"step": (float(min(own[0] for own in steps)), float(max(own[-1] for own in steps)))}
