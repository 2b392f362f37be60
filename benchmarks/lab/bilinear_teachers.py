"""The laboratory's own runs of `bilinear_teachers`, timed, and what the reference needs to repeat them.

`export` writes the teacher, the weights after the first step, and the next batches of online descent; `run`
rolls seeds out, saves their records to an .npz and prints timings to standard output as JSON.
"""

from pathlib import Path

from timing import command, first_keys  # isort: skip, it sets the cores before JAX counts them

import jax
import jax.numpy as jnp
import numpy as np

from descentlab.papers import bilinear_teachers as paper


def export(p: paper.Preset, batches: int, out: Path) -> None:
    """Writes seed 0 as `rollout` makes it."""
    task_key, start_key, step_key = first_keys()
    task = paper.make_task(task_key, p)
    assert isinstance(task, paper.Task)
    dynamics = paper.dynamics(task, p)
    after = dynamics.advance(step_key, dynamics.init(start_key), jnp.asarray(0), jnp.asarray(1))
    arrays = {"V": task.V, "S": task.S, "W_V": after.params.W_V, "A": after.params.A}
    drawn = [paper.sample(jax.random.fold_in(step_key, t), task, p.batch) for t in range(1, batches + 1)]
    if drawn:
        # A sample of the reference is a (d, D) matrix.
        arrays |= {
            name: jnp.stack([jnp.moveaxis(batch[i], 1, 0) for batch in drawn]) for i, name in enumerate("XY")
        }
    numbers = {"eta": p.eta, "noise": p.noise, "batch": p.batch}
    np.savez(out, **{name: np.asarray(x) for name, x in (arrays | numbers).items()})  # type: ignore[arg-type]


if __name__ == "__main__":
    command("bilinear_teachers", __doc__, export)
