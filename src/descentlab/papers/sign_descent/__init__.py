r"""Two-layer transformers trained by sign descent on signal-noise data.

Li, Huang, Han, Zhou, Suzuki, Zhu and Chen, "On the Optimization and Generalization of
Two-layer Transformers with Sign Gradient Descent", ICLR 2025.

A sample is two tokens, a signal patch x_1 = y mu and a noise patch x_2 = xi, and a label
y = +-1. One softmax attention layer and a fixed linear read-out,

    f(W, X) = F_1 - F_{-1},
    F_j(W, X) = (1/m_v) sum_l 1' W_{V,j} X softmax(X' W_K' W_Q x_l),

are trained on the logistic loss of n samples. SignGD passes through four stages: the value
weights learn the noise, query and key noise align in sign, a majority vote sets the query and
key signals, and attention leaves the signal patch for good. Training is fast, the test loss
stays of constant order.

| here | paper | meaning |
| --- | --- | --- |
| `n`, `d`, `s` | n, d, s | samples, dimension, non-zeros of a noise patch |
| `m_k`, `m_v` | m_k, m_v | rows of W_Q and W_K, rows of W_{V,+-1} |
| `sigma_p`, `sigma_0` | sigma_p, sigma_0 | noise and start standard deviation |
| `signal` | norm of mu | mu = signal e_1 |
| `zeta` | y_i xi_i | noise patch times label, the form in which it enters everything |
| `q_mu`, `q_xi` | <w_{Q,s}, mu>, <w_{Q,s}, y_i xi_i> | query signal and query noise; likewise key |
| `alpha`, `beta` | <v, mu>, <v, y_i xi_i> | mean value signal and mean value noise |
| `z_1`, `z_2` | | log odds of the signal patch for the signal's and the noise's query |
| `s_11`, `s_21` | s_{i,11}, s_{i,21} | their softmax outputs, sigmoid(z_1) and sigmoid(z_2) |

Exact algebra makes it fast; tests prove it against the plain model. The rows of W_V enter only
through v = mean_r(w_{V,1,r} - w_{V,-1,r}) and all take the same step, so v is the state. Weights
move in few directions only (`setting.moving`), so the state is their coordinates there; what
never moves is still seen by the test loss.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.nn import log_sigmoid, softplus
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, ScalarLike

from descentlab.engine import Dynamics, Probe, descent, empirical, float_dtype, optimizer
from descentlab.papers import About, Deviation
from descentlab.papers.sign_descent import claims, figures, mnist, studies
from descentlab.papers.sign_descent.atlas import ATLAS as ATLAS
from descentlab.papers.sign_descent.setting import PRESETS as PRESETS
from descentlab.papers.sign_descent.setting import FullWeights as FullWeights
from descentlab.papers.sign_descent.setting import Preset as Preset
from descentlab.papers.sign_descent.setting import Products as Products
from descentlab.papers.sign_descent.setting import Task as Task
from descentlab.papers.sign_descent.setting import Weights as Weights
from descentlab.papers.sign_descent.setting import make_instance as make_instance
from descentlab.papers.sign_descent.setting import make_task as make_task
from descentlab.papers.sign_descent.setting import records as records
from descentlab.papers.sign_descent.setting import sample as sample
from descentlab.papers.sign_descent.stages import READINGS as READINGS

# ---------------------------------------------------------------- model


def predict(w: FullWeights, X: Float[Array, "2 d"], kernel: str = "softmax") -> Float[Array, ""]:
    """f(W, X) as printed, or with another kernel for softmax; tokens as rows of X."""
    q, k = X @ w.Q.T, X @ w.K.T
    attention = {  # [l, a]: query l looks at key a
        "softmax": lambda: jax.nn.softmax(q @ k.T, axis=-1),
        "gaussian": lambda: jnp.exp(-jnp.sum((q[:, None] - k[None, :]) ** 2, axis=-1) / 2),
        "linear": lambda: (1 + q @ k.T) / 2,
    }[kernel]()
    F = jnp.einsum("la,jrd,ad->j", attention, w.V, X) / w.V.shape[1]
    return F[0] - F[1]


class Forward(NamedTuple):
    """The data-parameter inner products and log odds from which everything follows."""

    q_mu: Float[Array, " m_k"]
    k_mu: Float[Array, " m_k"]
    q_xi: Float[Array, "m_k n"]
    k_xi: Float[Array, "m_k n"]
    alpha: Float[Array, ""]
    beta: Float[Array, " n"]
    z_1: Float[Array, " n"]
    z_2: Float[Array, " n"]
    kernel: str = "softmax"

    @property
    def attention(self) -> Float[Array, "2 2 n"]:
        """The attention of query l to key a, over (a, l, sample): s_11, s_21, ... for softmax."""
        if self.kernel == "softmax":
            z = jnp.stack([self.z_1, self.z_2])
            return jax.nn.softmax(jnp.stack([z, jnp.zeros_like(z)]), axis=0)
        queries, keys = (self.q_mu[:, None], self.q_xi), (self.k_mu[:, None], self.k_xi)
        if self.kernel == "gaussian":
            return jnp.exp(-_pairs(lambda q, k: jnp.sum((q - k) ** 2, axis=0), queries, keys, self.beta) / 2)
        return (1 + _pairs(lambda q, k: jnp.sum(q * k, axis=0), queries, keys, self.beta)) / 2

    @property
    def margin(self) -> Float[Array, " n"]:
        """y f = (s_11 + s_21) alpha + (s_12 + s_22) beta."""
        on_signal, on_noise = jnp.sum(self.attention, axis=1)
        return on_signal * self.alpha + on_noise * self.beta


def _pairs(product: Callable[[Array, Array], Array], queries: Any, keys: Any, like: Array) -> Array:
    """A product of every query with every key, [key, query, sample]; y cancels from each."""
    return jnp.stack([jnp.stack([product(q, k) + jnp.zeros_like(like) for q in queries]) for k in keys])


def forward(
    w: Weights,
    signal: ScalarLike,
    zeta: Float[Array, "n J"],
    frozen: Products | None = None,
    kernel: str = "softmax",
) -> Forward:
    """The inner products of the weights with signal and noise; y cancels from the log odds.

    z_{i,1} = sum_s q_mu (k_mu - k_xi),   z_{i,2} = sum_s q_xi (k_mu - k_xi).
    """
    signal = jnp.asarray(signal, zeta.dtype)
    q_mu, k_mu = signal * w.q_signal, signal * w.k_signal
    q_xi, k_xi, beta = w.q @ zeta.T, w.k @ zeta.T, zeta @ w.v
    if frozen is not None:
        q_xi, k_xi, beta = q_xi + frozen.q, k_xi + frozen.k, beta + frozen.v
    difference = k_mu[:, None] - k_xi
    z_2 = jnp.einsum("mn,mn->n", q_xi, difference)
    return Forward(q_mu, k_mu, q_xi, k_xi, signal * w.v_signal, beta, q_mu @ difference, z_2, kernel)


def on_training(w: Weights, task: Task) -> Forward:
    """The same on the training samples, with the preset's kernel."""
    return forward(w, task.preset.signal, task.zeta, kernel=task.preset.attention)


# ---------------------------------------------------------------- objective


def loss(w: Weights, task: Task) -> Float[Array, ""]:
    """The training loss, mean_i log(1 + exp(-y_i f_i)); u flips the labels of noisy samples."""
    return jnp.mean(softplus(-task.u * on_training(w, task).margin))


def log_loss(w: Weights, task: Task) -> Float[Array, ""]:
    """The logarithm of the training loss, also where the loss itself is below the smallest number."""
    margin = task.u * on_training(w, task).margin
    # log(log(1 + exp(-m))) = -m up to exp(-m) / 2.
    each = jnp.where(margin > 30, -margin, jnp.log(softplus(-jnp.minimum(margin, 30.0))))
    return logsumexp(each) - jnp.log(jnp.asarray(len(task.u), margin.dtype))


def gradient(w: Weights, task: Task, *, balanced: bool = False) -> Weights:
    """The gradient of the loss in v, W_Q and W_K, each row of W_V taking 1/m_v of v's.

    With l' = sigmoid(-margin) and c_l = dL/dz_l = -(1/n) l' u s_l1 s_l2 (alpha - beta):

        dL/dW_Q = sum_i (k_mu - k_xi) (c_1 mu + c_2 zeta)',
        dL/dW_K = sum_i (c_1 q_mu + c_2 q_xi) (mu - zeta)',
        dL/dv   = -(1/n) sum_i l' u [(s_11 + s_21) mu + (s_12 + s_22) zeta].

    Every coefficient is carried as a logarithm, so late in training, where s_21 s_22 is far
    below the smallest float, nothing is lost. `balanced` divides each column by its own largest
    coefficient: no sign changes, and none underflows. That is the form SignGD needs.
    """
    signal, zeta = task.preset.signal, task.zeta
    x = forward(w, signal, zeta)
    gap = x.alpha - x.beta
    sign = -task.u * jnp.sign(gap)
    log_slope = log_sigmoid(-task.u * x.margin) - jnp.log(jnp.asarray(len(task.u), zeta.dtype))
    log_c = log_slope + jnp.log(jnp.abs(gap))
    log_c1 = log_c + log_sigmoid(x.z_1) + log_sigmoid(-x.z_1)
    log_c2 = log_c + log_sigmoid(x.z_2) + log_sigmoid(-x.z_2)
    log_on_signal = log_slope + jnp.logaddexp(log_sigmoid(x.z_1), log_sigmoid(x.z_2))
    log_on_noise = log_slope + jnp.logaddexp(log_sigmoid(-x.z_1), log_sigmoid(-x.z_2))

    touches = zeta != 0

    def coordinates(log_size: Float[Array, " n"], sign: Float[Array, " n"]) -> tuple[Array, Array]:
        """sign exp(log_size) zeta, and the log of what each column was divided by."""
        size = jnp.where(touches, log_size[:, None], -jnp.inf)
        scale = _finite(jnp.max(size, axis=0)) if balanced else jnp.zeros(zeta.shape[1], zeta.dtype)
        return jnp.exp(size - scale[None, :]) * (sign[:, None] * zeta), scale

    def on_signal(log_size: Float[Array, " n"], sign: Float[Array, " n"]) -> tuple[Array, Array]:
        """The same for the signal's coordinate, which every sample touches."""
        scale = _finite(jnp.max(log_size)) if balanced else jnp.zeros((), zeta.dtype)
        return signal * sign * jnp.exp(log_size - scale), scale

    c1_zeta, scale_1 = coordinates(log_c1, sign)
    c2_zeta, scale_2 = coordinates(log_c2, sign)
    c1_mu, peak_1 = on_signal(log_c1, sign)
    c2_mu, peak_2 = on_signal(log_c2, sign)
    # Key gradients add both kinds: bring them to the larger scale.
    scale, peak = jnp.maximum(scale_1, scale_2), jnp.maximum(peak_1, peak_2)
    difference = x.k_mu[:, None] - x.k_xi
    own = jnp.outer(x.q_mu, jnp.sum(c1_zeta, axis=0) * jnp.exp(scale_1 - scale))
    other = (x.q_xi @ c2_zeta) * jnp.exp(scale_2 - scale)[None, :]
    return Weights(
        q_signal=difference @ c1_mu,
        q=difference @ c2_zeta,
        k_signal=x.q_mu * (jnp.sum(c1_mu) * jnp.exp(peak_1 - peak)) + x.q_xi @ c2_mu * jnp.exp(peak_2 - peak),
        k=-(own + other),
        v_signal=-jnp.sum(on_signal(log_on_signal, task.u)[0]) / task.preset.m_v,
        v=-jnp.sum(coordinates(log_on_noise, task.u)[0], axis=0) / task.preset.m_v,
    )


def _finite(x: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.where(jnp.isfinite(x), x, 0.0)


# ---------------------------------------------------------------- algorithm


def rule(p: Preset) -> optax.GradientTransformation:
    """The optimiser on every weight; v takes two rows' worth, frozen blocks none.

    Rows r of W_{V,1} and W_{V,-1} have opposite gradients and take opposite steps, so their
    difference v takes twice the step of one row.
    """
    factor = {block: 1.0 if block in p.train else 0.0 for block in "qk"} | {
        "v": 2.0 if "v" in p.train else 0.0
    }

    def scaled(updates: Any, _: Any) -> Any:
        return Weights(*[factor[name[0]] * x for name, x in updates._asdict().items()])

    own = optimizer(
        p.optimizer, p.eta, beta1=p.beta1, beta2=p.beta2, epsilon=p.epsilon, lam=p.lam,
        sparse=("q_signal", "q", "k_signal", "k"),
    )  # fmt: skip
    return optax.chain(own, optax.stateless(scaled))


def slope(p: Preset, task: Task, w: Weights) -> Weights:
    """The gradient, or for SignGD a positive multiple of it in each column."""
    if p.gradient == "plain" or p.attention != "softmax":
        g = jax.grad(loss)(w, task)
        return g._replace(v_signal=g.v_signal / p.m_v, v=g.v / p.m_v)
    return gradient(w, task, balanced=p.optimizer == "sign")


def dynamics(task: Task, p: Preset) -> Dynamics:
    """Full-batch training from the task's start."""
    objective = empirical(lambda w: loss(w, task), lambda w: slope(p, task, w))
    return descent(lambda key: task.start, objective, rule(p))


# ---------------------------------------------------------------- probes


def probes(p: Preset) -> dict[str, Probe]:
    """What is recorded: losses, inner products, softmax outputs, signs, and the share of lost ones."""
    dtype = float_dtype(p.precision)

    def on_train(measure, doc: str, *dims: str, dtype=None) -> Probe:
        return Probe(lambda task, p, state: measure(on_training(state.params, task)), doc, dims, dtype)

    def on_test(measure, doc: str) -> Probe:
        return Probe(
            lambda task, p, state: measure(
                forward(state.params, p.signal, task.zeta_test, task.frozen, p.attention)
            ),
            doc,
        )

    def on_gradient(measure, doc: str) -> Probe:
        return Probe(lambda task, p, state: measure(p, task, state.params), doc)

    def share(true):
        return jnp.mean(true, dtype=dtype)

    def agree(a, b):
        return share(jnp.sign(a) == jnp.sign(b))

    def turned(xi, q_mu):
        return agree(xi, jnp.broadcast_to(q_mu[:, None], xi.shape))

    def over_active(true, task: Task):
        touched = jnp.any(task.zeta != 0, axis=0)
        return jnp.mean(jnp.mean(true, axis=(0, 1), dtype=dtype), where=touched)

    def zeros(g: Weights, task: Task):
        return over_active(jnp.stack([g.q == 0, g.k == 0]), task)

    def lost(p: Preset, task: Task, w: Weights):
        plain, right = jax.grad(loss)(w, task), gradient(w, task, balanced=True)
        pairs = ((plain.q, right.q), (plain.k, right.k))
        return over_active(jnp.stack([jnp.sign(a) != jnp.sign(b) for a, b in pairs]), task)

    found = {
        "training_loss": on_gradient(lambda p, task, w: loss(w, task), "L_S, logistic loss of the n samples"),
        "log_training_loss": on_gradient(lambda p, task, w: log_loss(w, task), "log L_S"),
        "test_loss": on_test(lambda x: jnp.mean(softplus(-x.margin)), "L_D, logistic loss on fresh samples"),
        "test_error": on_test(lambda x: share(x.margin <= 0), "0-1 loss on fresh samples"),
        "value_signal": on_train(lambda x: x.alpha, "<v, mu>"),
        "value_noise": on_train(lambda x: x.beta, "<v, y_i xi_i>", "sample"),
        "query_signal": on_train(lambda x: x.q_mu, "<w_{Q,s}, mu>", "neuron"),
        "key_signal": on_train(lambda x: x.k_mu, "<w_{K,s}, mu>", "neuron"),
        "noise_alignment": on_train(
            lambda x: agree(x.q_xi, x.k_xi), "share of (s, i) whose query and key noise agree in sign"
        ),
        "positive_share": on_train(lambda x: share(x.q_xi > 0), "share of (s, i) with positive query noise"),
        "key_turned": on_train(
            lambda x: turned(x.k_xi, x.q_mu), "share of (s, i) whose key noise has the query signal's sign"
        ),
        "query_turned": on_train(
            lambda x: turned(x.q_xi, x.q_mu), "share of (s, i) whose query noise has the query signal's sign"
        ),
        "signals_oppose": on_train(
            lambda x: agree(x.q_mu, -x.k_mu), "share of neurons with opposite query and key signal"
        ),
    }
    if p.attention == "softmax":
        found |= {
            "log_softmax_11": on_train(lambda x: log_sigmoid(x.z_1), "log s_{i,11}", "sample"),
            "log_softmax_21": on_train(lambda x: log_sigmoid(x.z_2), "log s_{i,21}", "sample"),
            "zero_share": on_gradient(
                lambda p, task, w: zeros(slope(p, task, w), task),
                "share of exact zeros in the query and key gradient, over the coordinates that move",
            ),
            "plain_zero_share": on_gradient(
                lambda p, task, w: zeros(jax.grad(loss)(w, task), task),
                "the same share for autodiff of the plain loss",
            ),
            "plain_wrong_share": on_gradient(
                lost, "share of signs that autodiff of the plain loss gets wrong"
            ),
        }
    if p.detail:
        pair = ("neuron", "sample")
        found["query_noise"] = on_train(lambda x: x.q_xi, "<w_{Q,s}, y_i xi_i>", *pair, dtype=np.float32)
        found["key_noise"] = on_train(lambda x: x.k_xi, "<w_{K,s}, y_i xi_i>", *pair, dtype=np.float32)
    return found


# ---------------------------------------------------------------- the paper

DEVIATIONS = (
    Deviation(
        "stage times",
        "The powers that the study stage_times judges are ours, and so is the direction in which it lists "
        "each size: towards the regime of the derivation, set after a first look. With sigma_p listed the "
        "other way, towards a strong signal, the alignment time's power in sigma_p is refuted.",
    ),
    Deviation(
        "sizes",
        "The paper's figure values are not known to us; the presets use sizes at which all four stages show.",
    ),
    Deviation(
        "two readings",
        "The slide's majority vote sums over neurons with a dangling i; the gradient sums over samples. "
        "Both are judged.",
    ),
    Deviation(
        "GD's step",
        "It is not known, and a larger step alone makes GD or SignGD faster at any fixed time: within the "
        "slides' horizon GD with step 100 is ahead of SignGD for most of the run, and with step 1000 it fits "
        "the data in a few steps. So laws and equal training losses are compared, for every step of GD from "
        "0.1 to 100; the verdict's notes give the times.",
    ),
    Deviation(
        "Adam's epsilon",
        "Adam runs with epsilon = 1e-15. Late query gradients fall below it; with betas near 0 that alone "
        "stops them.",
    ),
    Deviation(
        "horizon",
        "Exponents of late times are read at ten times the slides' horizon, a factor chosen after they were "
        "seen to drift too much to decide at the horizon itself.",
    ),
    Deviation(
        "readings",
        "Some slides can be read in several ways. The majority vote is judged on every step, not on the net "
        "move of stage III, where it is less clear; the law of s_21 on odds and in three windows; the end of "
        "stage III by the run's own clock.",
    ),
    Deviation(
        "noisy MNIST",
        "The paper's sizes are not known. Here two classes (0 and 1), digits of norm 1 beside Gaussian "
        "patches of norm 1 to 8, all compared when each first has training loss 0.05; GD has step 10.",
    ),
    Deviation("test loss", "L_D is estimated from fresh samples drawn once per seed."),
)

CLAIMS = claims.CLAIMS + studies.CLAIMS + mnist.CLAIMS
FIGURES = figures.FIGURES + studies.FIGURES + mnist.FIGURES
STUDIES = studies.STUDIES
BRANCHES = (mnist,)
ALONG_WITH = {"quick": ("mnist_small",)}
PAPER = About(
    title="On the Optimization and Generalization of Two-layer Transformers with Sign Gradient Descent",
    citation="Li, Huang, Han, Zhou, Suzuki, Zhu, Chen (ICLR 2025)",
    loss="training_loss",
)
