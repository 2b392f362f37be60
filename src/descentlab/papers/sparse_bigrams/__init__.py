r"""Linear transformers learn and transfer sparse contextual bigrams.

Ren, Wang and Lee, "Learning and Transferring Sparse Contextual Bigrams with Linear Transformers".

Tokens x_1, ..., x_T and a trigger k = x_{T+1} are independent draws from mu. The trigger points at few
positions: t ~ q^(k), and the next token is o ~ P[:, x_t]. One layer of linear attention,

    V X A e_k,   V in R^{N x N}, A in R^{T x N},

is trained on the squared loss by preconditioned, projected gradient steps from V = mu1', A = 11'/T. Stage 1
ends when a signal, the coordinate of V or A along the way to the truth, reaches Theta(1/(QN)); in stage 2
proximal steps of an l1 norm keep A sparse; then A is thresholded and normalised, and V trained alone.

| here | paper | meaning |
| --- | --- | --- |
| `T`, `N`, `Q` | T, N, Q | positions, tokens, positions that a trigger looks at |
| `mu`, `P` | mu, P | law of tokens, transition matrix with P mu = mu, a column a token |
| `positions`, `weights` | Q | the columns q^(k), a row each |
| `V`, `A` | V, A' | value matrix, attention with a row for each trigger |
| `a_V`, `a_A` | alpha_V, alpha_A | signals: coordinates along P - mu1' and Q - 11'/T |
| `Delta_V`, `Delta_A` | Delta_V, Delta_A | what is orthogonal to the line of the signals |
| `lam` | lambda | weight of the l1 norm |
| `theta` | theta | share of the pre-trained P^ in V at the start |

Batches are token indices (`model`), expectations closed forms (`population`), population descent a process
of two numbers, and the noise of a batch has a factorised covariance (`noise`). Tests prove each of them.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from descentlab.engine import (
    Descent,
    Dynamics,
    Objective,
    Probe,
    Stage,
    Staged,
    descent,
    optimizer,
    shrunk,
    staged,
)
from descentlab.papers import About
from descentlab.papers.sparse_bigrams.atlas import ATLAS as ATLAS
from descentlab.papers.sparse_bigrams.claims import CLAIMS as CLAIMS
from descentlab.papers.sparse_bigrams.deviations import DEVIATIONS as DEVIATIONS
from descentlab.papers.sparse_bigrams.figures import FIGURES as FIGURES
from descentlab.papers.sparse_bigrams.model import Batch as Batch
from descentlab.papers.sparse_bigrams.model import Params as Params
from descentlab.papers.sparse_bigrams.model import attention as attention
from descentlab.papers.sparse_bigrams.model import batch_gradient as batch_gradient
from descentlab.papers.sparse_bigrams.model import batch_loss as batch_loss
from descentlab.papers.sparse_bigrams.model import predict as predict
from descentlab.papers.sparse_bigrams.model import sample as sample
from descentlab.papers.sparse_bigrams.noise import simulated as simulated
from descentlab.papers.sparse_bigrams.population import Line as Line
from descentlab.papers.sparse_bigrams.population import (
    distances,
    expected,
    from_line,
    least_loss,
    less_truth,
    line_gradient,
    norm_A,
    projected,
    rounded,
    signals,
    sizes,
)
from descentlab.papers.sparse_bigrams.population import population_loss as population_loss
from descentlab.papers.sparse_bigrams.setting import PRESETS as PRESETS
from descentlab.papers.sparse_bigrams.setting import Preset as Preset
from descentlab.papers.sparse_bigrams.setting import Task as Task
from descentlab.papers.sparse_bigrams.setting import inner, keeping_sums, on_line
from descentlab.papers.sparse_bigrams.setting import make_task as make_task
from descentlab.papers.sparse_bigrams.setting import program as program
from descentlab.papers.sparse_bigrams.setting import records as records
from descentlab.papers.sparse_bigrams.studies import STUDIES as STUDIES

# ---------------------------------------------------------------- objective


def objective(task: Task, p: Preset) -> Objective:
    """The loss, and the preconditioned, projected gradient as the algorithm sees it."""

    def loss(w: Any, key: Key[Array, ""]) -> Float[Array, ""]:
        full = weights(w, task, p)
        return population_loss(full.V, full.A, task)

    def gradient(w: Params, key: Key[Array, ""]) -> Params:
        A = attention(w.A, p)
        if p.algorithm == "population":
            g = expected(w.V, A, task)
        elif p.algorithm == "simulated":
            g = simulated(key, w, task, p.batch / p.noise)
        else:
            g = projected(batch_gradient(key, w.V, A, task, p), task.mu)
        if p.attention == "linear":
            return g
        inward = jnp.sum(A * g.A, axis=1, keepdims=True)
        return Params(g.V, p.logit_rate * A * (g.A - inward))

    if on_line(p):
        return Objective(loss, lambda w, key: line_gradient(w, task, p.T))
    return Objective(loss, gradient)


# ---------------------------------------------------------------- algorithm


def beginning(task: Task, p: Preset) -> Params | Line:
    """V = mu1', A = 11'/T; the end of stage 1 on the line; or V from a pre-trained model."""
    zero = jnp.zeros((), task.mu.dtype)
    at = zero + (p.level if p.start == "line" else 0.0)
    if on_line(p):
        return Line(at, at)
    w = from_line(Line(at, at), task, p.T)
    if p.start == "transfer":
        base = task.mu[:, None]
        w = w._replace(V=base + p.theta * (task.pretrained - base))
    return w._replace(A=jnp.log(w.A)) if p.attention == "softmax" else w


def weights(w: Params | Line, task: Task, p: Preset) -> Params:
    """V and the attention itself."""
    if isinstance(w, Line):
        return from_line(w, task, p.T)
    return Params(w.V, attention(w.A, p))


def plain_step(eta: Any) -> Callable[..., Any]:
    """w - eta gradient."""

    def update(w: Any, gradient: Any, t: Int[Array, ""]) -> Any:
        return jax.tree.map(lambda x, g: x - jnp.asarray(eta, x.dtype) * g, w, gradient)

    return update


def proximal_step(eta: Any, lam: Any) -> Callable[..., Params]:
    """A gradient step; then A is pulled to zero by eta lam, and its columns shifted to sum to one."""

    def update(w: Params, gradient: Params, t: Int[Array, ""]) -> Params:
        V, A = plain_step(eta)(w, gradient, t)
        A = shrunk(A, eta * lam)
        return Params(V, A + (1 - jnp.sum(A, axis=1, keepdims=True)) / A.shape[1])

    return update


def value_step(eta: Any, Q: int) -> Callable[..., Params]:
    """A step of V alone. The loss bends like |A|^2_mu >= 1/Q, and steps fall like 2Q over their number."""

    def update(w: Params, gradient: Params, t: Int[Array, ""]) -> Params:
        rate = eta / (1 + eta * t.astype(w.V.dtype) / (2 * Q))
        return w._replace(V=w.V - rate.astype(w.V.dtype) * gradient.V)

    return update


def projected_rule(task: Task, p: Preset) -> optax.GradientTransformation:
    """Another optimiser, its steps projected as gradients are.

    Of a projected gradient the signs sum to anything: few entries of A rise, many fall, and 1'A would drift.
    """

    def kept(step: Any, _: Any) -> Params:
        A = step.A - jnp.mean(step.A, axis=1, keepdims=True) if p.attention == "linear" else step.A
        return Params(keeping_sums(step.V, task.mu), A)

    return optax.chain(optimizer(p.optimizer, p.eta_1), optax.stateless(kept))


def dynamics(task: Task, p: Preset) -> Dynamics:
    """The algorithm: stage 1, stage 2, and after rounding a last stage on V; other optimisers have one."""
    if p.optimizer != "gd":
        return descent(lambda key: beginning(task, p), objective(task, p), projected_rule(task, p))

    def strong(state: Staged) -> Bool[Array, ""]:
        w = state.params
        a = w if isinstance(w, Line) else signals(*weights(w, task, p), task)
        # At the level up to rounding, where a run starts that is meant to start there.
        return jnp.maximum(a.a_V, a.a_A) >= p.level * (1 - 1e-5)

    def late(state: Staged) -> Bool[Array, ""]:
        end = (1 - p.last) * jnp.asarray(p.steps, task.mu.dtype)
        return state.steps.astype(end.dtype) >= end

    def star(w: Params) -> Params:
        return w._replace(A=rounded(w.A, p.threshold))

    sparse = p.algorithm in ("proximal", "simulated")
    second = proximal_step(p.eta_2, p.lam) if sparse else plain_step(p.eta_2)
    stages = [Stage(plain_step(p.eta_1), over=strong)]
    if p.refit and p.attention == "linear" and not on_line(p):
        stages += [Stage(second, over=late, then=star), Stage(value_step(p.eta_3, p.Q))]
    else:
        stages += [Stage(second)]
    return staged(lambda key: beginning(task, p), objective(task, p), stages)


# ---------------------------------------------------------------- probes

NO_LENGTH = 1e-9  # a direction shorter than this is rounding


def probes(p: Preset) -> dict[str, Probe]:
    """What is recorded."""

    def of(measure: Callable[..., Any], doc: str, *dims: str, **options: Any) -> Probe:
        def value(task: Task, p: Preset, state: Staged | Descent) -> Any:
            return measure(*weights(state.params, task, p), task)

        return Probe(value, doc, dims, **options)

    def truth(measure: Callable[[Task], Any], doc: str, *dims: str) -> Probe:
        return Probe(lambda task, p, state: measure(task), doc, dims, once=True)

    def off(X: Array, task: Task) -> Array:
        return jnp.sqrt(inner(X, X, task.mu))

    def star_error(V: Array, A: Array, task: Task) -> Array:
        return norm_A(less_truth(rounded(A, p.threshold), task), task)

    def cosine(A: Array, task: Task) -> Array:
        T = A.shape[1]
        size = norm_A(A - 1 / T, task) * jnp.sqrt(sizes(task, T)[1])
        along = signals(task.P, A, task).a_A * sizes(task, T)[1]
        return along / jnp.maximum(size, NO_LENGTH)

    def excess(V: Array, A: Array, task: Task) -> Array:
        return population_loss(V, A, task) - least_loss(task)

    def value_cosine(V: Array, A: Array, task: Task) -> Array:
        along = signals(V, A, task).a_V * jnp.sqrt(sizes(task, A.shape[1])[0])
        return along / jnp.maximum(off(V - task.mu[:, None], task), NO_LENGTH)

    return {
        "excess_loss": of(excess, "population loss above that of the truth"),
        "a_V": of(lambda V, A, task: signals(V, A, task).a_V, "signal of V"),
        "a_A": of(lambda V, A, task: signals(V, A, task).a_A, "signal of A"),
        "Delta_V": of(lambda V, A, task: distances(V, A, task)[0], "|Delta_V|_mu, off the line"),
        "Delta_A": of(lambda V, A, task: distances(V, A, task)[1], "|Delta_A|_mu, off the line"),
        "value_error": of(lambda V, A, task: off(V - task.P, task), "|V - P|_mu"),
        "attention_error": of(lambda V, A, task: norm_A(less_truth(A, task), task), "|A - Q|_mu"),
        "star_error": of(star_error, "|A* - Q|_mu of A thresholded and normalised"),
        "value_cosine": of(value_cosine, "cosine of V - mu1' and P - mu1'"),
        "attention_cosine": of(lambda V, A, task: cosine(A, task), "cosine of A - 11'/T and Q - 11'/T"),
        "star_cosine": of(
            lambda V, A, task: cosine(rounded(A, p.threshold), task),
            "the same of A thresholded and normalised",
        ),
        "stage": Probe(
            lambda task, p, state: state.stage if isinstance(state, Staged) else jnp.zeros((), int),
            "number of the stage, from 0",
        ),
        "P": truth(lambda task: task.P, "transition matrix", "next", "token"),
        "mu": truth(lambda task: task.mu, "law of tokens", "token"),
        "positions": truth(lambda task: task.positions, "positions of triggers", "trigger", "place"),
        "position_weights": truth(lambda task: task.weights, "their weights", "trigger", "place"),
        "value_size": truth(lambda task: jnp.sqrt(sizes(task, p.T)[0]), "|P - mu1'|_mu"),
        "attention_size": truth(lambda task: jnp.sqrt(sizes(task, p.T)[1]), "|Q - 11'/T|_mu"),
    }


# ---------------------------------------------------------------- paper

PAPER = About(
    title="Learning and Transferring Sparse Contextual Bigrams with Linear Transformers",
    citation="Y. Ren, Z. Wang and J. D. Lee",
    loss="excess_loss",
)
