"""The setting of decision_lists: presets, sequence laws, and random permutations and lists."""

import functools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from descentlab.engine import BY_SIGN, OPTIMIZERS, Settings, log_spaced, parameter, preset
from descentlab.engine import _plugin as foreign
from descentlab.errors import SettingError
from descentlab.papers.decision_lists import sequences

LAWS = {"distinct": sequences.distinct, "iid": sequences.iid}
DELTAS = ("rival", "decides", "rarest")
GAMMAS = ("token", "event", "token_squared", "rarest")
# The most numbers that one evaluation of an exact loss may touch: (query, sequence, label) triples.
MOST_TRIPLES = 4_000_000
DESCENT_STEPS, DESCENT_ETA = 2000, 1.0
# The step size of optimisers that a gradient tells a direction alone, unless it is given.
SIGN_ETA = 1e-2
# Fields that decide whether the loss can be exact.
DECIDE_LOSS = {"L", "n", "law", "probabilities", "algorithm", "train", "start", "reduced", "detail"}

# ---------------------------------------------------------------- presets


@preset
class Preset(Settings):
    """The paper's letters, and its assumptions as switches."""

    L: int = parameter("tokens of the vocabulary, numbered from 0", default=32, low=2, high=400)
    n: int = parameter("length of a sequence", default=30, low=2, high=1000)
    M: int = parameter("longest list", default=2, low=1, high=32)
    law: str = parameter(
        "law of sequences: distinct (uniform), iid, or your own as module:function, a function "
        "(key, L, n) -> n tokens",
        default="distinct",
    )
    probabilities: str = parameter(
        "law=iid: the probabilities of the tokens, such as 0.5,0.3,0.2; uniform unless given", default=""
    )
    sequences: str = parameter(
        "what must be classified: all L^n sequences, or those of distinct tokens; the law's own unless given",
        default="",
        choices=("all", "distinct"),
    )
    lists: str = parameter(
        "the lists of all tokens, such as [[1,0],[1],[0,1,2]]; random unless given", default=""
    )
    permutation: str = parameter("pi as a list, such as [2,0,1]; random unless given", default="")
    algorithm: str = parameter(
        "gradient flow to the first certified time, or gradient descent",
        default="flow",
        choices=("flow", "descent"),
    )
    attention: str = parameter(
        "softmax; or linear, which is not the paper's: 1 + x for exp(x), n for its sum over a sequence",
        default="softmax",
        choices=("softmax", "linear"),
    )
    optimizer: str = parameter(
        "gradient descent as in the paper, or sign descent, Adam, or proximal steps with an l1 norm of W",
        default="gd",
        choices=OPTIMIZERS,
    )
    lam: float = parameter("optimizer=proximal: weight of the l1 norm", default=0.01, low=0)
    train: str = parameter("what is trained: W, V or both", default="attention",
                           choices=("attention", "value", "both"))  # fmt: skip
    start: str = parameter(
        "W = 0 and V near cP; both zero; or Gaussian what is trained and the rest zero",
        default="permutation",
        choices=("permutation", "zero", "random"),
    )
    c: float = parameter(
        "V = cP at the start; 0: the theorem's own (with delta = 1 for a law of one's own)",
        default=0.0,
        low=0,
    )
    epsilon: float = parameter(
        "epsilon of the theorem on W and V; 0: n L_0/18, which its conditions like best", default=0.0, low=0
    )
    noise: float = parameter(
        "largest |V_0 - cP| over epsilon/2 where V is trained from start=permutation",
        default=1.0, low=0, high=1,
    )  # fmt: skip
    sigma_0: float = parameter("standard deviation of the random start", default=0.01, low=0)
    delta: str = parameter(
        "reading of delta: the least probability, given the query a, that a_j decides and a rival is there, "
        "that a_j decides, or of a single multiset of tokens",
        default="rival",
        choices=DELTAS,
    )
    gamma: str = parameter(
        "reading of gamma: the least probability of a query, of a query decided by an entry, the square of "
        "the first, of a query and a multiset around it, or any of these",
        default="any",
        choices=("any", *GAMMAS),
    )
    loss: str = parameter(
        "exact population loss, or fresh batches a step; exact where that is feasible unless given",
        default="",
        choices=("exact", "sampled"),
    )
    reduced: bool = parameter(
        "flow of W: one weight per list entry and one for all other tokens, where that is exact "
        "(V = cP, tokens exchangeable), else all weights",
        default=True,
    )
    stiff: bool = parameter(
        "flow: an implicit solver, which large c (beyond 10,000) needs for sequences with repeats",
        default=False,
    )
    batch: int = parameter("sequences a step of a sampled loss", default=256, low=1, high=1_000_000)
    samples: int = parameter(
        "sequences behind measurements where nothing is exact", default=1024, low=2, high=1_000_000
    )
    step: str = parameter(
        "unit of eta: 1, or 1/lambda_max of the Hessian at the start (descent)",
        default="fixed",
        choices=("fixed", "curvature"),
    )
    eta: float = parameter("step size; step t of a flow is time eta t", default=1e-6, above=0)
    steps: int = parameter("training steps", default=10**12, low=1, high=10**15)
    detail: bool = parameter("record W and V along the run", default=False)

    def __post_init__(self) -> None:
        if not self.sequences:
            object.__setattr__(self, "sequences", "distinct" if self.law == "distinct" else "all")
        if not self.loss:
            feasible = self.law in LAWS and _sizes_fit(self) and triples(self) <= MOST_TRIPLES
            feasible = feasible or by_length(self)
            object.__setattr__(self, "loss", "exact" if feasible else "sampled")
        super().__post_init__()

    def implied(self, changes):
        """Other sequences and losses come with another law and other sizes; descent has its own steps."""
        along: dict[str, Any] = {}
        if "law" in changes:
            along["sequences"] = ""
        if changes.keys() & DECIDE_LOSS:
            along["loss"] = ""
        if changes.keys() & {"L"}:
            along |= {"lists": "", "permutation": "", "probabilities": ""}
        if changes.get("algorithm") == "descent" and self.algorithm == "flow":
            along |= {"eta": DESCENT_ETA, "steps": min(self.steps, DESCENT_STEPS)}
        if changes.get("optimizer") in BY_SIGN and self.optimizer not in BY_SIGN:
            along["eta"] = SIGN_ETA
        return along

    def conflicts(self) -> Iterator[str]:
        """Sizes that do not fit, lists that are none, and runs that cannot be."""
        if self.M > self.L:
            yield f"M takes a whole number <= L = {self.L}, got M={self.M}."
        if "distinct" in (self.law, self.sequences) and self.n > self.L:
            yield f"n takes a whole number <= L = {self.L} for distinct tokens, got n={self.n}."
        foreign.chosen("law", self.law, LAWS)
        if self.law not in LAWS:
            yield from strange_tokens(self)
        for given in (given_probabilities, given_lists, given_permutation):
            given(self)
        exact = f"L={self.L}, n={self.n}, law={self.law}, at most {MOST_TRIPLES:.2g}"
        if self.algorithm == "flow" and self.loss == "sampled" and not by_length(self):
            if self.law not in LAWS:
                yield f"algorithm=flow takes law=distinct or iid, got law={self.law}."
            yield (
                f"algorithm=flow needs an exact loss, which takes {triples(self):.2g} numbers at {exact}; "
                "algorithm=descent takes any."
            )
        if self.loss == "exact" and self.law not in LAWS:
            yield f"loss=exact takes law=distinct or iid, got law={self.law}."
        if self.loss == "exact" and self.law in LAWS and triples(self) > MOST_TRIPLES and not by_length(self):
            yield f"loss=exact takes {triples(self):.2g} numbers at {exact}; loss=sampled takes any."
        if self.start != "permutation" and self.train == "attention":
            yield f"start={self.start} takes train=value or both: W never moves while V = 0."
        if by_length(self):
            rows = sequences.orbit_count(self.L, self.n, self.law, self.M)
            kinds = self.M + (1 if self.law == "distinct" else self.n)
            if rows * kinds * self.M > MOST_TRIPLES:
                yield (
                    f"M={self.M}, n={self.n} with law={self.law} take {rows:.2g} orbits of sequences for "
                    "each list length, which is too many: take a smaller n or M, or algorithm=descent."
                )
        for name, own in (("optimizer", "gd"), ("attention", "softmax")):
            if self.algorithm == "flow" and getattr(self, name) != own:
                yield f"{name}={getattr(self, name)} takes algorithm=descent, got algorithm=flow."
        if self.step == "curvature" and self.optimizer in BY_SIGN:
            yield f"step=curvature takes optimizer=gd or proximal, got optimizer={self.optimizer}."
        if self.step == "curvature" and self.algorithm == "flow":
            yield "step=curvature takes algorithm=descent: a flow has no step size."

    def foreign_code(self) -> str:
        """What one's own law is, for the name of the run."""
        return foreign.fingerprint(self.law, LAWS)


def _sizes_fit(p: Preset) -> bool:
    return all(type(x) is int and x > 0 for x in (p.L, p.n)) and (p.law != "distinct" or p.n <= p.L)


def by_sequence(p: Preset) -> bool:
    """Whether attention stays uniform (W = 0), so that all positions of a sequence share their output."""
    return p.train == "value"


def by_length(p: Preset) -> bool:
    """Whether a run is that of one weight per list entry: asked for, and exact."""
    exact = p.algorithm == "flow" and p.train == "attention" and p.start == "permutation"
    return p.reduced and exact and p.law in LAWS and not p.probabilities and not p.detail


def triples(p: Preset) -> int:
    """How many (query, sequence, label) triples the exact loss sums."""
    if by_sequence(p):
        return sequences.whole_count(p.L, p.n, p.law) * p.L
    return sequences.others_count(p.L, p.n, p.law) * p.L**2


# ---------------------------------------------------------------- what may be given


def _parsed(field: str, text: str, example: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise SettingError(f"{field} takes a list such as {example}, got {field}={text}.") from None


@functools.lru_cache
def _lists(text: str, L: int, M: int) -> tuple[tuple[int, ...], ...]:
    found = _parsed("lists", text, "[[1,0],[1],[0,1,2]]")
    if not (isinstance(found, list) and len(found) == L and all(isinstance(one, list) for one in found)):
        raise SettingError(f"lists takes a list for each of the L = {L} tokens, got lists={text}.")
    for a, one in enumerate(found):
        whose = f"the list of token {a}"
        if not one or len(one) > M:
            raise SettingError(f"{whose} takes 1 to M = {M} tokens, got {one}.")
        if not all(type(t) is int and 0 <= t < L for t in one):
            raise SettingError(f"{whose} takes tokens 0 to {L - 1}, got {one}.")
        if len(set(one)) < len(one):
            raise SettingError(f"{whose} takes each token once, got {one}.")
        if one[-1] != a:
            raise SettingError(f"{whose} must end in {a} itself, got {one}.")
    return tuple(map(tuple, found))


def given_lists(p: Preset) -> tuple[tuple[int, ...], ...] | None:
    """The lists that the preset gives; a SettingError if they are none."""
    return _lists(p.lists, p.L, p.M) if p.lists else None


def given_permutation(p: Preset) -> tuple[int, ...] | None:
    """The permutation that the preset gives; a SettingError if it is none."""
    if not p.permutation:
        return None
    found = _parsed("permutation", p.permutation, "[2,0,1]")
    if not isinstance(found, list) or sorted(map(repr, found)) != sorted(map(repr, range(p.L))):
        raise SettingError(f"permutation takes each of 0 to {p.L - 1} once, got {p.permutation}.")
    return tuple(found)


def given_probabilities(p: Preset) -> tuple[float, ...]:
    """The probabilities of the tokens; a SettingError if they are none."""
    if not p.probabilities:
        return (1 / p.L,) * p.L
    if p.law != "iid":
        raise SettingError(f"probabilities takes law=iid, got law={p.law}.")
    try:
        found = tuple(float(word) for word in p.probabilities.split(","))
    except ValueError:
        found = ()
    if len(found) != p.L or not min(found) > 0 or not abs(sum(found) - 1) <= 1e-9:
        raise SettingError(
            f"probabilities takes L = {p.L} positive numbers that sum to 1, got {p.probabilities}."
        )
    return found


# ---------------------------------------------------------------- the presets

PRESETS = {
    # For tests and a first look.
    "tiny": Preset(L=8, n=4, M=3),
    # Large enough for the conditions of the theorem on W and V, small enough to be exact.
    "quick": Preset(),
    # Lists of three, for which the conditions ask for longer sequences.
    "paper": Preset(L=50, n=48, M=3),
    # Sequences with repeated tokens.
    "repeats": Preset(L=12, n=5, M=4, law="iid"),
}


def records(p: Preset) -> np.ndarray:
    """The first steps one by one, then log-spaced."""
    if p.algorithm == "flow":
        return log_spaced(p.steps, dense=1, per_decade=10)
    if p.step == "curvature":  # whose eigenvalue is the dear part of a record
        return log_spaced(p.steps, dense=5, per_decade=4)
    return log_spaced(p.steps, dense=20, per_decade=20)


# ---------------------------------------------------------------- task


class Rule(NamedTuple):
    """A permutation and the lists, each filled up with its own token; `sizes` are their real lengths."""

    preset: Preset
    pi: Int[Array, " L"]
    lists: Int[Array, "L M"]
    sizes: Int[Array, " L"]


def width(p: Preset) -> int:
    """Columns of `Rule.lists`: M, or enough that presets of small M share compiled programs."""
    return max(p.M, min(4, p.L))


def shuffled(key: Key[Array, ""], count: int) -> Int[Array, " count"]:
    """0, ..., count - 1 in random order. One sort, which compiles faster than jax.random.permutation."""
    return jnp.argsort(jax.random.bits(key, (count,), "uint64"))


def draw_rule(key: Key[Array, ""], p: Preset) -> Rule:
    """A random permutation and random lists, of lengths 1 to M, unless the preset gives them."""
    pi_key, size_key, list_key = jax.random.split(key, 3)
    tokens = jnp.arange(p.L)
    pi, lists = given_permutation(p), given_lists(p)
    permutation = shuffled(pi_key, p.L) if pi is None else jnp.asarray(pi, tokens.dtype)
    if lists is not None:
        full = [(*one, *[one[-1]] * (width(p) - len(one))) for one in lists]
        return Rule(p, permutation, jnp.asarray(full, tokens.dtype), jnp.asarray([len(one) for one in lists]))
    sizes = jax.random.randint(size_key, (p.L,), 1, p.M + 1, tokens.dtype)

    def entries(key: Key[Array, ""], a: Int[Array, ""], m: Int[Array, ""]) -> Int[Array, " M"]:
        # The first m - 1 of the other tokens in random order, then a itself.
        others = (a + 1 + shuffled(key, p.L - 1)) % p.L
        padded = jnp.concatenate([others, jnp.full(width(p), a)])[: width(p)]
        return jnp.where(jnp.arange(width(p)) < m - 1, padded, a)

    return Rule(p, permutation, jax.vmap(entries)(jax.random.split(list_key, p.L), tokens, sizes), sizes)


def draw_sequences(key: Key[Array, ""], p: Preset, batch: int) -> Int[Array, "batch n"]:
    """Sequences of the preset's law."""
    if p.law == "iid" and p.probabilities:
        logits = jnp.log(jnp.asarray(given_probabilities(p)))
        return jax.random.categorical(key, logits, shape=(batch, p.n))
    law = foreign.chosen("law", p.law, LAWS)
    drawn = jax.vmap(lambda k: jnp.asarray(law(k, p.L, p.n)))(jax.random.split(key, batch))
    if drawn.shape != (batch, p.n) or not jnp.issubdtype(drawn.dtype, jnp.integer):
        raise SettingError(
            f"law takes a function (key, L, n) -> n whole numbers; {p.law} gives {drawn.dtype} of shape "
            f"{drawn.shape[1:]}, not ({p.n},)."
        )
    return drawn.astype(jnp.arange(1).dtype)


def strange_tokens(p: Preset) -> Iterator[str]:
    """What is wrong with the tokens that a law of one's own draws, if anything."""
    drawn = np.asarray(draw_sequences(jax.random.key(0), p, 64))
    if drawn.min() < 0 or drawn.max() >= p.L:
        yield f"law takes tokens 0 to {p.L - 1}; {p.law} draws {drawn.min()} to {drawn.max()}."


def permutation_matrix(rule: Any) -> Float[Array, "L L"]:
    """P, with P[pi(t), t] = 1."""
    L = rule.preset.L
    return (jnp.arange(L)[:, None] == rule.pi[None, :]).astype(jnp.float64)
