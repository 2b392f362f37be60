"""The runs on noisy MNIST, as overrides of a preset: each optimiser at each noise."""

from typing import Any

NOISES = (1.0, 2.0, 4.0, 8.0)
# GD's step is of the size that suits a gradient, the others' of that which suits its sign.
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "gd": {"optimizer": "gd", "eta": 10.0}, "sign": {"optimizer": "sign"}, "adam": {"optimizer": "adam"},
}  # fmt: skip
TITLES = {"gd": "GD", "sign": "SignGD", "adam": "Adam"}


def runs(*optimizers: str) -> dict[str, dict[str, Any]]:
    """The runs of some optimisers by name."""
    return {
        f"{name}_{i}": {**OPTIMIZERS[name], "noise": noise}
        for name in optimizers
        for i, noise in enumerate(NOISES)
    }
