"""Where the time of a step goes, by JAX's own profiler: in operations of each kind, and between them."""

import re
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

TRACED_SECONDS = 0.2  # a trace of a longer run would fill the profiler's buffer
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_OPERATION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = .*? ([a-z][\w\-]*)\(")
_CALLS = re.compile(r"(?:calls|to_apply|body)=%?([\w.\-]+)")
_RANDOM = re.compile(r'op_name="[^"]*(?:threefry|random|_normal|_uniform)')


def kinds(program: str) -> dict[str, str]:
    """The kind of every operation of a compiled program, by its name.

    A product contains a dot; random numbers are made by functions that are called so; all else passes over
    arrays.
    """
    traits: dict[str, set[str]] = defaultdict(set)  # of computations
    calls: dict[str, set[str]] = defaultdict(set)
    operations: dict[str, tuple[set[str], set[str]]] = {}
    current = ""
    for line in program.splitlines():
        if begins := _COMPUTATION.match(line):
            current = begins[1]
        elif operation := _OPERATION.match(line):
            own = {"products"} if operation[2] in ("dot", "convolution") else set[str]()
            own |= {"random"} if _RANDOM.search(line) else set()
            called = set(_CALLS.findall(line))
            operations[operation[1]] = own, called
            traits[current] |= own
            calls[current] |= called

    def contents(computation: str) -> set[str]:
        return traits[computation].union(*(contents(name) for name in calls[computation]))

    def kind(own: set[str], called: set[str]) -> str:
        found = own.union(*(contents(name) for name in called))
        return next((word for word in ("products", "random") if word in found), "passes")

    return {name: kind(*parts) for name, parts in operations.items()}


class Event(NamedTuple):
    """An operation in a trace, in nanoseconds. Loops hold what they repeat, where that is not one kernel."""

    start: float
    duration: float
    name: str


def alone(events: Iterable[Event]) -> Iterator[tuple[str, float]]:
    """The operations that hold no others, with their nanoseconds.

    >>> list(alone([Event(0, 10, "loop"), Event(1, 3, "dot"), Event(5, 2, "add")]))
    [('dot', 3), ('add', 2)]
    """
    ordered = sorted(events, key=lambda event: (event.start, -event.duration))
    for i, event in enumerate(ordered):
        if i + 1 == len(ordered) or ordered[i + 1].start >= event.start + event.duration:
            yield event.name, event.duration


def _traced(run: Callable[[], Any]) -> Iterator[list[Event]]:
    """The operations that a run performs, a list for each thread."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            jax.block_until_ready(run())
        file = next(Path(folder).rglob("*.xplane.pb"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the profiler's own types
            for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
                for line in plane.lines:
                    found = [(event, dict(event.stats).get("hlo_op")) for event in line.events]
                    yield [Event(e.start_ns, e.duration_ns, str(name)) for e, name in found if name]


def profile(advance: Any, arguments: tuple, steps: int, seeds: int, *, whole: bool = False) -> dict[str, Any]:
    """Of a step of one seed: how many operations, and the microseconds of each kind and between them.

    `advance` takes the arguments, the first and the last step; as many steps are traced as there is time for,
    or the `whole` run, where steps do not all take as long. Tracing itself takes time: what lies between
    operations is what they leave of a run without a trace, and where they leave nothing, since short ones
    look longer than they are, their times are shares of that run.
    """
    compiled = advance.lower(*arguments, 0, steps).compile()
    kind_of = kinds(compiled.as_text())

    def seconds(last: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(compiled(*arguments, 0, last))
        return time.perf_counter() - began

    first = min(steps, 20)
    seconds(first)
    last = steps if whole else max(1, min(steps, int(first * TRACED_SECONDS / seconds(first))))
    untraced = min(seconds(last) for _ in range(3))
    took, count = Counter[str](), 0
    for thread in _traced(lambda: compiled(*arguments, 0, last)):
        for name, nanoseconds in alone(thread):
            took[kind_of.get(name, "passes")] += nanoseconds  # type: ignore[assignment]
            count += 1
    each = 1 / (last * seeds)
    in_trace = 1e-9 * took.total()
    parts = {k: 1e-3 * each * ns * min(1.0, untraced / in_trace) for k, ns in took.most_common()}
    between = {"between": 1e6 * each * (untraced - in_trace)} if in_trace < untraced else {}
    return {"microseconds": 1e6 * each * untraced, "operations": each * count, "parts": parts | between}
