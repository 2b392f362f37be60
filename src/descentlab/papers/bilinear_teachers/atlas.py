"""What of other papers fits the teachers: every optimiser, and attention that is linear in W_KQ."""

import numpy as np
import xarray as xr

from descentlab.crossing import Crossing, Goal, Variant, share_of_start, spaced
from descentlab.papers.bilinear_teachers.setting import PRESETS

BASE = PRESETS["tiny"].replace(reduced=False, detail=False, steps=20_000)


def relative_error(run: xr.Dataset) -> xr.DataArray:
    """|S - S*|_F / |S*|_F, and |S*|_F^2 = D/K."""
    return run["attention_error"] / np.sqrt(BASE.D / BASE.K)


ATLAS = (
    Crossing(
        "a pooling teacher with ReLU",
        BASE,
        rate=("eta",),
        optimizers={
            "gd": Variant({"optimizer": "gd"}, spaced(1e-3, 1, 7)),
            "sign": Variant({"optimizer": "sign"}, spaced(1e-5, 1e-2, 7)),
            "adam": Variant({"optimizer": "adam"}, spaced(1e-4, 1e-1, 7)),
            "proximal": Variant({"optimizer": "proximal"}, spaced(1e-3, 1, 7)),
        },
        kernels={kernel: {"attention": kernel} for kernel in ("softmax", "linear")},
        learns=Goal(
            "the excess loss falls below a tenth of its start", share_of_start("excess_loss"), below=0.1
        ),
        # The measure of heatmap_matches_teacher.
        recovers=Goal("|S - S*|_F is at most a tenth of |S*|_F", relative_error, below=0.1),
        own=("gd", "softmax"),
        unfit={"gaussian": "W_KQ is one matrix, and a Gaussian kernel needs queries and keys of their own."},
    ),
)
