"""The exact population flow of `decision_lists` in PyTorch: all of W, V = cP, every sequence of the law.

    f(X) = softmax(V X softmax(X' W X)),   dW/dt = -grad of the expected cross-entropy,

by autograd and an adaptive Runge-Kutta method of order 5 (Dormand and Prince) from record to record, until
every sequence is classified right. What a query sees is how often each token occurs, so the expectation is a
sum over a table of counts.
"""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from training import Training

# The tableau of Dormand and Prince; the last row of stages is the solution itself.
STAGES = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
RTOL, ATOL = 1e-6, 1e-10


class Flow(Training):
    """The table of counts around every query with its labels, and W."""

    def __init__(self, instance: dict[str, np.ndarray], variant: str) -> None:
        self.counts, self.weights = torch.tensor(instance["counts"]), torch.tensor(instance["weights"])
        self.truth, self.V = torch.tensor(instance["truth"]).long(), torch.tensor(instance["V"])
        self.eta = float(instance["eta"])
        L = len(self.V)
        self.around = (torch.arange(L)[:, None] + torch.arange(L)[None, :]) % L
        self.queries = torch.arange(L)

    def begin(self) -> None:
        self.W = torch.zeros_like(self.V)
        self.stride, self.hit = self.eta, -1.0

    def loss(self, W: Tensor) -> Tensor:
        """Cross-entropy over queries a and rows s of the table."""
        logits = self.logits(W)
        right = logits.gather(2, self.truth[:, :, None])[:, :, 0]
        return (self.weights * (torch.logsumexp(logits, 2) - right)).sum()

    def logits(self, W: Tensor) -> Tensor:
        """[a, s, k]: the logit of label k for query a in row s."""
        scores = W[self.around, self.queries[:, None]]
        seen = self.counts[None] * torch.exp(scores - scores.max(1, keepdim=True).values)[:, None, :]
        attention = seen / seen.sum(2, keepdim=True)
        return torch.einsum("asr,kar->ask", attention, self.V[:, self.around])

    def slope(self, W: Tensor) -> Tensor:
        """-grad."""
        W = W.detach().requires_grad_()
        return -torch.autograd.grad(self.loss(W), W)[0]

    def solved(self, W: Tensor, span: float, stride: float) -> tuple[Tensor, float]:
        """W after a time `span`, and the last stride that was not cut short."""
        at, first = 0.0, self.slope(W)
        while at < span:
            h = min(stride, span - at)
            slopes = [first]
            for row in STAGES[1:]:
                there = W + h * sum(a * k for a, k in zip(row, slopes, strict=True))
                slopes.append(self.slope(there))
            error = h * sum(e * k for e, k in zip(ERROR, slopes, strict=True))
            size = ATOL + RTOL * torch.maximum(W.abs(), there.abs())
            ratio = float((error / size).square().mean().sqrt())
            if ratio <= 1:
                W, first, at = there, slopes[-1], at + h
            factor = min(4.0, max(0.2, 0.9 * max(ratio, 1e-10) ** -0.2))
            if ratio > 1 or h == stride:
                stride = h * factor
        return W, stride

    def error(self, W: Tensor) -> Tensor:
        """The probability that a query is misclassified; a tie is."""
        logits = self.logits(W)
        right = logits.gather(2, self.truth[:, :, None])
        rival = logits.scatter(2, self.truth[:, :, None], -torch.inf).max(2, keepdim=True).values
        return torch.where((right > rival)[:, :, 0], 0.0, self.weights).sum()

    def certified(self, W: Tensor) -> bool:
        """Whether every sequence is classified right: the table has them all."""
        return float(self.error(W)) == 0

    def run(self, record: np.ndarray, given: bool = False) -> dict[str, np.ndarray]:
        """From record to record; the flow ends where everything is right, found by halving."""
        self.begin()
        rows = [self.observe()]
        for first, last in pairwise(record):
            if self.hit < 0:
                begin, end = self.eta * float(first), self.eta * float(last)
                W, stride = self.solved(self.W, end - begin, self.stride)
                if self.certified(W):
                    low, high, at_low = begin, end, self.W
                    while high - low > RTOL * high:
                        middle = (low + high) / 2
                        there, _ = self.solved(at_low, middle - low, stride)
                        if self.certified(there):
                            high, W = middle, there
                        else:
                            low, at_low = middle, there
                    self.hit = high / self.eta
                self.W, self.stride = W, stride
            rows.append(self.observe())
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def observe(self) -> dict[str, np.ndarray]:
        with torch.no_grad():
            found = {"loss": float(self.loss(self.W)), "error": float(self.error(self.W)), "hit": self.hit}
        return {name: np.asarray(value) for name, value in found.items()}

    def compile(self) -> None:
        self.loss = torch.compile(self.loss)


TRAININGS = {"": Flow}
