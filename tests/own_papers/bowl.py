"""A paper of one's own: noisy descent on |w - c|^2 / 2, of which every number is known."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, Key

from descentlab.engine import Dynamics, Objective, Probe, Settings, descent, float_dtype, parameter, preset
from descentlab.judging import Grid
from descentlab.papers import Crossing, Experiment, Goal, Paper, Study, Variant, share_of_start

UNLUCKY: set[float] = set()  # step sizes whose runs raise in the end


@preset
class Preset(Settings):
    """Descent from zero towards a random c."""

    d: int = parameter("dimension", default=3, low=1, high=1000)
    scale: float = parameter("standard deviation of c's entries", default=1.0, above=0)
    eta: float = parameter("step size", default=0.1, above=0)
    noise: float = parameter("gradient noise", default=0.0, low=0)
    start: str = parameter("where w starts", default="zero", choices=("zero", "far"))
    reduced: bool = parameter("keep |c|^2 alone, so that sizes share a program", default=False)
    steps: int = parameter("training steps", default=20, low=1, high=10**9)
    precision: int = parameter("bits of a floating-point number", default=64, choices=(32, 64))

    def conflicts(self):
        """A step that is too long for its noise, for the sake of having a conflict."""
        if self.noise > 10 * self.eta:
            yield f"noise takes a number <= 10 eta = {10 * self.eta:g}, got noise={self.noise:g}."


PRESETS = {"tiny": Preset(), "quick": Preset(steps=50), "paper": Preset(steps=100)}


def make_task(key: Key[Array, ""], p: Preset) -> Array:
    """c, or the square of its length."""
    c = p.scale * jax.random.normal(key, (p.d,), float_dtype(p.precision))
    return jnp.sum(c**2) if p.reduced else c


def carried(p: Preset) -> dict[str, None]:
    """Without c all sizes are alike."""
    return {"d": None} if p.reduced else {}


def distance(c: Array, w: Array, p: Preset) -> Array:
    """|w - c|^2 / 2, where w is in units of c if c is not kept."""
    return c * (w - 1) ** 2 / 2 if p.reduced else jnp.sum((w - c) ** 2) / 2


def dynamics(c: Array, p: Preset) -> Dynamics:
    """Gradient descent with Gaussian noise on the gradient."""

    def gradient(w: Array, key: Key[Array, ""]) -> Array:
        target = jnp.ones_like(w) if p.reduced else c
        return w - target + p.noise * jax.random.normal(key, w.shape, w.dtype)

    def begin(key: Key[Array, ""]) -> Array:
        return jnp.full_like(c, 100.0 if p.start == "far" else 0.0)

    return descent(begin, Objective(lambda w, key: distance(c, w, p), gradient), optax.sgd(p.eta))


def probes(p: Preset) -> dict[str, Probe]:
    """The loss, and w - c where there is a c."""
    if isinstance(p.eta, float) and p.eta in UNLUCKY:
        raise ArithmeticError(f"eta={p.eta:g} is unlucky")
    found = {"loss": Probe(lambda c, p, state: distance(c, state.params, p), "the loss")}
    if not p.reduced:
        found["error"] = Probe(lambda c, p, state: state.params - c, "w - c", ("coordinate",))
        found["target"] = Probe(lambda c, p, state: c, "c", ("coordinate",), once=True)
    return found


def records(p: Preset) -> np.ndarray:
    """The start, the first step, the middle and the end."""
    return np.unique([0, 1, p.steps // 2, p.steps])


def progress(run: xr.Dataset) -> np.ndarray:
    """By how much the loss falls."""
    return (run["loss"].isel(step=0) / run["loss"].isel(step=-1)).values


BOWLS = Study(
    "bowls",
    "losses over scale, and over step size and scale",
    Preset(noise=0.1),
    {
        "line": [Grid("scale", [{"scale": lambda scale, k=k: scale * k} for k in (1.0, 2.0, 4.0)])],
        "map": [
            Grid("eta", [{"eta": eta} for eta in (0.1, 0.2, 0.4)]),
            Grid("scale", [{"scale": scale} for scale in (1.0, 2.0, 3.0)]),
        ],
    },
    (),
    (),
)

# Two rows of an atlas of which every number is known: one step of size one is enough.
CROSSINGS = (
    Crossing(
        "descent into a bowl",
        Preset(),
        rate=("eta",),
        optimizers={"gd": Variant({}, (0.01, 0.1, 1.0))},
        kernels={"softmax": {}, "linear": {"start": "far"}},
        learns=Goal("the loss falls below a tenth of its start", share_of_start("loss"), below=0.1),
        recovers=Goal("w is c", lambda run: abs(run["error"]).max("coordinate"), below=1e-9),
        own=("gd", "softmax"),
        unfit={
            "gaussian": "a bowl has no keys",
            "sign": "no sign",
            "adam": "no Adam",
            "proximal": "not sparse",
        },
    ),
)

PAPER = Paper(
    "A bowl",
    "Nobody, nowhere.",
    Experiment(
        PRESETS,
        make_task,
        dynamics,
        probes,
        records=records,
        carried=carried,
        readings={"progress": progress},
    ),
)
