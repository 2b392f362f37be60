"""Judge a power law on anyone's logs: five seeds of a loss, recorded at arbitrary steps."""

import numpy as np
import xarray as xr

from descentlab import judge, power_law

# Stands in for what a training script of yours has logged.
steps = np.unique(np.geomspace(1, 100_000, 80).astype(int))
rng = np.random.default_rng(0)
noise = rng.normal(0, 0.03, (5, steps.size))
loss = 3.0 / steps * (1 + 2.0 / np.sqrt(steps)) * np.exp(noise)

logs = xr.Dataset({"excess_loss": (("seed", "step"), loss)}, {"seed": range(5), "step": steps})
print(judge(power_law("excess_loss", exponent=-1.0, margin=0.1), logs))
print(judge(power_law("excess_loss", exponent=-0.5, margin=0.1), logs))
