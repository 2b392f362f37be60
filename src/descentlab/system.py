"""Systems: a task, its dynamics and its probes, compiled for many rows at once.

A row is one seed of one preset. Presets that differ in their leaves alone are rows of one program, like
seeds. Rows are spread over the devices; on a device they run one after another, or several at once where
their states fit the cache together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from descentlab.dynamics import Dynamics, State
from descentlab.probe import Probe

CACHE_BYTES = 2**18  # rows whose states share this much run as one batch


@dataclass(frozen=True)
class System:
    """What is rolled out: a random task, its dynamics, and what is watched (`loss` names a probe)."""

    make_task: Callable[[Any, Any], Any]
    dynamics: Callable[[Any, Any], Dynamics]
    probes: Callable[[Any], Mapping[str, Probe]]
    loss: str
    # The preset whose compiled program serves another one too: sizes that only the task carries.
    program: Callable[[Any], Any] = lambda preset: preset

    def _row(self, key, preset) -> tuple[Any, State]:
        task_key, start_key, _ = jax.random.split(key, 3)
        task = self.make_task(task_key, preset)
        return task, self.dynamics(task, preset).init(start_key)

    def _advance(self, key, task, state, preset, first, last) -> State:
        step_key = jax.random.split(key, 3)[2]
        return self.dynamics(task, preset).advance(step_key, state, first, last)

    def _measure(self, once: bool, task, state, preset) -> dict[str, jax.Array]:
        def recorded(probe: Probe) -> jax.Array:
            value = jnp.asarray(probe.measure(task, preset, state))
            return value.astype(probe.dtype) if probe.dtype else value

        return {name: recorded(probe) for name, probe in self.probes(preset).items() if probe.once == once}

    def divisible(self, preset: Any) -> bool:
        """Whether a run may be cut between records: flows go from record to record."""
        found = []

        def look(key):
            found.append(self.dynamics(self.make_task(key, preset), preset).jump is None)

        jax.eval_shape(look, jax.random.key(0))
        return found[0]

    def bytes_of_a_row(self, preset: Any, records: int) -> int:
        """What a row with so many records holds in memory."""

        def row(key):
            task, state = self._row(key, preset)
            return (task, state), self._measure(False, task, state, self.program(preset))

        held, record = jax.eval_shape(row, jax.random.key(0))
        own, each = (sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(part)) for part in (held, record))
        return own + records * each

    @cached_property
    def start(self) -> Callable:
        """(keys, presets) -> (tasks, states), compiled."""
        return self._over_rows(self._row, mapped=2)

    @cached_property
    def advance(self) -> Callable:
        """(keys, tasks, states, presets, first, last) -> states, compiled."""
        return self._over_rows(self._advance, mapped=4)

    @cached_property
    def observe(self) -> Callable:
        """(tasks, states, presets) -> records, compiled."""
        return self._over_rows(partial(self._measure, False), mapped=3)

    @cached_property
    def conclude(self) -> Callable:
        """(tasks, states, presets) -> what is measured once, at the end, compiled."""
        return self._over_rows(partial(self._measure, True), mapped=3)

    def _over_rows(self, function: Callable, mapped: int) -> Callable:
        """`function` for all rows at once: its first `mapped` arguments, the last of them presets, have rows.

        One row after another unless the batch fits the cache: beyond it, batching turns small cached
        products into memory traffic and costs up to three times.
        """

        @jax.jit
        def compiled(*args):
            each, same = args[:mapped], args[mapped:]

            def here(*each):
                bytes_each = sum(x.nbytes // x.shape[0] for x in jax.tree.leaves(each))
                local = jax.tree.leaves(each)[0].shape[0]
                fitting = max(1, min(local, CACHE_BYTES // max(1, bytes_each)))
                # A rest would be a second copy of the program, and as long to compile.
                even = max(n for n in range(1, fitting + 1) if local % n == 0)
                batch = even if 2 * even >= fitting else fitting
                return jax.lax.map(
                    lambda e: function(*e, *same), each, batch_size=batch if batch > 1 else None
                )

            if not self.divisible(jax.tree.map(lambda x: x[0], each[-1])):
                return here(*each)  # the solvers of flows do not work inside shard_map
            rows = jax.tree.leaves(each)[0].shape[0]
            mesh = Mesh(np.array(jax.devices()[: min(len(jax.devices()), rows)]), "rows")
            split = PartitionSpec("rows")
            return jax.shard_map(here, mesh=mesh, in_specs=split, out_specs=split, check_vma=False)(*each)

        return compiled


@jax.jit
def sound(states: State) -> jax.Array:
    """Whether each row's state is finite."""
    leaves = [x for x in jax.tree.leaves(states) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x), axis=range(1, x.ndim)) for x in leaves]), axis=0)


def filled(tree: Any, room: int = 0) -> Any:
    """The leaves with their last row repeated until there are `room`, and the devices share them evenly."""
    rows = jax.tree.leaves(tree)[0].shape[0]
    room = max(rows, room)
    room += -room % min(len(jax.devices()), room)
    return tree if room == rows else jax.tree.map(lambda x: x[np.minimum(np.arange(room), rows - 1)], tree)
