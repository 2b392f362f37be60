"""The runs that claims and figures share, as overrides of a preset.

Two needs that name the same overrides share one stored run, so both take them from here.
"""

from collections.abc import Mapping
from typing import Any

Overrides = dict[str, Any]

# The preset's own run: SignGD, unless a user sets another optimiser to see what breaks.
BASE: Overrides = {"detail": True}
SIGN: Overrides = {"optimizer": "sign", "detail": True}
ADAM: Overrides = {"optimizer": "adam", "beta1": 0.9, "beta2": 0.999, "detail": True}
ADAM_NEAR_ZERO: Overrides = {"optimizer": "adam", "beta1": 0.1, "beta2": 0.1, "detail": True}

# What theorems say of late times needs a horizon at which exponents have settled.
LONGER = 10
LONG: Overrides = {"steps": lambda steps: min(LONGER * steps, 10**8), "detail": False}

# GD's best step is not known beforehand, so the whole grid is run. By step size.
GD: dict[float, Overrides] = {
    eta: {"optimizer": "gd", "eta": eta, "detail": False} for eta in (0.1, 1.0, 10.0, 100.0)
}

# By signal strength, hence by signal-noise ratio.
SIGNALS = (0.5, 1.0, 2.0, 3.0, 4.0)
SNR_SIGN: dict[float, Overrides] = {x: {"optimizer": "sign", "signal": x, "detail": False} for x in SIGNALS}
SNR_ADAM: dict[float, Overrides] = {x: ADAM | {"signal": x, "detail": False} for x in SIGNALS}
SNR_GD: dict[float, Overrides] = {x: GD[1.0] | {"signal": x} for x in SIGNALS}

PRECISION: dict[str, Overrides] = {
    f"{gradient}_{bits}": {"optimizer": "sign", "precision": bits, "gradient": gradient, "detail": False}
    for gradient in ("plain", "stable")
    for bits in (32, 64)
}


def numbered(name: str, runs: Mapping[float, Overrides]) -> dict[str, Overrides]:
    """Runs that are kept by number, under names that a function can take.

    >>> list(numbered("gd", GD))
    ['gd_0_1', 'gd_1', 'gd_10', 'gd_100']
    """
    return {f"{name}_{number:g}".replace(".", "_"): overrides for number, overrides in runs.items()}
