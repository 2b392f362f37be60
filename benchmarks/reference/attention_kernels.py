"""`attention_kernels` in PyTorch: the theory problem, and the two-layer transformer.

The theory problem is one layer of multi-head attention on all data, MH(X_i) = sum_h S_ih X_i W_h^V W_h^O, by
gradient descent on 1/2 sum_i |MH(X_i) - y_i|^2. The transformer classifies sequences of pixels or patches;
`fused` is torch's own scaled_dot_product_attention.
"""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, gelu, layer_norm, linear, scaled_dot_product_attention
from training import Training


def attended(q: Tensor, k: Tensor, v: Tensor, kernel: str) -> Tensor:
    """S v with S = softmax(q k' / sqrt(d)) by rows, or exp(-|q - k|^2 / (2 sqrt(d)))."""
    if kernel == "fused":
        return scaled_dot_product_attention(q, k, v)
    C = q @ k.transpose(-1, -2)
    if kernel == "gaussian":
        C = C - 0.5 * ((q**2).sum(-1)[..., :, None] + (k**2).sum(-1)[..., None, :])
    C = C / math.sqrt(q.shape[-1])
    return (torch.exp(C) if kernel == "gaussian" else torch.softmax(C, dim=-1)) @ v


# ---------------------------------------------------------------- the theory problem


class Theory(Training):
    """Data, W^O, and W^Q, W^K, W^V of all heads, (H, D, d) each."""

    def __init__(self, instance: dict[str, np.ndarray], variant: str) -> None:
        self.X, self.y, self.W_O = (torch.tensor(instance[name]) for name in ("X", "y", "W_O"))
        self.start = [torch.tensor(instance[name]) for name in "QKV"]
        self.rate, self.kernel = float(instance["rate"]), str(instance["kernel"])

    def begin(self) -> None:
        self.params = tuple(w.clone().requires_grad_() for w in self.start)
        # Of lengths and squares. A compiled update leaves tensors without axes alone.
        self.sums = torch.zeros(2)

    def heads(self, W: Tensor) -> Tensor:
        """(N, H, n, d)."""
        return torch.einsum("ikD,hDd->ihkd", self.X, W)

    def outputs(self, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
        """MH(X_i), (N, n)."""
        values = torch.einsum("ijD,hDd,hd->ihj", self.X, V, self.W_O)
        return attended(self.heads(Q), self.heads(K), values[..., None], self.kernel)[..., 0].sum(1)

    def loss(self, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
        return 0.5 * ((self.outputs(Q, K, V) - self.y) ** 2).sum()

    def update(self, *args: Tensor) -> None:
        square = sum((g**2).sum() for g in args[3:])
        self.sums.add_(self.rate * torch.stack([torch.sqrt(square), square]))
        for w, g in zip(args[:3], args[3:], strict=True):
            w.sub_(g, alpha=self.rate)

    def observe(self) -> dict[str, Tensor]:
        Q, K, V = self.params
        with torch.enable_grad():
            loss = self.loss(Q, K, V)
            gradients = torch.autograd.grad(loss, self.params)
        tokens = self.X[:, None].expand(-1, len(Q), -1, -1)
        B = (
            attended(self.heads(Q), self.heads(K), tokens, self.kernel)
            .transpose(1, 2)
            .reshape(self.y.numel(), -1)
        )
        J = torch.func.jacrev(lambda Q: self.outputs(Q, K, V).reshape(-1))(Q).reshape(self.y.numel(), -1)
        sizes = (self.W_O**2).sum(1)
        return {
            "loss": loss.detach(),
            "gradient": torch.stack([g.norm() for g in gradients]),
            "moved": torch.stack(
                [(w - start).norm() for w, start in zip(self.params, self.start, strict=True)]
            ),
            "length": self.sums[0].clone(),
            "energy": self.sums[1].clone(),
            "beta": torch.stack([sizes.min(), sizes.sum()]) * torch.linalg.svdvals(B)[-1] ** 2,
            "gamma": (torch.linalg.svdvals(J)[-1] ** 2).detach(),
        }


# ---------------------------------------------------------------- the transformer


class Transformer(Training):
    """Two layers of attention and a small network, each behind a LayerNorm and beside a shortcut; Adam."""

    def __init__(self, instance: dict[str, np.ndarray], variant: str) -> None:
        self.start = {
            name.removeprefix("w."): torch.tensor(x) for name, x in instance.items() if name[:2] == "w."
        }
        self.names = list(self.start)
        self.patch, self.layers, self.size = (int(instance[name]) for name in ("patch", "layers", "batch"))
        self.kernel = "fused" if variant == "fused" else str(instance["kernel"])
        self.eta, self.warmup, self.horizon = (float(instance[name]) for name in ("eta", "warmup", "horizon"))
        self.examples, self.labels = (self.inputs(instance, name) for name in ("train", "train_labels"))
        self.test, self.test_labels = (self.inputs(instance, name) for name in ("test", "test_labels"))
        self.seen = torch.tensor(instance["seen"]).long()
        self.chosen = torch.tensor(instance["chosen"]).long()

    def inputs(self, instance: dict[str, np.ndarray], name: str) -> Tensor:
        """Labels, grey levels as tokens, or patches of levels in [0, 1]."""
        found = torch.tensor(instance[name])
        if name.endswith("labels"):
            return found.long()
        return found[..., 0].long() if self.patch == 1 else found.to(torch.float32) / 255

    def begin(self) -> None:
        self.params = tuple(w.clone().requires_grad_() for w in self.start.values())
        self.adam = torch.optim.Adam(self.params, lr=self.eta, betas=(0.9, 0.999), eps=1e-6)
        self.done = 0

    def logits(self, x: Tensor, params: tuple[Tensor, ...]) -> Tensor:
        """The logits of a batch."""
        w = dict(zip(self.names, params, strict=True))
        D = w["embedding"].shape[1]

        def normed(x: Tensor, name: str) -> Tensor:
            return layer_norm(x, (D,), w[f"{name}.weight"], w[f"{name}.bias"])

        def dense(x: Tensor, name: str) -> Tensor:
            return linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

        def heads(z: Tensor, W: Tensor) -> Tensor:
            H, _, d = W.shape
            return (z @ W.transpose(0, 1).reshape(D, H * d)).unflatten(-1, (H, d)).transpose(1, 2)

        x = w["embedding"][x] if self.patch == 1 else x @ (50.0 * w["embedding"])
        x = x + w["positions"]
        for i in range(self.layers):
            at = f"layers.{i}"
            z = normed(x, f"{at}.before_attention")
            q, k, v = (heads(z, w[f"{at}.W_{letter}"]) for letter in "QKV")
            mixed = attended(q, k, v, self.kernel).transpose(1, 2).flatten(2)
            x = x + mixed @ w[f"{at}.W_O"].reshape(-1, D)
            z = normed(x, f"{at}.before_network")
            x = x + dense(gelu(dense(z, f"{at}.inner"), approximate="tanh"), f"{at}.outer")
        pooled = normed(x, "after").mean(1)
        return dense(gelu(dense(pooled, "hidden"), approximate="tanh"), "head")

    def batch(self, step: int) -> tuple[Tensor, ...]:
        chosen = self.chosen[step] if self.given else torch.randint(len(self.examples), (self.size,))
        return self.examples[chosen], self.labels[chosen]

    def loss(self, *args: Tensor) -> Tensor:
        *params, x, labels = args
        return cross_entropy(self.logits(x, tuple(params)), labels)

    def update(self, *args: Tensor) -> None:
        """Adam with clipped gradients, a linear warm-up and a linear decay."""
        for w, g in zip(self.params, args[len(self.params) :], strict=True):
            w.grad = g.clamp(-1, 1)
        up = (self.done + 1) / max(self.warmup, 1.0)
        down = (self.horizon - self.done) / max(self.horizon - self.warmup, 1.0)
        self.adam.param_groups[0]["lr"] = self.eta * min(1.0, up, down)
        self.adam.step()
        self.done += 1

    def compile(self) -> None:
        self.loss = torch.compile(self.loss)

    def observe(self) -> dict[str, float]:
        train, test = (self.examples[self.seen], self.labels[self.seen]), (self.test, self.test_labels)
        return {
            "training_loss": cross_entropy(self.logits(train[0], self.params), train[1]).item(),
            "test_loss": cross_entropy(self.logits(test[0], self.params), test[1]).item(),
        }


TRAININGS = {"theory": Theory, "transformer": Transformer}
