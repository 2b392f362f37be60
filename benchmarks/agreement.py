"""Whether two sides compute the same trajectory."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np


class DisagreementError(Exception):
    """The two sides do not compute the same trajectory."""


def difference(lab: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """[step]: the largest difference of a probe, relative to its largest entry at that step.

    >>> difference(np.array([1.0, 2.0]), np.array([1.0, 2.5]))
    array([0.  , 0.25])
    """
    a, b = (np.asarray(x, np.float64).reshape(len(x), -1) for x in (lab, reference))
    scale = np.maximum(np.abs(a).max(1), np.finfo(np.float64).tiny)
    sound = np.isfinite(a).all(1) & np.isfinite(b).all(1)
    return np.where(sound, np.abs(np.where(sound[:, None], a - b, 0.0)).max(1) / scale, np.inf)


def compare(lab: Path, reference: Path, allowed: Mapping[str, float], first: int = 0) -> dict[str, float]:
    """The largest difference of every probe in `allowed` from a step on; beyond that, a DisagreementError.

    The files hold arrays with a row a step, and those steps as `record`.
    """
    found = {}
    with np.load(lab) as ours, np.load(reference) as theirs:
        if not np.array_equal(ours["record"], theirs["record"]):
            raise DisagreementError("the two sides recorded different steps. No ratio.")
        for name, limit in allowed.items():
            if ours[name].shape != theirs[name].shape:
                raise DisagreementError(
                    f"{name} has shape {ours[name].shape} in the lab and {theirs[name].shape} in PyTorch. "
                    "No ratio."
                )
            gap = np.where(ours["record"] >= first, difference(ours[name], theirs[name]), 0.0)
            found[name] = float(gap.max())
            if not found[name] <= limit:
                at = int(np.flatnonzero(~(gap <= limit))[0])
                raise DisagreementError(
                    f"{name} at step {ours['record'][at]} differs by {gap[at]:.1e} of its size; {limit:.0e} "
                    "is allowed. No ratio: the two sides do not compute the same thing."
                )
    return found
