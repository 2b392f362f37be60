"""What a step of one seed takes at least, and what a run holds in memory, as functions of the sizes.

The counts are those of the laboratory's algorithm, after its exact algebra; PyTorch's plain form takes more.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any

Sizes = dict[str, Any]
MEGABYTE = 2**20


@dataclass(frozen=True)
class Counts:
    """Of one step of one seed: floating-point operations, functions, random numbers, bytes."""

    flops: float = 0.0  # additions and multiplications, nearly all of them in matrix products
    functions: float = 0.0  # exponentials, logarithms and the like
    words: float = 0.0  # random words of 32 bits
    normals: float = 0.0  # random normal numbers
    bytes: float = 0.0  # to and from main memory, where what is trained leaves the cache


def sign_descent(s: Sizes) -> Counts:
    """Four products of m_k x J with J x n (weights by data, and back), and logarithms of n J coefficients."""
    J = moving(s)
    return Counts(
        flops=8 * s["m_k"] * s["n"] * J + 6 * s["m_k"] * s["n"], functions=3 * s["n"] * J + 20 * s["n"]
    )


def moving(s: Sizes) -> int:
    """Coordinates that move: the span of the data for GD; for SignGD one a sample, and those they share."""
    return s["n"] if s["optimizer"] == "gd" else s["n"] + shared(s)


def shared(s: Sizes) -> int:
    """Coordinates that more than one sample has, in expectation."""
    one = s["s"] / (s["d"] - 1)
    none, single = (1 - one) ** s["n"], s["n"] * one * (1 - one) ** (s["n"] - 1)
    return ceil((s["d"] - 1) * (1 - none - single))


def sign_descent_bytes(s: Sizes, rows: int) -> float:
    """An instance in full coordinates, while it is reduced; then test data and records of all rows."""
    whole = 2 * (2 * s["m_k"] + 2 * s["m_v"] + s["n"] + s["n_test"]) * s["d"]
    picks = 3 * s["d"] * (s["n"] + 100)
    row = s["n_test"] * (2 * s["m_k"] + s["n"] + 100) + 3 * s["m_k"] * (s["n"] + 100)
    record = s["m_k"] * s["n"] + 2 * s["m_k"] + 3 * s["n"]  # 32 bits of query and key noise, and the rest
    return 8 * (whole + picks + 2 * row * rows + 2 * record * rows * s["records"])


def sparse_bigrams(s: Sizes) -> Counts:
    """A pass over all positions for each token, forward and back; tokens are digits of random words."""
    B, T, N = s["batch"], s["T"], s["N"]
    per_word = 1
    while N ** (per_word + 1) <= 2**16:
        per_word += 1
    return Counts(flops=5 * B * N * T + 6 * B * N * N, words=B * ceil(T / per_word) + 3 * B)


def sparse_bigrams_bytes(s: Sizes, rows: int) -> float:
    """A batch with its attention weights, a few times over, and passes for each token over a part of it.

    Rows are batched while the largest of these arrays, all together, take 2^18 bytes. V and A of all rows.
    """
    positions = min(s["batch"] * s["T"], 2**18)
    passes = s["N"] * min(positions, 2**14)
    batched = min(rows, max(1, 2**18 // (4 * max(positions, passes))))
    return 4 * ((8 * positions + 3 * passes) * batched + 6 * rows * (s["T"] + s["N"]) * s["N"])


def simulation(s: Sizes) -> Counts:
    """A normal number for each entry of A, which is read and written once."""
    entries = s["T"] * s["N"]
    return Counts(flops=8 * entries, normals=entries + 3 * s["N"] ** 2, bytes=2 * 4 * entries)


def simulation_bytes(s: Sizes, rows: int) -> float:
    """Eleven copies of A: itself, gradient, noise, update, and what is recorded of them."""
    return 4 * (11 + 3 * (rows - 1)) * s["T"] * s["N"]


def bilinear_population(s: Sizes) -> Counts:
    """A softmax of D x D, its derivative, and an arcsine and a square root for each of M x D outputs."""
    D, M, d = s["D"], s["M"], s["d"]
    return Counts(flops=16 * D * D + 20 * M * D + 6 * M * d, functions=D * D + 2 * M * D)


def bilinear_online(s: Sizes) -> Counts:
    """Products with S of the teacher, and of the student forward and twice back; Gaussian X and noise."""
    B, D, M, d = s["batch"], s["D"], s["M"], s["d"]
    return Counts(flops=6 * B * M * d * D + 8 * B * M * D * D, functions=D * D, normals=B * D * (d + M))


def bilinear_bytes(s: Sizes, rows: int) -> float:
    """Weights of all rows; a batch, a few times over; records."""
    B = s["batch"] if s["algorithm"] == "online" else 0
    row = 6 * (s["D"] ** 2 + s["M"] * s["d"])
    return 8 * (rows * row + 6 * B * s["D"] * (s["d"] + s["M"]) + 2 * rows * s["records"] * 10)


def theory(s: Sizes) -> Counts:
    """Queries and keys, scores, values, outputs; and twice as much for the gradient."""
    N, n, D, d, H = s["N"], s["n"], s["D"], s["d"], s["H"]
    forward = 4 * N * n * D * d * H + 2 * N * H * n * n * d + 2 * N * n * D * H + 2 * N * H * n * n
    return Counts(flops=3 * forward + 6 * H * D * d, functions=N * H * n * n)


def theory_bytes(s: Sizes, rows: int) -> float:
    """J_Q with what its decomposition takes, and the weights."""
    N, n, D, d, H = s["N"], s["n"], s["D"], s["d"], s["H"]
    return 8 * (4 * N * n * H * D * d + rows * 12 * H * D * d + 8 * N * H * n * n)


def transformer(s: Sizes) -> Counts:
    """Of each layer: queries, keys, values, outputs, scores, their product, a network; and twice back."""
    n, D, width = s["length"], s["D"], s["width"]
    layer = 8 * n * D * D + 4 * n * n * D + 4 * n * D * width
    return Counts(
        flops=3 * s["batch"] * s["layers"] * layer, functions=s["batch"] * s["layers"] * s["H"] * n * n
    )


def transformer_bytes(s: Sizes, rows: int) -> float:
    """Activations of a batch, linear in the length, and the scores of one example at a time."""
    n, D, width = s["length"], s["D"], s["width"]
    activations = s["batch"] * s["layers"] * n * (16 * D + 4 * width)
    return 4 * (2 * activations + 8 * s["H"] * n * n + 8 * rows * s["layers"] * (4 * D * D + 2 * D * width))


def lengths_bytes(s: Sizes, rows: int) -> float:
    """One weight per list entry and its orbits: next to nothing."""
    return 8.0 * rows * (s["records"] * 64 + 4096)
