"""The laboratory's own runs of `sparse_bigrams`, timed, and what the reference needs to repeat them.

`export` writes the ground truth and the first batches; `run` rolls seeds out, saves their records to an .npz
and prints timings to standard output as JSON.
"""

from pathlib import Path

from timing import command, first_keys  # isort: skip, it sets the cores before JAX counts them

import jax
import numpy as np

from descentlab.papers import sparse_bigrams as paper


def export(p: paper.Preset, batches: int, out: Path) -> None:
    """Writes seed 0 as `rollout` makes it."""
    task_key, _, step_key = first_keys()
    task = paper.make_task(task_key, p)
    Q = np.zeros((p.T, p.N))
    Q[np.asarray(task.positions).T, np.arange(p.N)[None, :]] = np.asarray(task.weights).T
    drawn = [
        paper.sample(jax.random.fold_in(step_key, t), task, p.batch, p.T, uniform=True)
        for t in range(batches)
    ]
    given = {name: np.stack([np.asarray(getattr(batch, name)) for batch in drawn]) for name in "xko" if drawn}
    arrays = {"mu": task.mu, "P": task.P, "Q": Q, "eta": p.eta_1, "batch": p.batch} | given
    np.savez(out, **{name: np.asarray(x) for name, x in arrays.items()})  # type: ignore[arg-type]


if __name__ == "__main__":
    command("sparse_bigrams", __doc__, export)
