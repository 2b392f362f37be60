"""Ready-made claims: one line each, for any data with dimensions seed and step.

>>> import numpy as np, xarray as xr
>>> from descentlab.judging._claims import judge
>>> steps = np.unique(np.geomspace(1, 10_000, 80).round())
>>> noise = 1 + 0.01 * np.sin(np.outer([1, 2, 3, 4], 100 * steps))
>>> logs = xr.Dataset({"loss": (("seed", "step"), 3 / steps * noise)}, coords={"step": steps})
>>> judge(power_law("loss", -1.0), logs).outcome.value
'SUPPORTED'
>>> judge(exponential_decay("loss"), logs).outcome.value
'REFUTED'
"""

from __future__ import annotations

import re
from typing import Any

import xarray as xr

from descentlab.judging import _exponents
from descentlab.judging._claims import Claim
from descentlab.judging._crossings import first_step, log_gap, log_ratio
from descentlab.judging._estimates import Estimate, difference, trajectories
from descentlab.judging._intervals import Number, around, at_least
from descentlab.judging._model_choice import stretch

CITE = "a ready-made claim"
MARGIN = "Chosen by the caller: how far off the exponent may be."
ORDER = "An order: the difference is not negative."


def power_law(
    variable: str, exponent: Number = -1.0, margin: Number = 0.1, window: Any = None, cite: str = CITE
) -> Claim:
    """The claim that the variable goes like step^exponent, up to a margin of the exponent."""

    def measure(run: xr.Dataset) -> Estimate:
        return _exponents.exponent(run[variable], window=window)

    statement = f"{variable} goes like step^{exponent:g}, up to {margin:g} in the exponent."
    name = _identifier(f"{variable}_is_a_power_law")
    return Claim(name, cite, statement, measure, around(exponent, margin), margin=MARGIN)


def exponential_decay(
    variable: str, margin: Number = 0.1, window: Any = None, log: bool = False, cite: str = CITE
) -> Claim:
    """The claim that the variable decays like exp(-c step^p) with p = 1, up to a margin of p."""

    def measure(run: xr.Dataset) -> Estimate:
        return stretch(run[variable], window=window, log=log)

    statement = f"{variable} decays exponentially, like exp(-c step^p) with p within {margin:g} of 1."
    name = _identifier(f"{variable}_decays_exponentially")
    return Claim(name, cite, statement, measure, around(1.0, margin), margin=MARGIN)


def hits_before(
    first: str, second: str, *, below: Number | None = None, above: Number | None = None, cite: str = CITE
) -> Claim:
    """The claim that the first variable falls below (rises above) the value before the second one does."""

    def measure(run: xr.Dataset) -> Estimate:
        steps = run["step"].values
        earlier = first_step(run[first], below=below, above=above)
        later = first_step(run[second], below=below, above=above)
        return log_ratio(later, earlier, float(steps[-1]), log_gap(earlier, steps) + log_gap(later, steps))

    if (below is None) == (above is None):
        raise ValueError(f"Give one of below and above, got below={below}, above={above}.")
    event = f"falls to {below:g}" if below is not None else f"rises to {above:g}"
    name = _identifier(f"{first}_hits_before_{second}")
    return Claim(name, cite, f"{first} {event} before {second} does.", measure, at_least(0), margin=ORDER)


def exceeds(larger: str, smaller: str, window: Any = None, cite: str = CITE) -> Claim:
    """The claim that one variable exceeds another, at the last record or on average over a window."""

    def measure(run: xr.Dataset) -> Estimate:
        steps = run["step"].values
        low, high = window if window is not None else steps[[-1, -1]]
        inside = (steps >= low) & (steps <= high)
        one, other = (trajectories(run[v]).isel(step=inside).mean("step") for v in (larger, smaller))
        return difference(one, other, range={"step": (low, high)})

    name = _identifier(f"{larger}_exceeds_{smaller}")
    return Claim(name, cite, f"{larger} exceeds {smaller}.", measure, at_least(0), margin=ORDER)


def _identifier(words: str) -> str:
    """The words as a Python identifier; logs have names such as train/loss."""
    return re.sub(r"\W|^(?=\d)", "_", words)
