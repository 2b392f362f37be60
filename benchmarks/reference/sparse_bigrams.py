"""`sparse_bigrams` in PyTorch, eager, as an author would write it.

Linear attention V X A e_k on one-hot batches X (batch, N, T), autograd, and preconditioned, projected SGD on
fresh batches, or on given ones. Nothing here knows of the laboratory: the ground truth comes from an .npz.
"""

import argparse
import json
import resource
import time

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot


def inner(X: Tensor, Y: Tensor, mu: Tensor) -> Tensor:
    """<X, Y>_mu, columns weighted by mu."""
    return (mu * X * Y).sum()


class Training:
    """A ground truth, V and A, and SGD on the squared loss."""

    def __init__(self, file, given: bool, dtype: torch.dtype):
        self.mu, self.P, self.Q = (torch.tensor(file[name], dtype=dtype) for name in ("mu", "P", "Q"))
        self.T, self.N = self.Q.shape
        self.eta, self.batch = float(file["eta"]), int(file["batch"])
        self.given = [torch.tensor(file[name].astype(np.int64)) for name in "xko"] if given else None
        self.restart()

    def restart(self) -> None:
        """V = mu1' and A = 11'/T."""
        self.V = self.mu[:, None].repeat(1, self.N).requires_grad_()
        self.A = torch.full_like(self.Q, 1 / self.T).requires_grad_()

    def sample(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, triggers and next tokens: fresh, or those given for that step."""
        if self.given is not None:
            x, k, o = (part[step] for part in self.given)
            return x, k, o
        x = torch.multinomial(self.mu, self.batch * self.T, replacement=True).view(self.batch, self.T)
        k = torch.multinomial(self.mu, self.batch, replacement=True)
        t = torch.multinomial(self.Q.T[k], 1)
        o = torch.multinomial(self.P.T[x.gather(1, t)[:, 0]], 1)[:, 0]
        return x, k, o

    def step(self, step: int) -> None:
        """One step of preconditioned, projected SGD."""
        x, k, o = self.sample(step)
        X = one_hot(x, self.N).to(self.V.dtype).transpose(1, 2)
        a = self.A @ one_hot(k, self.N).to(self.V.dtype).T
        out = (X @ a.T[:, :, None])[:, :, 0] @ self.V.T
        loss = 0.5 * ((one_hot(o, self.N).to(out.dtype) - out) ** 2).sum(1).mean()
        to_V, to_A = torch.autograd.grad(loss, (self.V, self.A))
        with torch.no_grad():
            to_V, to_A = to_V / self.mu, to_A / self.mu
            to_V = to_V - to_V.mean(0, keepdim=True)
            to_V = to_V - (to_V @ self.mu)[:, None]
            self.V -= self.eta * to_V
            self.A -= self.eta * (to_A - to_A.mean(0, keepdim=True))

    @torch.no_grad()
    def observe(self) -> dict[str, float]:
        """The probes."""
        mu, V, A, P, Q = self.mu, self.V, self.A, self.P, self.Q
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

    def choose_threads(self) -> None:
        """Keeps the faster of one thread and all, then starts afresh."""
        took = {}
        for threads in (torch.get_num_threads(), 1):
            torch.set_num_threads(threads)
            for step in range(12):
                if step == 4:  # warm by now
                    began = time.perf_counter()
                self.step(step)
            took[threads] = time.perf_counter() - began
        torch.set_num_threads(min(took, key=lambda threads: took[threads]))
        self.restart()

    def run(self, record: list[int]) -> list[dict[str, float]]:
        """The records, from step 0 to the last."""
        wanted, rows = set(record), []
        for step in range(record[-1] + 1):
            if step in wanted:
                rows.append(self.observe())
            if step < record[-1]:
                self.step(step)
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instance", required=True, help="ground truth and batches (.npz)")
    parser.add_argument("--record", required=True, help="recorded steps with commas; the last ends the run")
    parser.add_argument("--precision", type=int, choices=(32, 64), default=32)
    parser.add_argument("--given", action="store_true", help="train on the batches of the instance")
    parser.add_argument("--out", help="where the records go (.npz)")
    args = parser.parse_args()

    with np.load(args.instance) as file:
        training = Training(file, args.given, {32: torch.float32, 64: torch.float64}[args.precision])
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
