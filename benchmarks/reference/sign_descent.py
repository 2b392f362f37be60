"""SignGD on the two-layer transformer of `sign_descent`, as an author would write it in eager PyTorch.

    F_j(W, X) = (1/m_v) sum_l 1' W_{V,j} X softmax(X' W_K' W_Q x_l),   f = F_1 - F_{-1},

with full parameters, autograd, the logistic loss of all samples, and one seed after another.
Nothing here knows of the laboratory: data and start weights come from `seed_<k>.npz`, records go
to an .npz, timings to standard output as JSON.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax, logsigmoid, softmax


class Instance:
    """Training and test samples as (n, 2, d) tensors with labels +-1, and the start weights."""

    def __init__(self, path: Path, dtype: torch.dtype):
        with np.load(path) as file:
            self.eta, self.signal = float(file["eta"]), float(file["signal"])
            start = [torch.tensor(file[name], dtype=dtype) for name in ("W_Q", "W_K", "W_V")]
            d = start[0].shape[1]
            self.X, self.y = self._samples(file, "train", d, dtype)
            self.X_test, self.y_test = self._samples(file, "test", d, dtype)
        self.mu = torch.zeros(d, dtype=dtype)
        self.mu[0] = self.signal
        self.W_Q, self.W_K, self.W_V = (w.requires_grad_() for w in start)

    def _samples(self, file, part: str, d: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        y = torch.tensor(file[f"{part}_y"], dtype=dtype)
        noise = torch.tensor(file[f"{part}_noise"], dtype=dtype)
        X = torch.zeros(len(y), 2, d, dtype=dtype)
        X[:, 0, 0] = self.signal * y
        X[:, 1] = noise
        return X, y


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


@torch.no_grad()
def observe(it: Instance) -> dict[str, Tensor]:
    """The probes of the laboratory's run."""
    W_Q, W_K, W_V = it.W_Q, it.W_K, it.W_V
    zeta = it.y[:, None] * it.X[:, 1]
    v = (W_V[0] - W_V[1]).mean(0)
    q_mu, k_mu, q_xi, k_xi = W_Q @ it.mu, W_K @ it.mu, W_Q @ zeta.T, W_K @ zeta.T
    log_attention = log_softmax(attention_scores(W_Q, W_K, it.X), dim=-1)
    margin = it.y * predict(W_Q, W_K, W_V, it.X)
    test_margin = it.y_test * predict(W_Q, W_K, W_V, it.X_test)

    def agree(a: Tensor, b: Tensor) -> Tensor:
        return (a.sign() == b.sign()).to(a.dtype).mean()

    return {
        "training_loss": logistic_loss(margin),
        "test_loss": logistic_loss(test_margin),
        "test_error": (test_margin <= 0).to(margin.dtype).mean(),
        "value_signal": v @ it.mu,
        "value_noise": zeta @ v,
        "query_signal": q_mu,
        "key_signal": k_mu,
        "log_softmax_11": log_attention[:, 0, 0],
        "log_softmax_21": log_attention[:, 1, 0],
        "noise_alignment": agree(q_xi, k_xi),
        "positive_share": (q_xi > 0).to(margin.dtype).mean(),
        "key_turned": agree(k_xi, q_mu[:, None]),
        "query_turned": agree(q_xi, q_mu[:, None]),
        "signals_oppose": agree(q_mu, -k_mu),
        "query_noise": q_xi.to(torch.float32),
        "key_noise": k_xi.to(torch.float32),
    }


def train(it: Instance, recorded_steps: list[int]) -> tuple[dict[str, np.ndarray], float]:
    """The records of one seed by SignGD, and the seconds spent on recording."""
    wanted, rows, recording = set(recorded_steps), [], 0.0
    params = (it.W_Q, it.W_K, it.W_V)
    for step in range(recorded_steps[-1] + 1):
        if step in wanted:
            began = time.perf_counter()
            rows.append(observe(it))
            recording += time.perf_counter() - began
        if step == recorded_steps[-1]:
            break
        loss = logistic_loss(it.y * predict(*params, it.X))
        gradients = torch.autograd.grad(loss, params)
        with torch.no_grad():
            for w, g in zip(params, gradients, strict=True):
                w.sub_(g.sign(), alpha=it.eta)
    return {name: torch.stack([row[name] for row in rows]).numpy() for name in rows[0]}, recording


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=Path, required=True, help="folder of seed_<k>.npz")
    parser.add_argument("--seeds", type=int, required=True, help="how many seeds, from 0")
    parser.add_argument("--record", required=True, help="recorded steps with commas; the last ends the run")
    parser.add_argument("--precision", type=int, choices=(32, 64), default=64)
    parser.add_argument("--out", type=Path, help="where the records go (.npz)")
    args = parser.parse_args()

    dtype = {32: torch.float32, 64: torch.float64}[args.precision]
    steps = [int(step) for step in args.record.split(",")]
    train(Instance(args.instances / "seed_0.npz", dtype), list(range(21)))  # warm-up, not timed

    records, seconds, recording, cpu = [], [], [], 0.0
    for seed in range(args.seeds):
        it = Instance(args.instances / f"seed_{seed}.npz", dtype)
        began, cpu_began = time.perf_counter(), time.process_time()
        found, on_records = train(it, steps)
        seconds.append(time.perf_counter() - began)
        cpu += time.process_time() - cpu_began
        recording.append(on_records)
        records.append(found)
        print(f"torch seed {seed}: {seconds[-1]:.1f} s", file=sys.stderr, flush=True)
    if args.out:
        np.savez(args.out, **{name: np.stack([r[name] for r in records]) for name in records[0]})
    timing = {
        "engine": f"torch {torch.__version__}",
        "threads": torch.get_num_threads(),
        "seconds": sum(seconds),
        "training_seconds": sum(seconds) - sum(recording),
        "seconds_each": seconds,
        "cpu_seconds": cpu,
        "peak_kilobytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    print(json.dumps(timing))


if __name__ == "__main__":
    main()
