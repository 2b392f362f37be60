"""Ready claims on anyone's data: right ones are supported, wrong ones refuted."""

import numpy as np
import pytest
import xarray as xr

from descentlab.judging import Outcome, judge
from descentlab.judging._recipes import exceeds, exponential_decay, hits_before, power_law

STEPS = np.unique(np.geomspace(1, 10_000, 120).round())


def logs(**laws: np.ndarray) -> xr.Dataset:
    """Eight seeds of each law, with 3 % noise."""
    rng = np.random.default_rng(0)
    noise = {name: np.exp(0.03 * rng.standard_normal((8, STEPS.size))) for name in laws}
    return xr.Dataset(
        {name: (("seed", "step"), law * noise[name]) for name, law in laws.items()}, coords={"step": STEPS}
    )


DATA = logs(slow=1 / STEPS, fast=np.exp(-STEPS / 1000), square=STEPS**-2.0)


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (power_law("slow"), Outcome.SUPPORTED),
        (power_law("slow", exponent=-2), Outcome.REFUTED),
        (power_law("square", exponent=-2, margin=0.1, window=(10, 5000)), Outcome.SUPPORTED),
        (power_law("fast"), Outcome.REFUTED),
        (exponential_decay("fast"), Outcome.SUPPORTED),
        (exponential_decay("slow"), Outcome.REFUTED),
        (hits_before("square", "slow", below=0.01), Outcome.SUPPORTED),
        (hits_before("slow", "square", below=0.01), Outcome.REFUTED),
        (hits_before("slow", "square", below=1e-7), Outcome.REFUTED),
        (hits_before("slow", "square", below=1e-9), Outcome.BROKEN),
        (exceeds("slow", "square"), Outcome.SUPPORTED),
        (exceeds("square", "slow", window=(10, 100)), Outcome.REFUTED),
        (power_law("missing"), Outcome.BROKEN),
    ],
)
def test_outcomes(claim, expected: Outcome):
    assert judge(claim, DATA).outcome == expected


def test_names_of_logs_become_identifiers():
    assert power_law("train/loss").name == "train_loss_is_a_power_law"
    assert exceeds("2nd", "1st").name == "_2nd_exceeds_1st"


def test_a_threshold_is_needed():
    with pytest.raises(ValueError, match="one of below and above"):
        hits_before("slow", "fast")
