"""`bilinear_teachers` in PyTorch, eager, as an author would write it.

The student is s(W_V X softmax(A / sqrt(D))) with ReLU, A standing for P' W_KQ P. `population` trains on the
closed form of the expected loss by autograd, `online` on fresh Gaussian batches, or on given ones.
"""

import argparse
import json
import math
import resource
import sys
import time

import numpy as np
import torch


def population_loss(W, A, V, S_star):
    """(1/2) sum_mj E (relu(z) - relu(y))^2, the arc-cosine kernel."""
    S = torch.softmax(A / math.sqrt(A.shape[0]), dim=0)
    a = W.norm(dim=1)[:, None] * S.norm(dim=0)[None, :]
    b = V.norm(dim=1)[:, None] * S_star.norm(dim=0)[None, :]
    c = (W * V).sum(1)[:, None] * (S * S_star).sum(0)[None, :]
    # On the line of training the correlation tends to one, where the derivative of arcsin is infinite.
    rho = (c / (a * b)).clamp(-1 + 1e-15, 1 - 1e-15)
    cross = 0.25 * c + (0.5 / math.pi) * (a * b * torch.sqrt(1 - rho**2) + c * torch.asin(rho))
    return 0.5 * (0.5 * (a**2 + b**2) - 2 * cross).sum()


def batch_loss(W, A, X, Y):
    """(1/2) mean over the batch of |Y - relu(W X S)|^2; X is (batch, d, D)."""
    S = torch.softmax(A / math.sqrt(A.shape[0]), dim=0)
    return 0.5 * ((Y - torch.relu(W @ X @ S)) ** 2).sum() / X.shape[0]


def train(args, file):
    """Records of excess loss and errors at the given steps, and the seconds it took."""
    dtype = torch.float64 if args.precision == 64 else torch.float32
    V, S_star, W, A = (torch.tensor(file[name], dtype=dtype) for name in ("V", "S", "W_V", "A"))
    W.requires_grad_()
    A.requires_grad_()
    optimizer = torch.optim.SGD([W, A], lr=args.eta)
    given = None
    if args.given:
        given = tuple(torch.tensor(file[name], dtype=dtype) for name in "XY")
    record = {int(t) for t in args.record.split(",")}
    found = {"excess_loss": [], "attention_error": [], "value_error": []}

    def observe():
        with torch.no_grad():
            S = torch.softmax(A / math.sqrt(A.shape[0]), dim=0)
            found["excess_loss"].append(float(population_loss(W, A, V, S_star)))
            found["attention_error"].append(float((S - S_star).norm()))
            found["value_error"].append(float((W - V).norm()))

    def step(t):
        optimizer.zero_grad()
        if args.algorithm == "population":
            loss = population_loss(W, A, V, S_star)
        elif given is not None:
            loss = batch_loss(W, A, given[0][t - 1], given[1][t - 1])
        else:
            X = torch.randn(args.batch, V.shape[1], A.shape[0], dtype=dtype)
            with torch.no_grad():
                Y = torch.relu(V @ X @ S_star)
                Y += args.noise * torch.randn_like(Y)
            loss = batch_loss(W, A, X, Y)
        loss.backward()
        optimizer.step()

    # The weights given are those after the first step: none has a gradient at zero.
    saved = W.detach().clone(), A.detach().clone()
    for t in range(1, min(50, args.steps)):
        step(t)  # warm up
    with torch.no_grad():
        W.copy_(saved[0])
        A.copy_(saved[1])
    began = time.perf_counter()
    if 1 in record:
        observe()
    for t in range(1, args.steps):
        step(t)
        if t + 1 in record:
            observe()
    return found, time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instance", required=True)
    parser.add_argument("--algorithm", choices=("population", "online"), required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--record", required=True)
    parser.add_argument("--eta", type=float, required=True)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--precision", type=int, choices=(32, 64), default=64)
    parser.add_argument("--given", action="store_true", help="train on the batches of the instance")
    parser.add_argument("--out")
    args = parser.parse_args()
    with np.load(args.instance) as file:
        found, seconds = train(args, file)
    if args.out:
        np.savez(args.out, **{name: np.array([values]) for name, values in found.items()})
    json.dump(
        {
            "engine": f"torch {torch.__version__}",
            "threads": torch.get_num_threads(),
            "seconds": seconds,
            "peak_kilobytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
