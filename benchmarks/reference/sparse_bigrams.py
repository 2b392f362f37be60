"""`sparse_bigrams` in PyTorch: linear attention V X A e_k by preconditioned, projected SGD.

`online` trains on one-hot batches X (batch, N, T) by autograd. `simulated` takes the expected gradient plus
Gaussian noise of the minibatch covariance, then a proximal step; A is (N, T) there, a row a trigger.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot
from training import Training


def inner(X: Tensor, Y: Tensor, mu: Tensor) -> Tensor:
    """<X, Y>_mu, columns weighted by mu."""
    return (mu * X * Y).sum()


class Truth(Training):
    """A ground truth, V = mu1', A = 11'/T, and what is recorded of them."""

    def __init__(self, instance: dict[str, np.ndarray], variant: str) -> None:
        self.mu, self.P = torch.tensor(instance["mu"]), torch.tensor(instance["P"])
        self.eta, self.level = float(instance["eta"]), float(instance["level"])
        self.T = int(instance["T"])
        N = len(self.mu)
        self.positions, self.weights = (
            torch.tensor(instance["positions"]).long(),
            torch.tensor(instance["weights"]),
        )
        self.Q = torch.zeros(N, self.T).scatter_add_(1, self.positions, self.weights).T.contiguous()

    def begin(self) -> None:
        N = len(self.mu)
        self.V = self.mu[:, None].repeat(1, N).requires_grad_()
        self.A = torch.full((self.T, N), 1 / self.T).requires_grad_()
        self.params = (self.V, self.A)

    def observe(self) -> dict[str, float]:
        mu, P, Q = self.mu, self.P, self.Q
        V, A = self.params
        base, flat = mu[:, None], 1 / self.T
        a_V = inner(V - base, P - base, mu) / inner(P - base, P - base, mu)
        a_A = inner(A - flat, Q - flat, mu) / inner(Q - flat, Q - flat, mu)
        off_V, off_A = V - base - a_V * (P - base), A - flat - a_A * (Q - flat)
        S = torch.diag(mu) - torch.outer(mu, mu)

        def loss(V: Tensor, A: Tensor) -> Tensor:
            return inner(A, A, mu) * torch.trace(V @ S @ V.T) / 2 - inner(Q, A, mu) * (V * (P @ S)).sum()

        return {
            "excess_loss": (loss(V, A) - loss(P, Q)).item(),
            "a_V": a_V.item(),
            "a_A": a_A.item(),
            "Delta_V": inner(off_V, off_V, mu).sqrt().item(),
            "Delta_A": inner(off_A, off_A, mu).sqrt().item(),
        }


class Online(Truth):
    """Fresh batches, or given ones."""

    def __init__(self, instance: dict[str, np.ndarray], variant: str) -> None:
        super().__init__(instance, variant)
        self.size = int(instance["batch"])
        self.batches = [torch.tensor(instance[name].astype(np.int64)) for name in "xko"]

    def batch(self, step: int) -> tuple[Tensor, ...]:
        """Tokens, triggers and next tokens."""
        if self.given:
            return tuple(part[step] for part in self.batches)
        x = torch.multinomial(self.mu, self.size * self.T, replacement=True).view(self.size, self.T)
        k = torch.multinomial(self.mu, self.size, replacement=True)
        t = torch.multinomial(self.Q.T[k], 1)
        return x, k, torch.multinomial(self.P.T[x.gather(1, t)[:, 0]], 1)[:, 0]

    def loss(self, V: Tensor, A: Tensor, x: Tensor, k: Tensor, o: Tensor) -> Tensor:
        N = len(self.mu)
        X = one_hot(x, N).to(V.dtype).transpose(1, 2)
        a = A @ one_hot(k, N).to(V.dtype).T
        out = (X @ a.T[:, :, None])[:, :, 0] @ V.T
        return 0.5 * ((one_hot(o, N).to(out.dtype) - out) ** 2).sum(1).mean()

    def update(self, V: Tensor, A: Tensor, to_V: Tensor, to_A: Tensor) -> None:
        to_V, to_A = to_V / self.mu, to_A / self.mu
        to_V = to_V - to_V.mean(0, keepdim=True)
        to_V = to_V - (to_V @ self.mu)[:, None]
        V -= self.eta * to_V
        A -= self.eta * (to_A - to_A.mean(0, keepdim=True))


class Simulated(Truth):
    """The expected gradient plus noise, then a proximal step; A and its gradient are (N, T)."""

    def __init__(self, instance: dict[str, np.ndarray], variant: str) -> None:
        super().__init__(instance, variant)
        self.root, self.error = torch.tensor(instance["root"]), float(instance["batch"]) ** -0.5
        self.lam = float(instance["lam"])
        self.drawn = [torch.tensor(instance[name]) for name in ("triggers", "values", "entries")]

    def begin(self) -> None:
        N = len(self.mu)
        base = self.mu[:, None].repeat(1, N)
        self.V = base + self.level * (self.P - base)
        self.own = torch.full((N, self.T), (1 - self.level) / self.T)
        self.own.scatter_add_(1, self.positions, self.level * self.weights)

    def observe(self) -> dict[str, float]:
        self.params = (self.V, self.own.T)
        return super().observe()

    def batch(self, step: int) -> tuple[Tensor, ...]:
        """White noise for triggers, for V and for A."""
        if self.given:
            return tuple(part[step] for part in self.drawn)
        N = len(self.mu)
        return torch.randn(1, N), torch.randn(3 * N, N), torch.randn(N, self.T)

    def moved(self, V: Tensor, A: Tensor, of_k: Tensor, of_V: Tensor, of_A: Tensor) -> tuple[Tensor, Tensor]:
        """V and A after a step."""
        mu, P, base = self.mu, self.P, self.mu[:, None]
        b, c = (A**2).sum(1), (self.weights * A.gather(1, self.positions)).sum(1)
        side = mu.sqrt()

        def centred(z: Tensor) -> Tensor:
            return z / side - (z @ side)[:, None]

        mean = V @ mu
        VS = V * mu - torch.outer(mean, mu)
        S, VP, VV = torch.diag(mu) - torch.outer(mu, mu), VS @ P.T, VS @ V.T
        seen = 1 + centred(of_k)[0] * self.error
        to_V = (mu * seen * b).sum() * (V - base) - (mu * seen * c).sum() * (P - base)
        f, g, h = (mu * b).sum(), (mu * b * c).sum(), (mu * b * b).sum()
        half = torch.diag(side) - torch.outer(mu, side)
        rest = (f - g**2 / h).clamp(min=0).sqrt()
        root = torch.cat([f.sqrt() * self.root, rest * P @ half, h.sqrt() * (g / h * P - V) @ half], dim=1)
        to_V = to_V + root @ centred(of_V) * self.error
        variance = ((VV * S).sum() - 2 * c * (VV * VP).sum() + b * (VV * VV).sum()).clamp(min=0)
        deviation = self.error * (variance / mu).sqrt()
        along, across = (V * P * mu).sum() - (mean * (P @ mu)).sum(), (V * V * mu).sum() - (mean * mean).sum()
        noise = of_A - of_A.mean(1, keepdim=True)
        to_A = (seen * across)[:, None] * (A - 1 / self.T) + (seen * along)[:, None] / self.T
        to_A = to_A + deviation[:, None] * noise
        to_A = to_A.scatter_add(1, self.positions, -(seen * along)[:, None] * self.weights)
        A = A - self.eta * to_A
        A = A.sign() * (A.abs() - self.eta * self.lam).clamp(min=0)
        return V - self.eta * to_V, A + (1 - A.sum(1, keepdim=True)) / self.T

    def step(self, step: int) -> None:
        with torch.no_grad():
            self.V, self.own = self.moved(self.V, self.own, *self.batch(step))

    def compile(self) -> None:
        self.moved = torch.compile(self.moved)


TRAININGS = {"online": Online, "simulated": Simulated}
