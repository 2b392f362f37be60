"""`bilinear_teachers` in PyTorch, eager, as an author would write it.

The student is relu(W_V X softmax(A / sqrt(D))), A standing for P' W_KQ P. `population` trains on the closed
form of the expected loss by autograd, `online` on fresh Gaussian batches, or on given ones. Nothing here
knows of the laboratory: the teacher and the weights after the first step come from an .npz.
"""

import argparse
import json
import math
import resource
import time

import numpy as np
import torch
from torch import Tensor


def attention(A: Tensor) -> Tensor:
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


def batch_loss(W: Tensor, A: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    """(1/2) mean over the batch of |Y - relu(W X S)|^2; X is (batch, d, D)."""
    return 0.5 * ((Y - torch.relu(W @ X @ attention(A))) ** 2).sum() / X.shape[0]


class Training:
    """A teacher, a student, and plain SGD on one of the losses."""

    def __init__(self, file, algorithm: str, given: bool, dtype: torch.dtype):
        self.V, self.S_star, W, A = (torch.tensor(file[name], dtype=dtype) for name in ("V", "S", "W_V", "A"))
        self.W, self.A = W.requires_grad_(), A.requires_grad_()
        self.start = [w.detach().clone() for w in (self.W, self.A)]
        self.noise, self.batch = float(file["noise"]), int(file["batch"])
        self.given = tuple(torch.tensor(file[name], dtype=dtype) for name in "XY") if given else None
        self.algorithm = algorithm
        self.optimizer = torch.optim.SGD([self.W, self.A], lr=float(file["eta"]))

    def sample(self, step: int) -> tuple[Tensor, Tensor]:
        """A fresh batch, or the given one of that step."""
        if self.given is not None:
            return self.given[0][step - 1], self.given[1][step - 1]
        X = torch.randn(self.batch, self.V.shape[1], self.A.shape[0], dtype=self.V.dtype)
        Y = torch.relu(self.V @ X @ self.S_star)
        return X, Y + self.noise * torch.randn_like(Y)

    def step(self, step: int) -> None:
        """One step of SGD."""
        if self.algorithm == "population":
            loss = population_loss(self.W, self.A, self.V, self.S_star)
        else:
            loss = batch_loss(self.W, self.A, *self.sample(step))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    @torch.no_grad()
    def observe(self) -> dict[str, float]:
        """The probes."""
        W, V = self.W, self.V
        return {
            "excess_loss": population_loss(W, self.A, V, self.S_star).item(),
            "attention_error": (attention(self.A) - self.S_star).norm().item(),
            "value_error": (W - V).norm().item(),
            "value_cosine": ((W * V).sum() / (W.norm() * V.norm())).item(),
        }

    def choose_threads(self) -> None:
        """Keeps the faster of one thread and all, then starts afresh: products are small here."""
        took = {}
        for threads in (torch.get_num_threads(), 1):
            torch.set_num_threads(threads)
            for step in range(1, 41):
                if step == 11:  # warm by now
                    began = time.perf_counter()
                self.step(step)
            took[threads] = time.perf_counter() - began
        torch.set_num_threads(min(took, key=lambda threads: took[threads]))
        with torch.no_grad():
            for w, start in zip((self.W, self.A), self.start, strict=True):
                w.copy_(start)

    def run(self, record: list[int]) -> list[dict[str, float]]:
        """The records, from step 1, which the start stands for, to the last."""
        wanted, rows = set(record), []
        for step in range(1, record[-1] + 1):
            if step in wanted:
                rows.append(self.observe())
            if step < record[-1]:
                self.step(step)
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instance", required=True, help="teacher, weights after a step, batches (.npz)")
    parser.add_argument("--algorithm", choices=("population", "online"), required=True)
    parser.add_argument("--record", required=True, help="recorded steps with commas; the last ends the run")
    parser.add_argument("--precision", type=int, choices=(32, 64), default=64)
    parser.add_argument("--given", action="store_true", help="train on the batches of the instance")
    parser.add_argument("--out", help="where the records go (.npz)")
    args = parser.parse_args()

    with np.load(args.instance) as file:
        dtype = {32: torch.float32, 64: torch.float64}[args.precision]
        training = Training(file, args.algorithm, args.given, dtype)
    training.choose_threads()
    began, cpu = time.perf_counter(), time.process_time()
    rows = training.run([int(step) for step in args.record.split(",")])
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if args.out:
        np.savez(args.out, **{name: np.array([[row[name] for row in rows]]) for name in rows[0]})
    timing = {
        "engine": f"torch {torch.__version__}",
        "threads": torch.get_num_threads(),
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_kilobytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    print(json.dumps(timing))


if __name__ == "__main__":
    main()
