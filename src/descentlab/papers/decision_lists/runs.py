"""The runs that claims and figures share, as overrides of a preset.

Two needs that name the same overrides share one stored run, so both take them from here.
"""

from typing import Any

Overrides = dict[str, Any]

# What only matters elsewhere, so that presets that differ in it share runs.
PLAIN: Overrides = {
    "c": 0.0, "epsilon": 0.0, "noise": 1.0, "delta": "rival", "gamma": "any",
    "reduced": True, "stiff": False, "step": "fixed", "detail": False, "optimizer": "gd",
    "attention": "softmax",
}  # fmt: skip
# The flow of W for sizes of its own.
FLOW: Overrides = PLAIN | {
    "algorithm": "flow", "train": "attention", "start": "permutation", "eta": 1e-6, "steps": 10**12,
}  # fmt: skip

# Descent on W and V with step 1/lambda_max. It need not reach the theorem's window if it is perfect before.
WINDOW: Overrides = {
    "algorithm": "descent", "optimizer": "gd", "attention": "softmax", "train": "both",
    "start": "permutation", "step": "curvature", "eta": 1.0, "steps": 300,
}  # fmt: skip

# V alone under uniform attention: convex, of curvature below 1/(2L) + 1/(2n) for uniform tokens.
UNIFORM: dict[str, Overrides] = {
    start: PLAIN | {"algorithm": "descent", "train": "value", "start": start, "eta": 10.0, "steps": 20_000}
    for start in ("zero", "random")
}

# Joint training over sizes, laws and starts. From distinct tokens, up to sequences that hold all of them.
SIZES = [
    (6, 3, "distinct"), (6, 5, "distinct"), (6, 6, "distinct"),
    (10, 3, "distinct"), (10, 5, "distinct"), (10, 10, "distinct"),
    (6, 2, "iid"), (6, 4, "iid"), (10, 2, "iid"), (10, 4, "iid"),
]  # fmt: skip
LONGEST = (2, 4)


def joint(start: str) -> dict[str, Overrides]:
    """Joint training of W and V from a start, by name of the cell."""
    common = PLAIN | {"algorithm": "descent", "train": "both", "start": start, "eta": 10.0, "steps": 2000}
    return {
        f"{start}_{law}_L{L}_n{n}_M{M}": common | {"L": L, "n": n, "M": M, "law": law}
        for L, n, law in SIZES
        for M in LONGEST
    }


JOINT = {start: joint(start) for start in ("zero", "random")}

# The slack of the time bound over sizes, one size at a time around (24, 8, 3) for distinct tokens. With
# repeats there are many more orbits, so sequences are shorter.
SLACK: dict[str, Overrides] = {
    f"{law}_L{L}_n{n}_M{M}": FLOW | {"L": L, "n": n, "M": M, "law": law}
    for law, sizes in {
        "distinct": [(12, 8, 3), (24, 8, 3), (48, 8, 3), (96, 8, 3), (24, 4, 3), (24, 16, 3), (24, 22, 3),
                     (24, 8, 2), (24, 8, 4), (24, 8, 6)],
        "iid": [(8, 4, 2), (16, 4, 2), (32, 4, 2), (8, 4, 3), (16, 4, 3), (32, 4, 3), (64, 4, 3)],
    }.items()
    for L, n, M in sizes
}  # fmt: skip

# The loss and the certified time against c, with and without repeats.
SCALES: dict[str, Overrides] = {
    f"{law}_c{c:g}": FLOW | {"L": 16, "n": 4, "M": 3, "law": law, "c": c}
    for law in ("distinct", "iid")
    for c in (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
}

# W and V as matrices over time.
MATRICES: Overrides = PLAIN | {
    "L": 10, "n": 4, "M": 4, "law": "iid", "algorithm": "descent", "train": "both", "start": "zero",
    "eta": 10.0, "steps": 2000, "detail": True,
}  # fmt: skip
