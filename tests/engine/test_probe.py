"""Probes: records along a run and at its end, and where records lie."""

import jax.numpy as jnp
import numpy as np
import optax
from hypothesis import given
from hypothesis import strategies as st

from descentlab.engine import (
    Checkpoint,
    Probe,
    Settings,
    System,
    descent,
    log_spaced,
    parameter,
    population,
    preset,
)
from descentlab.engine._rollout import rollout


@preset
class Slope(Settings):
    """Descent down a plane: w_t = -eta t."""

    eta: float = parameter("step size", default=0.5, above=0)
    steps: int = parameter("steps", default=8, low=1)
    precision: int = parameter("bits", default=64, choices=(32, 64))


PLANE = System(
    lambda key, p: jnp.ones(2),
    lambda task, p: descent(lambda key: 0 * task, population(jnp.sum), optax.sgd(p.eta)),
    lambda p: {
        "loss": Probe(lambda task, p, state: jnp.sum(state.params), "height"),
        "last": Probe(lambda task, p, state: state.params, "where it ends", ("coordinate",), once=True),
        "many": Probe(lambda task, p, state: state.params > -1, "above -1", ("coordinate",), int, once=True),
    },
    "loss",
)
STEPS = np.array([0, 1, 3, 8])


def test_probes_are_recorded_along_the_run_or_once_at_its_end():
    kept: list[Checkpoint] = []
    run = rollout(PLANE, Slope(), range(2), STEPS, keep=kept.append, keep_every=-1.0)
    assert run["loss"].dims == ("seed", "step")
    np.testing.assert_array_equal(run["loss"], [-1.0 * STEPS] * 2)
    assert run["last"].dims == ("seed", "coordinate")
    np.testing.assert_array_equal(run["last"], np.full((2, 2), -4.0))
    assert run["last"].attrs["description"] == "where it ends"
    assert run["many"].dtype == int
    # A cut run measures its end too, not where it was cut.
    assert "last" not in kept[0].records
    resumed = rollout(PLANE, Slope(), range(2), STEPS, resume=kept[0])
    np.testing.assert_array_equal(resumed["last"], run["last"])


@given(st.integers(1, 10**9), st.integers(0, 50), st.integers(1, 60))
def test_records_begin_with_every_step_and_end_with_the_last(steps: int, dense: int, per_decade: int):
    grid = log_spaced(steps, dense, per_decade)
    assert grid[0] == 0
    assert grid[-1] == steps
    assert np.all(np.diff(grid) > 0)
    assert set(range(min(dense, steps) + 1)) <= set(grid.tolist())
    assert grid.size <= dense + 3 + per_decade * max(1, np.log10(steps / max(dense, 1)))
