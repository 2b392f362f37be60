"""Probes: what is recorded along a run, and at which steps."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Probe:
    """A quantity `measure(task, preset, state) -> array` with named dimensions and a meaning in words.

    It is recorded along the run, or `once`, at its end: constants of the task, final matrices.
    """

    measure: Callable[[Any, Any, Any], Any]
    doc: str
    dims: tuple[str, ...] = ()
    dtype: type | None = None
    once: bool = False


def probe(measure: Callable[[Any, Any], Any], doc: str = "", *dims: str, **options: Any) -> Probe:
    """The probe of a function of the parameters and the task; its meaning is the docstring unless given.

    >>> @probe
    ... def loss(w, task):
    ...     'The training loss.'
    ...     return w**2
    >>> loss.doc
    'The training loss.'
    """
    meaning = doc or inspect.cleandoc(measure.__doc__ or "")
    return Probe(lambda task, preset, state: measure(state.params, task), meaning, dims, **options)


def log_spaced(steps: int, dense: int = 40, per_decade: int = 40) -> np.ndarray:
    """Every step up to `dense`, then about `per_decade` steps a decade, and the last one.

    >>> log_spaced(100, dense=3, per_decade=4)
    array([  0,   1,   2,   3,   5,  10,  17,  31,  56, 100])
    """
    head = np.arange(min(dense, steps) + 1)
    if steps <= dense:
        return head
    decades = np.log10(steps / max(dense, 1))
    tail = np.geomspace(max(dense, 1), steps, max(2, round(decades * per_decade) + 1))
    return np.unique(np.concatenate([head, np.rint(tail).astype(int), [steps]]))
