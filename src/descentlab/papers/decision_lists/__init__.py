r"""Attention learns decision lists.

"Provable Gradient-Descent-Based Learning of Decision Lists by Transformers" (extended abstract).

Sequences of n tokens from [L] are one-hot columns X; one attention layer gives at every position

    f_{W,V}(X) = softmax(V X softmax(X' W X)),   softmax by columns,

and the loss is the mean over positions of -log of the label's probability. Every token a has a list
L_a = (a_1, ..., a_m), m <= M, that ends in a_m = a. The label of a in a sequence s is pi(a_j) for the first
a_j that is in s, with pi a permutation of the tokens and P its matrix.

| here | paper | meaning |
| --- | --- | --- |
| `L`, `n`, `M` | L, n, M | tokens, positions of a sequence, longest list |
| `pi`, `lists`, `sizes` of a task | pi, L_a, m | the rule; lists filled up with their own token |
| `W`, `V` | W, V | attention and value weights; W[t, a] is what query a gives to token t |
| `c`, `epsilon` | c, epsilon | V_0 = cP, up to epsilon/2 where V is trained |
| `delta`, `gamma` | delta, gamma | masses of the law; `masses` says which |
| `rate`, `curvature` | eta, lambda_max | step size, largest eigenvalue of the Hessian |

Exact algebra makes it fast; tests prove it against the plain model. Expectations over all sequences are
finite sums over counts (`sequences`). With W = 0 held, all positions of a sequence share one row. The flow
of W from V = cP is one weight per list entry (`lengths`). And "perfect classification on all sequences" is
decided for any W and V in time L^3 M (`certificate`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, ScalarLike

from descentlab.engine import (
    Dynamics,
    Probe,
    descent,
    extreme_eigenvalues,
    flow,
    online,
    optimizer,
    population,
)
from descentlab.papers import About
from descentlab.papers.decision_lists import lengths, sequences
from descentlab.papers.decision_lists.atlas import ATLAS as ATLAS
from descentlab.papers.decision_lists.attention import attention_needed as attention_needed
from descentlab.papers.decision_lists.attention import disagreement as disagreement
from descentlab.papers.decision_lists.certificate import Certificate as Certificate
from descentlab.papers.decision_lists.certificate import certify as certify
from descentlab.papers.decision_lists.certificate import margin, surely
from descentlab.papers.decision_lists.claims import CLAIMS as CLAIMS
from descentlab.papers.decision_lists.deviations import DEVIATIONS as DEVIATIONS
from descentlab.papers.decision_lists.figures import FIGURES as FIGURES
from descentlab.papers.decision_lists.lengths import LengthTask as LengthTask
from descentlab.papers.decision_lists.masses import attention_scale, masses, time_bounds
from descentlab.papers.decision_lists.model import Params as Params
from descentlab.papers.decision_lists.model import decided as decided
from descentlab.papers.decision_lists.model import labels as labels
from descentlab.papers.decision_lists.model import predict as predict
from descentlab.papers.decision_lists.model import sample as sample
from descentlab.papers.decision_lists.setting import (
    DELTAS,
    GAMMAS,
    by_length,
    by_sequence,
    given_probabilities,
    permutation_matrix,
    width,
)
from descentlab.papers.decision_lists.setting import LAWS as LAWS
from descentlab.papers.decision_lists.setting import PRESETS as PRESETS
from descentlab.papers.decision_lists.setting import Preset as Preset
from descentlab.papers.decision_lists.setting import Rule as Rule
from descentlab.papers.decision_lists.setting import draw_rule as draw_rule
from descentlab.papers.decision_lists.setting import records as records
from descentlab.papers.decision_lists.studies import STUDIES as STUDIES

# ---------------------------------------------------------------- task


class Task(NamedTuple):
    """A rule, what its exact loss needs of the labels, and where and how fast training starts."""

    preset: Preset
    pi: Int[Array, " L"]
    lists: Int[Array, "L M"]
    sizes: Int[Array, " L"]
    truth: Array
    start: Params
    c: Float[Array, ""]
    epsilon: Float[Array, ""]
    rate: Float[Array, ""]
    delta: Float[Array, " delta"]
    bounds: Float[Array, " gamma"]
    test: Key[Array, ""]


# ---------------------------------------------------------------- objective


def _around(L: int) -> np.ndarray:
    """The token at distance r from the query a, over a and r."""
    return (np.arange(L)[:, None] + np.arange(L)[None, :]) % L


def by_query(task: Any, p: Preset) -> Int[Array, "L rows"]:
    """The labels of every query in every row of the table of other tokens."""
    counts, _ = sequences.others(p.L, p.n, p.law, given_probabilities(p))
    present = jnp.asarray(counts > 0)

    def query(a: Array) -> Array:
        by_token = jnp.roll(present, a, axis=1)
        return decided(task, jnp.full(len(counts), a), by_token)

    return jax.lax.map(query, jnp.arange(p.L))


def frequencies(task: Any, p: Preset) -> Float[Array, "rows L"]:
    """How often each label occurs in every whole sequence."""
    counts, _ = sequences.whole(p.L, p.n, p.law, given_probabilities(p))

    def row(count: Array) -> Array:
        tokens = jnp.arange(p.L)
        found = decided(task, tokens, jnp.broadcast_to((count > 0)[None, :], (p.L, p.L)))
        return jnp.zeros(p.L).at[found].add(count / p.n)

    return jax.lax.map(row, jnp.asarray(counts))


def _logits_by_query(w: Params, p: Preset) -> Float[Array, "L rows L"]:
    counts, _ = sequences.others(p.L, p.n, p.law, given_probabilities(p))
    around = _around(p.L)
    weights = w.W[around, np.arange(p.L)[:, None]]
    linear = p.attention == "linear"
    weights = 1 + weights if linear else jnp.exp(weights - jnp.max(weights, axis=1, keepdims=True))
    seen = jnp.asarray(counts)[None, :, :] * weights[:, None, :]
    values = jnp.einsum("asr,kar->ask", seen, w.V[:, around])
    return values / (p.n if linear else jnp.sum(seen, axis=2)[:, :, None])


def _cross_entropy(logits: Array, truth: Array) -> Array:
    right = jnp.take_along_axis(logits, truth[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - right


def _right(logits: Array, truth: Array) -> Array:
    """Whether the label's logit is above all others."""
    right = jnp.take_along_axis(logits, truth[..., None], axis=-1)[..., 0]
    mine = jax.nn.one_hot(truth, logits.shape[-1], dtype=bool)
    return right > jnp.max(jnp.where(mine, -jnp.inf, logits), axis=-1)


def population_loss(w: Params, task: Task) -> Float[Array, ""]:
    """The exact expected loss: a sum over queries and the counts of the other tokens.

    Where attention stays uniform, over whole sequences, since all their positions share one output.
    """
    p, truth = task.preset, task.truth
    if by_sequence(p):
        counts, weights = sequences.whole(p.L, p.n, p.law, given_probabilities(p))
        logits = jnp.asarray(counts / p.n) @ w.V.T
        each = jax.nn.logsumexp(logits, axis=1) - jnp.sum(truth * logits, axis=1)
        return jnp.sum(jnp.asarray(weights) * each)
    _, weights = sequences.others(p.L, p.n, p.law, given_probabilities(p))
    return jnp.sum(jnp.asarray(weights) * _cross_entropy(_logits_by_query(w, p), truth))


def population_error(w: Params, task: Task) -> Float[Array, ""]:
    """The exact probability that a position is misclassified (a tie is)."""
    p, truth = task.preset, task.truth
    if by_sequence(p):
        counts, weights = sequences.whole(p.L, p.n, p.law, given_probabilities(p))
        logits = jnp.asarray(counts / p.n) @ w.V.T
        best = jnp.max(logits, axis=1, keepdims=True)
        unique = jnp.sum(logits == best, axis=1) == 1
        correct = jnp.where(unique, jnp.sum(jnp.where(logits == best, truth, 0.0), axis=1), 0.0)
        return jnp.sum(jnp.asarray(weights) * (1 - correct))
    _, weights = sequences.others(p.L, p.n, p.law, given_probabilities(p))
    wrong = ~_right(_logits_by_query(w, p), truth)
    return jnp.sum(jnp.where(wrong, jnp.asarray(weights), 0.0))


def batch_loss(w: Params, task: Any, batch: tuple[Array, Array]) -> Float[Array, ""]:
    """The loss of sequences, averaged over positions."""
    tokens, truth = batch
    return jnp.mean(_cross_entropy(_logits_of_batch(w, task, tokens), truth))


def _logits_of_batch(w: Params, task: Any, tokens: Int[Array, "batch n"]) -> Float[Array, "batch n L"]:
    """`predict`, or where attention stays uniform one output for all positions of a sequence."""
    if not by_sequence(task.preset):
        return predict(task, w, tokens)
    shared = jnp.mean(w.V.T[tokens], axis=1)
    return jnp.broadcast_to(shared[:, None, :], (*tokens.shape, shared.shape[1]))


def risk(w: Params, task: Task, samples: int | None = None) -> Float[Array, ""]:
    """The loss that is recorded: exact, or on the task's own evaluation sample (or a part of that size)."""
    p = task.preset
    if p.loss == "exact":
        return population_loss(w, task)
    return batch_loss(w, task, sample(task.test, task, samples or p.samples))


def error(w: Params, task: Task) -> Float[Array, ""]:
    """The share of positions that are misclassified: exact, or on the evaluation sample."""
    p = task.preset
    if p.loss == "exact":
        return population_error(w, task)
    tokens, truth = sample(task.test, task, p.samples)
    return 1 - jnp.mean(_right(_logits_of_batch(w, task, tokens), truth), dtype=w.V.dtype)


# ---------------------------------------------------------------- beginning


def trained(g: Params, p: Preset) -> Params:
    """A gradient with the blocks that are not trained set to zero."""
    frozen = {"both": (), "value": (0,), "attention": (1,)}[p.train]
    return Params(*[jnp.zeros_like(x) if i in frozen else x for i, x in enumerate(g)])


def make_task(key: Key[Array, ""], p: Preset) -> Task | LengthTask:
    """A random rule, and the start of training with the theorem's own c unless another is given."""
    rule_key, start_key, test = jax.random.split(key, 3)
    rule = draw_rule(rule_key, p)
    if by_length(p):
        return length_task(rule, p)
    L = p.L
    # Nothing is known of the masses of a law of one's own.
    delta, bounds = jnp.ones(len(DELTAS)), jnp.full(len(GAMMAS), jnp.nan)
    if p.law in LAWS and p.start == "permutation":
        delta, gamma = masses(rule)
        bounds = time_bounds(p.M, L, gamma)
    truth = jnp.zeros(())
    if p.loss == "exact":
        truth = frequencies(rule, p) if by_sequence(p) else by_query(rule, p)
    zero = jnp.zeros((L, L))
    one, nothing = jnp.ones(()), jnp.zeros(())
    task = Task(program(p), *rule[1:], truth, Params(zero, zero), nothing, nothing, one, delta, bounds, test)
    W_key, V_key, eigen_key = jax.random.split(start_key, 3)
    if p.start == "random":
        W, V = (p.sigma_0 * jax.random.normal(k, (L, L)) for k in (W_key, V_key))
        task = task._replace(start=trained(Params(W, V), p))
    elif p.start == "permutation":
        task = near_permutation(V_key, task, p)
    rate = jnp.asarray(p.eta, jnp.float64)
    if p.step == "curvature":
        rate = rate / curvature(task.start, task, eigen_key)
    return task._replace(rate=rate)


def given_or(given: ScalarLike, own: Float[Array, ""]) -> Float[Array, ""]:
    """What a field gives, or where it is 0 the theorem's own."""
    value = jnp.asarray(given, own.dtype)
    return jnp.where(value > 0, value, own)


def near_permutation(key: Key[Array, ""], task: Task, p: Preset) -> Task:
    """The task with V_0 = cP, plus noise of up to epsilon/2 where V is trained.

    c is given, or 4 n log(L)/delta, or where V is trained that of `joint_scale`.
    """
    P = permutation_matrix(task)
    delta = task.delta[DELTAS.index(p.delta)]
    c = given_or(p.c, attention_scale(p.n, p.L, delta))
    if p.train != "both":
        return task._replace(start=Params(jnp.zeros_like(P), c * P), c=c)
    noise = p.noise / 2 * jax.random.uniform(key, P.shape, P.dtype, -1.0, 1.0)

    def start(c: Array, epsilon: Array) -> Params:
        return Params(jnp.zeros_like(P), c * P + epsilon * noise)

    solution, epsilon = joint_scale(lambda *at: risk(start(*at), task), c, delta, p)
    settled = jnp.isfinite(solution)
    begin = start(jnp.where(settled, solution, c), jnp.where(settled, epsilon, 0.0))
    return task._replace(start=begin, c=solution, epsilon=epsilon)


def joint_scale(
    loss: Callable[[Array, Array], Array], first: Array, delta: Array, p: Preset, rounds: int = 20
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The c = 10 n^2 L_0/delta + 4 epsilon n of the theorem on W and V unless it is given, and epsilon.

    L_0 = loss(c, epsilon) depends on both: iterated until they stay; both are nan where they do not.
    """

    def again(_: Any, now: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        c, epsilon, _ = now
        L_0 = loss(c, epsilon)
        epsilon = given_or(p.epsilon, p.n * L_0 / 18)
        return given_or(p.c, 10 * p.n**2 * L_0 / delta + 4 * epsilon * p.n), epsilon, c

    c, epsilon, before = jax.lax.fori_loop(0, rounds, again, (first, jnp.zeros_like(first), first))
    settled = jnp.isfinite(c) & (jnp.abs(c - before) <= 1e-9 * jnp.abs(c))
    return jnp.where(settled, c, jnp.nan), jnp.where(settled, epsilon, jnp.nan)


def length_task(rule: Rule, p: Preset) -> LengthTask:
    """What the flow of one weight per list entry needs of a task."""
    delta, gamma = masses(rule)
    longest = lengths.longest(p)
    c = given_or(p.c, attention_scale(p.n, p.L, delta[DELTAS.index(p.delta)]))
    shares = jnp.mean(rule.sizes[None, :] == jnp.arange(1, longest + 1)[:, None], axis=1, dtype=jnp.float64)
    orbits = lengths.Orbits(*map(jnp.asarray, lengths.orbits(p.L, p.n, p.law, longest)))
    sizes = (jnp.asarray(float(p.L)), jnp.asarray(float(p.n)))
    bounds = time_bounds(p.M, p.L, gamma)
    return LengthTask(program(p), orbits, *sizes, shares, c, bounds)


def program(p: Preset) -> Preset:
    """The preset whose compiled program serves this one: the task knows lists, starts, sizes of `lengths`."""
    changes: dict[str, Any] = {"M": width(p), "lists": "", "permutation": "", "start": "permutation"}
    if by_length(p):
        # Orbits of distinct tokens have one kind of other tokens at every size.
        changes |= {"L": 64, "n": 2, "M": lengths.longest(p), "law": "distinct", "loss": "exact",
                    "delta": DELTAS[0], "gamma": GAMMAS[0]}  # fmt: skip
    return p.unchecked(**changes)


# ---------------------------------------------------------------- algorithm


def curvature(w: Params, task: Task, key: Key[Array, ""]) -> Float[Array, ""]:
    """lambda_max: the largest eigenvalue of the Hessian of the loss (or of one batch) in what is trained."""
    p = task.preset
    _, change = jax.linearize(jax.grad(lambda w: risk(w, task, p.batch)), w)
    return extreme_eigenvalues(lambda v: trained(change(trained(v, p)), p), w, key).largest


def dynamics(task: Task | LengthTask, p: Preset) -> Dynamics:
    """Training by the chosen algorithm; a flow ends when all sequences are certainly classified right."""
    if isinstance(task, LengthTask):
        longest = task.orbits.entries.shape[0]
        return flow(
            lambda key: jnp.zeros((longest, longest + 1)), lambda w: lengths.slope(w, task), p.eta,
            event=lambda w: lengths.certified(w, task), stop=True, stiff=p.stiff, rtol=1e-6,
        )  # fmt: skip

    def begin(key: Key[Array, ""]) -> Params:
        return task.start

    def slope(w: Params) -> Params:
        return trained(jax.grad(lambda w: risk(w, task))(w), p)

    if p.algorithm == "flow":
        return flow(
            begin, slope, p.eta, event=lambda w: surely(w.W, w.V, task), stop=True, stiff=p.stiff, rtol=1e-6
        )
    rule = optimizer(p.optimizer, task.rate, lam=p.lam, sparse=() if p.train == "value" else ("W",))
    if p.loss == "exact":
        return descent(begin, population(lambda w: risk(w, task), slope), rule)
    fresh = online(
        lambda key: sample(key, task, p.batch),
        lambda w, batch: batch_loss(w, task, batch),
        lambda w, batch: trained(jax.grad(batch_loss)(w, task, batch), p),
    )
    return descent(begin, fresh, rule)


# ---------------------------------------------------------------- probes


def toward_permutation(V: Float[Array, "L L"], task: Any) -> Float[Array, ""]:
    """The cosine of V and P - 1/L, which is P without what softmax ignores; 0 for V = 0."""
    target = permutation_matrix(task) - 1 / task.preset.L
    size = jnp.sqrt(jnp.sum(V**2) * jnp.sum(target**2))
    return jnp.where(size > 0, jnp.sum(V * target) / jnp.where(size > 0, size, 1.0), 0.0)


def decoded(V: Float[Array, "L L"], task: Any) -> Float[Array, ""]:
    """The share of tokens t whose largest entry of V[:, t] is that of pi(t), alone."""
    best = jnp.max(V, axis=0, keepdims=True)
    alone = jnp.sum(best == V, axis=0) == 1
    return jnp.mean((jnp.argmax(V, axis=0) == task.pi) & alone, dtype=V.dtype)


def probes(p: Preset) -> dict[str, Probe]:
    """What is recorded."""
    if by_length(p):
        return _length_probes()

    def of(measure: Callable[[Params, Task], Any], doc: str, *dims: str, **options: Any) -> Probe:
        return Probe(lambda task, p, state: measure(state.params, task), doc, dims, **options)

    def weighted(w: Params, task: Task) -> Array:
        """The weights of each query's list entries, and the mean weight of all other tokens first."""
        tokens = jnp.arange(task.preset.L)
        listed = jnp.any(task.lists[:, :, None] == tokens[None, None, :], axis=1)
        columns = w.W.T
        others = jnp.sum(~listed, axis=1, dtype=columns.dtype)
        rest = jnp.sum(jnp.where(listed, 0.0, columns), axis=1) / jnp.maximum(others, 1.0)
        return jnp.concatenate([rest[:, None], jnp.take_along_axis(columns, task.lists, axis=1)], axis=1)

    found = {
        "loss": of(risk, "population loss"),
        "error": of(error, "probability that a position is misclassified"),
        "cosine": of(lambda w, task: toward_permutation(w.V, task), "cosine of V and P - 1/L"),
        "decoded": of(lambda w, task: decoded(w.V, task), "share of tokens whose pi(t) tops V[:, t]"),
        "entry_weights": of(weighted, "W of other tokens (mean) and of each list entry, by query",
                            "query", "entry"),
        "permutation": of(lambda w, task: task.pi, "pi", "query", once=True),
        "lists": of(lambda w, task: task.lists, "lists, filled up with their own token", "query", "place",
                    once=True),
        "sizes": of(lambda w, task: task.sizes, "lengths of the lists", "query", once=True),
        "c": of(lambda w, task: task.c, "c of V_0 = cP; nan where the theorem's equation has no solution",
                once=True),
        "epsilon": of(lambda w, task: task.epsilon, "epsilon", once=True),
        "rate": of(lambda w, task: task.rate, "step size", once=True),
        "time_bound": of(lambda w, task: task.bounds, "4M/(log(L) gamma)", "gamma", once=True),
        "final_W": of(lambda w, task: w.W, "W at the end", "token", "query", once=True),
        "final_V": of(lambda w, task: w.V, "V at the end", "label", "token", once=True),
    }  # fmt: skip
    if p.attention == "softmax":  # certificates know no other
        found["margin"] = of(
            lambda w, task: margin(w.W, w.V, task), "worst sum over all sequences; > 0: all right"
        )
        found["certified"] = of(
            lambda w, task: surely(w.W, w.V, task), "1 if all sequences are certainly right", dtype=np.int8
        )
    if p.train == "value":
        found["disagreeing_pairs"] = of(
            lambda w, task: disagreement(task).pairs, "share of pairs of tokens with two labels together",
            once=True,
        )  # fmt: skip
        found["disagreement"] = of(
            lambda w, task: jnp.stack(disagreement(task)[:4]), "two such tokens and their deciders", "member",
            once=True,
        )  # fmt: skip
    if p.algorithm == "flow":
        found["hit"] = Probe(
            lambda task, p, state: state.hit, "step of the first certified time; -1: none yet"
        )
    if p.step == "curvature":
        found["curvature"] = of(
            lambda w, task: curvature(w, task, task.test), "largest eigenvalue of the Hessian"
        )
    if p.detail:
        found["W"] = of(lambda w, task: w.W, "W", "token", "query")
        found["V"] = of(lambda w, task: w.V, "V", "label", "token")
    return found


def _length_probes() -> dict[str, Probe]:
    """The same of one weight per list entry."""

    def of(measure: Callable[[Array, LengthTask], Any], doc: str, *dims: str, **options: Any) -> Probe:
        return Probe(lambda task, p, state: measure(state.params, task), doc, dims, **options)

    def mean(by_length: Array, task: LengthTask) -> Array:
        """Over the queries."""
        return jnp.sum(jnp.where(task.there, task.shares * by_length, 0.0))

    return {
        "loss": of(lambda w, task: mean(lengths.losses(w, task), task), "population loss"),
        "error": of(lambda w, task: mean(lengths.error(w, task), task), "probability of misclassification"),
        "margin": of(lengths.margin, "least log-ratio of the decider's attention to a rival's"),
        "certified": of(lengths.certified, "1 if all sequences are certainly right", dtype=np.int8),
        "entry_weights": of(lambda w, task: w, "W of other tokens and of each list entry, by length",
                            "length", "entry"),
        "hit": Probe(lambda task, p, state: state.hit, "step of the first certified time; -1: none yet"),
        "there": of(lambda w, task: task.there, "whether lists of a length occur", "length", dtype=np.int8,
                    once=True),
        "c": of(lambda w, task: task.c, "c of V = cP", once=True),
        "time_bound": of(lambda w, task: task.bounds, "4M/(log(L) gamma)", "gamma", once=True),
    }  # fmt: skip


# ---------------------------------------------------------------- the paper

PAPER = About(
    title="Provable Gradient-Descent-Based Learning of Decision Lists by Transformers",
    citation="Anonymous authors, extended abstract.",
    loss="loss",
)
