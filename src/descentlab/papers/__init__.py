"""The contract of a paper, the registry, and the papers themselves, a subpackage or a module each.

A paper is found by its name, here or in a folder of your own (`places.own_papers`). A module there is
`descentlab.papers.<name>` like any other: workers, which see the same environment, import it by that name,
and its source names its runs. What papers are made of is imported when it is first used, so that the command
line lists papers without loading JAX.
"""

from typing import TYPE_CHECKING, Any

from descentlab import places
from descentlab._lazy import lazily

# fmt: off
if TYPE_CHECKING:
    from descentlab.papers._catalogue import catalogue as catalogue, text as text
    from descentlab.papers._contract import (
        Deviation as Deviation, Experiment as Experiment, Figure as Figure, Paper as Paper, Study as Study,
        Table as Table, figure as figure, table as table,
    )
    from descentlab.papers._crossings import (
        FEWEST_SEEDS as FEWEST_SEEDS, KERNEL_WORDS as KERNEL_WORDS, OPTIMIZER_WORDS as OPTIMIZER_WORDS,
        Crossing as Crossing, Goal as Goal, Variant as Variant, share_of_start as share_of_start,
        spaced as spaced,
    )
    from descentlab.papers._registry import load as load, names as names
# fmt: on

# Last, so that a paper of this package keeps its name.
__path__ += places.own_papers()

_HOMES = {
    "_catalogue": "catalogue text",
    "_contract": "Deviation Experiment Figure Paper Study Table figure table",
    "_crossings": "FEWEST_SEEDS KERNEL_WORDS OPTIMIZER_WORDS Crossing Goal Variant share_of_start spaced",
    "_registry": "load names",
}


def __getattr__(name: str) -> Any:
    return lazily(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return " ".join(_HOMES.values()).split()
