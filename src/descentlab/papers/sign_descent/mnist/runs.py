"""The runs on noisy MNIST, as overrides of a preset: each optimiser at each noise."""

from typing import Any

from descentlab.judging import times

NOISES = (0.25, 0.5, 1.0, 2.0)  # times the preset's noise
TITLES = {"gd": "GD", "sign": "SignGD", "adam": "Adam"}


def runs(*optimizers: str) -> dict[str, dict[str, Any]]:
    """The runs of some optimisers by name."""
    return {
        f"{name}_{i}": {"optimizer": name, "noise": times(factor)}
        for name in optimizers
        for i, factor in enumerate(NOISES)
    }
