"""`bilinear_teachers` in PyTorch: relu(W_V X softmax(A / sqrt(D))), A standing for P' W_KQ P.

`population` trains on the closed form of the expected loss by autograd, `online` on Gaussian batches.
"""

import math

import numpy as np
import torch
from torch import Tensor
from training import Training


def attention(A: Tensor) -> Tensor:
    """S, by columns."""
    return torch.softmax(A / math.sqrt(A.shape[0]), dim=0)


def population_loss(W: Tensor, A: Tensor, V: Tensor, S_star: Tensor) -> Tensor:
    """(1/2) sum_mj E (relu(z) - relu(y))^2, the arc-cosine kernel."""
    S = attention(A)
    a = W.norm(dim=1)[:, None] * S.norm(dim=0)[None, :]
    b = V.norm(dim=1)[:, None] * S_star.norm(dim=0)[None, :]
    c = (W * V).sum(1)[:, None] * (S * S_star).sum(0)[None, :]
    # On the line of training the correlation tends to one, where the derivative of arcsin is infinite.
    edge = 1 - 4 * torch.finfo(W.dtype).eps
    rho = (c / (a * b)).clamp(-edge, edge)
    cross = 0.25 * c + (0.5 / math.pi) * (a * b * torch.sqrt(1 - rho**2) + c * torch.asin(rho))
    return 0.5 * (0.5 * (a**2 + b**2) - 2 * cross).sum()


class Population(Training):
    """A teacher, the student's weights, and plain gradient descent on the expected loss."""

    def __init__(self, instance: dict[str, np.ndarray], variant: str) -> None:
        self.V, self.S_star = torch.tensor(instance["V"]), torch.tensor(instance["S"])
        self.start = [torch.tensor(instance[name]) for name in ("W_V", "A")]
        self.eta = float(instance["eta"])

    def begin(self) -> None:
        self.params = tuple(w.clone().requires_grad_() for w in self.start)

    def loss(self, W: Tensor, A: Tensor) -> Tensor:
        return population_loss(W, A, self.V, self.S_star)

    def update(self, W: Tensor, A: Tensor, to_W: Tensor, to_A: Tensor) -> None:
        W.sub_(to_W, alpha=self.eta)
        A.sub_(to_A, alpha=self.eta)

    def observe(self) -> dict[str, float]:
        (W, A), V = self.params, self.V
        return {
            "excess_loss": population_loss(W, A, V, self.S_star).item(),
            "attention_error": (attention(A) - self.S_star).norm().item(),
            "value_error": (W - V).norm().item(),
            "value_cosine": ((W * V).sum() / (W.norm() * V.norm())).item(),
        }


class Online(Population):
    """The same on fresh batches, or on given ones."""

    def __init__(self, instance: dict[str, np.ndarray], variant: str) -> None:
        super().__init__(instance, variant)
        self.noise, self.size = float(instance["noise"]), int(instance["batch"])
        self.batches = torch.tensor(instance["X"]), torch.tensor(instance["Y"])

    def batch(self, step: int) -> tuple[Tensor, ...]:
        if self.given:
            return tuple(part[step - 1] for part in self.batches)
        X = torch.randn(self.size, self.V.shape[1], self.S_star.shape[0])
        Y = torch.relu(self.V @ X @ self.S_star)
        return X, Y + self.noise * torch.randn_like(Y)

    def loss(self, W: Tensor, A: Tensor, X: Tensor, Y: Tensor) -> Tensor:
        """(1/2) mean over the batch of |Y - relu(W X S)|^2; X is (batch, d, D)."""
        return 0.5 * ((Y - torch.relu(W @ X @ attention(A))) ** 2).sum() / X.shape[0]


class Cells(Population):
    """Cells of a sweep, one after another."""

    def __init__(self, instance: dict[str, np.ndarray], variant: str) -> None:
        self.instance, self.variant = instance, variant
        self.runs = len(instance["eta"])
        self.own = torch.compile(population_loss) if variant == "compiled" else population_loss

    def loss(self, W: Tensor, A: Tensor) -> Tensor:
        return self.own(W, A, self.V, self.S_star)

    def compile(self) -> None:
        """The loss is one function for all cells: it is compiled once, as it is made."""

    def run(self, record: np.ndarray, given: bool = False) -> dict[str, np.ndarray]:
        """The records of every cell, a column each."""
        found = []
        for cell in range(self.runs):
            super().__init__(
                {name: x[cell] for name, x in self.instance.items() if name not in STEPS}, self.variant
            )
            found.append(super().run(record, given))
        return {name: np.stack([one[name] for one in found], axis=1) for name in found[0]}


STEPS = ("record", "checked")
TRAININGS = {"population": Population, "online": Online, "sweep": Cells}
