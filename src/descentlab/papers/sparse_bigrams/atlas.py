"""What of other papers fits sparse bigrams: every optimiser, and softmax."""

import numpy as np
import xarray as xr

from descentlab.crossing import Crossing, Goal, Variant, share_of_start, spaced
from descentlab.papers.sparse_bigrams.setting import PRESETS


def smaller_cosine(run: xr.Dataset) -> xr.DataArray:
    """Of A thresholded and normalised, and of V, with the truth, less what is known at the start."""
    return np.minimum(run["star_cosine"], run["value_cosine"])


ATLAS = (
    Crossing(
        "sparse contextual bigrams",
        PRESETS["tiny"].replace(
            T=40, N=5, Q=2, batch=128, algorithm="sgd", refit=False, eta_1=0.03, eta_2=0.03, steps=1000
        ),
        rate=("eta_1", "eta_2"),
        optimizers={
            "gd": Variant({"optimizer": "gd"}, spaced(3e-3, 1, 6)),
            "sign": Variant({"optimizer": "sign"}, spaced(3e-5, 1e-1, 7)),
            "adam": Variant({"optimizer": "adam"}, spaced(3e-5, 1e-1, 7)),
            "proximal": Variant({"algorithm": "proximal"}, spaced(3e-3, 1, 6)),
        },
        kernels={kernel: {"attention": kernel} for kernel in ("softmax", "linear")},
        learns=Goal(
            "the excess loss falls below a tenth of its start", share_of_start("excess_loss"), below=0.1
        ),
        # The margin of softmax_matches_linear.
        recovers=Goal("V and the rounded A have cosines of 0.9 with the truth", smaller_cosine, above=0.9),
        own=("proximal", "linear"),
        unfit={
            "gaussian": "A is the attention of each trigger itself: there are no queries and keys.",
            ("proximal", "softmax"): "An l1 norm of logits does not make attention sparse.",
        },
    ),
)
