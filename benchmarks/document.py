"""The document of a benchmark for reading: a table on the terminal, and docs/performance.md."""

from collections.abc import Iterator
from typing import Any

HEAD = ("workload", "seeds", "lab, us", "torch, us", "ratio", "goal", "compiled", "fused", "limit",
        "compiling, s", "peak (bound), MB")  # fmt: skip
RATES = {
    "sgemm": ("32-bit products", 1e9, "GFLOP/s"),
    "dgemm": ("64-bit products", 1e9, "GFLOP/s"),
    "copy": ("copy in main memory", 1e9, "GB/s"),
    "functions_32": ("32-bit exponentials", 1e6, "million/s"),
    "functions_64": ("64-bit exponentials", 1e6, "million/s"),
    "words": ("random 32-bit words", 1e6, "million/s"),
    "normals": ("random normal numbers", 1e6, "million/s"),
}


def number(x: float) -> str:
    """A number with three digits.

    >>> [number(x) for x in (0.01234, 5.678, 1234.5)]
    ['0.0123', '5.68', '1234']
    """
    return f"{x:.0f}" if abs(x) >= 100 else f"{x:.3g}"


def spread(ratio: dict[str, float] | None) -> str:
    """A ratio with its lowest and highest round."""
    return "" if ratio is None else f"{ratio['value']:.3g} ({ratio['low']:.3g} to {ratio['high']:.3g})"


def rows(document: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """A row for each workload and number of seeds."""
    for work in document["workloads"]:
        for own in work["lab"]:
            ratios, goals, met = own["ratio"], own["goal"], own["met"]
            goal = ", ".join(
                f"{'' if name == 'eager' else name + ' '}{value:.3g} {'met' if met.get(name) else 'MISSED'}"
                for name, value in goals.items()
            )
            yield (
                work["workload"], str(own["seeds"]), number(own["microseconds"]),
                number(work["torch"]["eager"]["microseconds"]), spread(ratios["eager"]), goal,
                spread(ratios.get("compiled")) or "fails", spread(ratios.get("fused")),
                f"{own['limit']['share']:.0%}" if own["limit"] else "", f"{own['compile_seconds']:.1f}",
                f"{own['peak_megabytes']:.0f} ({own['bound_megabytes']:.0f})",
            )  # fmt: skip


def remarks(document: dict[str, Any]) -> Iterator[str]:
    """What to know before the numbers are used."""
    if document["quiet"] is False:
        yield (
            f"NOT A MEASUREMENT: other processes took up to {document['busy']:.0%} of the processors. "
            "Run it again on a machine that does nothing else."
        )
    for work in document["failed"]:
        yield f"{work['workload']}: NO RATIO. {work['failed'].partition(chr(10))[0]}"
    for work in document["workloads"]:
        for own in work["lab"]:
            if not own["within_bound"]:
                yield f"{work['workload']}, {own['seeds']} seeds: memory beyond its bound."


def far_from_limit(document: dict[str, Any]) -> Iterator[str]:
    """The workloads that are not within a factor 3 of the limit: what it consists of, and where time goes."""
    for work in document["workloads"]:
        own = max(work["lab"], key=lambda one: one["limit"]["share"] if one["limit"] else 0.0)
        if not own["limit"] or own["limit"]["share"] < 1 / 3:
            limit = f" Limit: {shares(own['limit'])}." if own["limit"] else ""
            why = f" {work['stands_in_the_way']}" if work["stands_in_the_way"] else ""
            seeds = f", {own['seeds']} seeds" if own["seeds"] > 1 else ""
            measured = f" Measured: {shares(own['spent'])}." if own["spent"] else ""
            yield f"{work['workload']}{seeds}:{limit}{measured}{why}"


def shares(spent: dict[str, Any]) -> str:
    """Microseconds by what they are spent on.

    >>> shares({"microseconds": 8.0, "operations": 12.0, "parts": {"products": 2.0, "between": 6.0}})
    '8 us in 12 operations: products 2 us, between 6 us'
    """
    operations = f" in {number(spent['operations'])} operations" if "operations" in spent else ""
    parts = ", ".join(f"{name} {number(value)} us" for name, value in spent["parts"].items())
    return f"{number(spent['microseconds'])} us{operations}: {parts}"


def commands(document: dict[str, Any]) -> Iterator[str]:
    """What was timed alone."""
    for own in document["alone"].values():
        for command, took in own.items():
            goal = f", goal {took['goal']:g} s {'met' if took['met'] else 'MISSED'}" if "goal" in took else ""
            yield f"{command}: {took['seconds']:.2f} s ({took['low']:.2f} to {took['high']:.2f}){goal}"


def rates(peaks: dict[str, float]) -> Iterator[str]:
    """What one core can do, a row of a table each."""
    for name, (what, unit, word) in RATES.items():
        if name in peaks:
            yield f"| {what} | {peaks[name] / unit:.3g} {word} |"


def show(document: dict[str, Any]) -> None:
    """The document as a table on standard output."""
    from rich.console import Console
    from rich.table import Table

    console, table = Console(), Table(*HEAD, box=None, header_style="bold")
    for row in rows(document):
        table.add_row(*row)
    if document["workloads"]:
        console.print(table)
    for line in (*commands(document), *far_from_limit(document), *remarks(document)):
        console.print(line, highlight=False)


def markdown(document: dict[str, Any]) -> str:
    """The document as docs/performance.md."""
    machine = document["machine"]
    lines = [
        "# Performance",
        "",
        "<!-- Written by `descentlab bench --write docs/performance.md`; do not edit. -->",
        "",
        f"The laboratory against PyTorch on one core of a machine with {machine['cores']} cores "
        f"({machine['instructions']}); {document['repeats']} interleaved rounds. `make performance` "
        "measures anew; `benchmarks/README.md` says how.",
        "",
        *(f"**{line}**\n" for line in remarks(document)),
        "| " + " | ".join(HEAD) + " |",
        "| " + " | ".join("---" for _ in HEAD) + " |",
        *("| " + " | ".join(row) + " |" for row in rows(document)),
        "",
        "Microseconds are of one step of one seed, records included. A ratio is PyTorch's time over the "
        "lab's, the median round and the range of all. The limit is the least time that the step's "
        "operations, functions, random numbers and bytes take at the rates below, over the time without "
        "records.",
        "",
        "| one core at most | |",
        "| --- | --- |",
        *rates(document["peaks"]),
        "",
        "## What stands between a workload and the limit",
        "",
        "Workloads that take more than three times the least, or of which no least is known. The limit is "
        "what the algorithm's own operations take at the rates above; measured is where the time of a step "
        "goes by the profiler: in products, in making random numbers, in passes over arrays, and between "
        "operations. Of the sweep, it is what its runs say that training took, and the rest.",
        "",
        *(f"- {line}" for line in far_from_limit(document)),
        "",
        "## The command line",
        "",
        *(f"- `{line.partition(':')[0]}`:{line.partition(':')[2]}" for line in commands(document)),
        "",
    ]
    return "\n".join(lines)
