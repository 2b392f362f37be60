"""The two-layer transformer of `sign_descent`, as an author would write it in PyTorch.

    F_j(W, X) = (1/m_v) sum_l 1' W_{V,j} X softmax(X' W_K' W_Q x_l),   f = F_1 - F_{-1},

with full parameters, autograd, and the logistic loss of all samples, by SignGD or GD.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax, logsigmoid, softmax
from training import Training


def attention_scores(W_Q: Tensor, W_K: Tensor, X: Tensor) -> Tensor:
    """[i, l, a]: how much query l of sample i looks at key a, before the softmax."""
    return (X @ W_Q.T) @ (X @ W_K.T).transpose(1, 2)


def predict(W_Q: Tensor, W_K: Tensor, W_V: Tensor, X: Tensor) -> Tensor:
    """f(W, X) for every sample."""
    attention = softmax(attention_scores(W_Q, W_K, X), dim=-1)
    # The read-out 1'/m_v comes first, as in the formula: half the multiplications of projecting on every row.
    values = X @ W_V.mean(1).T
    F = (attention @ values).sum(1)
    return F[:, 0] - F[:, 1]


def logistic_loss(margin: Tensor) -> Tensor:
    """mean_i log(1 + exp(-y_i f_i))."""
    return -logsigmoid(margin).mean()


class SignDescent(Training):
    """Training and test samples as (n, 2, d) tensors with labels +-1, and W_Q, W_K, W_V."""

    def __init__(self, instance: dict[str, np.ndarray], variant: str) -> None:
        self.eta, self.sign, signal = (float(instance[name]) for name in ("eta", "sign", "signal"))
        self.start = [torch.tensor(instance[name]) for name in ("W_Q", "W_K", "W_V")]
        d = self.start[0].shape[1]
        self.mu = torch.zeros(d)
        self.mu[0] = signal

        def samples(part: str) -> tuple[Tensor, Tensor]:
            y, noise = torch.tensor(instance[f"{part}_y"]), torch.tensor(instance[f"{part}_noise"])
            return torch.stack([y[:, None] * self.mu, noise], dim=1), y

        (self.X, self.y), (self.X_test, self.y_test) = samples("train"), samples("test")

    def begin(self) -> None:
        self.params = tuple(w.clone().requires_grad_() for w in self.start)

    def loss(self, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
        return logistic_loss(self.y * predict(W_Q, W_K, W_V, self.X))

    def update(self, *args: Tensor) -> None:
        for w, g in zip(args[:3], args[3:], strict=True):
            w.sub_(g.sign() if self.sign else g, alpha=self.eta)

    def observe(self) -> dict[str, Tensor]:
        W_Q, W_K, W_V = self.params
        zeta = self.y[:, None] * self.X[:, 1]
        v = (W_V[0] - W_V[1]).mean(0)
        q_mu, k_mu, q_xi, k_xi = W_Q @ self.mu, W_K @ self.mu, W_Q @ zeta.T, W_K @ zeta.T
        log_attention = log_softmax(attention_scores(W_Q, W_K, self.X), dim=-1)
        margin = self.y * predict(W_Q, W_K, W_V, self.X)
        test_margin = self.y_test * predict(W_Q, W_K, W_V, self.X_test)

        def share(true: Tensor) -> Tensor:
            return true.to(margin.dtype).mean()

        def agree(a: Tensor, b: Tensor) -> Tensor:
            return share(a.sign() == b.sign())

        return {
            "training_loss": logistic_loss(margin),
            "test_loss": logistic_loss(test_margin),
            "test_error": share(test_margin <= 0),
            "value_signal": v @ self.mu,
            "value_noise": zeta @ v,
            "query_signal": q_mu,
            "key_signal": k_mu,
            "log_softmax_11": log_attention[:, 0, 0],
            "log_softmax_21": log_attention[:, 1, 0],
            "noise_alignment": agree(q_xi, k_xi),
            "positive_share": share(q_xi > 0),
            "key_turned": agree(k_xi, q_mu[:, None]),
            "query_turned": agree(q_xi, q_mu[:, None]),
            "signals_oppose": agree(q_mu, -k_mu),
            "query_noise": q_xi.to(torch.float32),
            "key_noise": k_xi.to(torch.float32),
        }


TRAININGS = {"": SignDescent}
