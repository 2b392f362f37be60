"""Systems: a task, its dynamics and its probes, compiled for many rows at once.

A row is one seed of one preset. Presets that differ in their leaves alone are rows of one program, like
seeds. Rows are spread over the devices; on a device they run one after another, or several at once where
what they work on fits the cache together. Data, such as images, are there once for all rows: `task` is then
`Loaded`, the row's own task beside the data.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr  # pyright: ignore[reportPrivateImportUsage]
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from descentlab.engine._dynamics import Dynamics, State
from descentlab.engine._platform import largest_divisor
from descentlab.engine._probes import Probe
from descentlab.engine._settings import Settings

CACHE_BYTES = 2**18  # rows that work on so much together run as one batch


class Loaded(NamedTuple):
    """A row's own task, and data that all rows share."""

    own: Any
    data: Any


@dataclass(frozen=True)
class System:
    """What is rolled out: a random task, its dynamics, and what is watched (`loss` names a probe)."""

    make_task: Callable[..., Any]  # (key, preset), or (key, preset, data)
    dynamics: Callable[[Any, Any], Dynamics]
    probes: Callable[[Any], Mapping[str, Probe]]
    loss: str
    # The fields that a task carries as arrays: one program serves all their values (Settings.carrying).
    carried: Callable[[Any], Mapping[str, Hashable]] = lambda preset: {}
    # What all rows share, a tree of arrays that depends on what is compiled alone.
    data: Callable[[Any], Any] | None = None
    # Raises where files that the data come from are not there.
    require: Callable[[Any], Any] = lambda preset: None

    def program(self, preset: Any) -> Any:
        """The preset as the compiled program knows it."""
        carried = self.carried(preset)
        return preset.carrying(carried) if carried else preset

    def load(self, preset: Any, rows: int) -> Any:
        """The data of a preset, on every device that so many rows are spread over."""
        if self.data is None:
            return ()
        return jax.device_put(self.data(preset), NamedSharding(_mesh(rows), PartitionSpec()))

    def _task(self, key, preset, data) -> Any:
        """The task; settings inside it are as the program knows them."""
        task = self.make_task(key, preset) if self.data is None else self.make_task(key, preset, data)
        return jax.tree.map(
            lambda x: self.program(x) if isinstance(x, Settings) else x,
            task,
            is_leaf=lambda x: isinstance(x, Settings),
        )

    def _seen(self, task, data) -> Any:
        return task if self.data is None else Loaded(task, data)

    def _row(self, key, preset, data) -> tuple[Any, State]:
        task_key, start_key, _ = jax.random.split(key, 3)
        task = self._task(task_key, preset, data)
        return task, self.dynamics(self._seen(task, data), preset).init(start_key)

    def _advance(self, key, task, state, preset, data, first, last) -> State:
        step_key = jax.random.split(key, 3)[2]
        return self.dynamics(self._seen(task, data), preset).advance(step_key, state, first, last)

    def _measure(self, once: bool, task, state, preset, data) -> dict[str, jax.Array]:
        def recorded(probe: Probe) -> jax.Array:
            value = jnp.asarray(probe.measure(self._seen(task, data), preset, state))
            return value.astype(probe.dtype) if probe.dtype else value

        return {name: recorded(probe) for name, probe in self.probes(preset).items() if probe.once == once}

    def divisible(self, preset: Any) -> bool:
        """Whether a run may be cut between records: flows, which have no data, go from record to record."""
        if preset not in self._known:
            self._known[preset] = self._goes_by_steps(preset)
        return self._known[preset]

    @cached_property
    def _known(self) -> dict[Any, bool]:
        """Presets that were asked about: it takes tracing their dynamics to know."""
        return {}

    def _goes_by_steps(self, preset: Any, *task: Any) -> bool:
        """Whether dynamics have steps, not jumps; a task of the preset is made unless there is one."""
        if self.data is not None:
            return True
        found = []

        def look(key, *task):
            own = task[0] if task else self.make_task(key, preset)
            found.append(self.dynamics(own, preset).jump is None)

        jax.eval_shape(look, jax.random.key(0), *task)
        return found[0]

    def bytes_of_a_row(self, preset: Any, records: int) -> int:
        """What a row with so many records holds in memory."""

        def row(key, data):
            task, state = self._row(key, preset, data)
            return (task, state), self._measure(False, task, state, self.program(preset), data)

        held, record = jax.eval_shape(row, jax.random.key(0), self.data(preset) if self.data else ())
        return _bytes(held) + records * _bytes(record)

    @cached_property
    def start(self) -> Callable:
        """(keys, presets, data) -> (tasks, states), compiled."""
        return self._over_rows(self._row, mapped=2)

    @cached_property
    def advance(self) -> Callable:
        """(keys, tasks, states, presets, data, first, last) -> states, compiled."""
        return self._over_rows(self._advance, mapped=4)

    @cached_property
    def observe(self) -> Callable:
        """(tasks, states, presets, data) -> records, compiled."""
        return self._over_rows(partial(self._measure, False), mapped=3)

    @cached_property
    def conclude(self) -> Callable:
        """(tasks, states, presets, data) -> what is measured once, at the end, compiled."""
        return self._over_rows(partial(self._measure, True), mapped=3)

    def _over_rows(self, function: Callable, mapped: int) -> Callable:
        """`function` for all rows at once: its first `mapped` arguments, the last of them presets, have rows.

        One row after another unless the batch fits the cache: beyond it, batching turns small cached
        products into memory traffic and costs up to three times.
        """

        @jax.jit
        def compiled(*args):
            def here(*args):
                each, same = args[:mapped], args[mapped:]
                local = jax.tree.leaves(each)[0].shape[0]
                first = jax.tree.map(lambda x: x[0], each)
                bytes_each = _working_set(lambda *first: function(*first, *same), first)
                fitting = max(1, min(local, CACHE_BYTES // max(1, bytes_each)))
                # A rest would be a second copy of the program, and as long to compile.
                even = largest_divisor(local, fitting)
                batch = even if 2 * even >= fitting else fitting
                return jax.lax.map(
                    lambda e: function(*e, *same), each, batch_size=batch if batch > 1 else None
                )

            *own, preset = jax.tree.map(lambda x: x[0], args[:mapped])
            task = own[-2:-1]  # before the state, where there is one
            if not self._goes_by_steps(preset, *task):
                return here(*args)  # the solvers of flows do not work inside shard_map
            rows = jax.tree.leaves(args[:mapped])[0].shape[0]
            split, whole = PartitionSpec("rows"), PartitionSpec()
            specs = (split,) * mapped + (whole,) * (len(args) - mapped)
            spread = jax.shard_map(here, mesh=_mesh(rows), in_specs=specs, out_specs=split, check_vma=False)
            return spread(*args)

        return compiled


def _bytes(tree: Any) -> int:
    """What the leaves take together."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _working_set(function: Callable, arguments: Any) -> int:
    """What goes in, what comes out, or the largest array in between: whichever takes the most bytes.

    A start makes a state of a key, and a step may draw a batch that is much larger than what it trains.
    """
    program, made = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return max(_bytes(arguments), _bytes(made), _largest(program.jaxpr))


def _largest(program: Jaxpr) -> int:
    """The bytes of the largest array that a program makes, loops and calls included."""
    arrays: list[Any] = [x.aval for equation in program.eqns for x in equation.outvars]
    inner = [part for equation in program.eqns for part in jax.tree.leaves(list(equation.params.values()))]
    programs = [part.jaxpr if isinstance(part, ClosedJaxpr) else part for part in inner]
    own = [x.size * x.dtype.itemsize for x in arrays if hasattr(x, "dtype")]
    return max([0, *own, *(_largest(part) for part in programs if isinstance(part, Jaxpr))])


def _mesh(rows: int) -> Mesh:
    """The devices that rows are spread over."""
    return Mesh(np.array(jax.devices()[: min(len(jax.devices()), rows)]), "rows")


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
