"""What of other papers fits sparse bigrams: every optimiser, and softmax."""

from descentlab.papers import Crossing, Goal, Variant, share_of_start, spaced
from descentlab.papers.sparse_bigrams.measures import worse_error
from descentlab.papers.sparse_bigrams.setting import PRESETS

ATLAS = (
    Crossing(
        "sparse contextual bigrams",
        PRESETS["tiny"].replace(
            T=40, N=5, Q=2, batch=128, algorithm="sgd", refit=False, eta_1=0.03, eta_2=0.03, steps=1000
        ),
        rate=("eta_1", "eta_2"),
        optimizers={
            "gd": Variant({"optimizer": "gd"}, spaced(1e-2, 1, 6)),
            "sign": Variant({"optimizer": "sign"}, spaced(1e-3, 1, 7)),
            "adam": Variant({"optimizer": "adam"}, spaced(1e-3, 1, 7)),
            "proximal": Variant({"algorithm": "proximal"}, spaced(1e-2, 1, 6)),
        },
        kernels={kernel: {"attention": kernel} for kernel in ("softmax", "linear")},
        learns=Goal(
            "the excess loss falls below a tenth of its start", share_of_start("excess_loss"), below=0.1
        ),
        # A fifth, as in value_noise_stays_small: the last stage, which brings a tenth, is for one optimiser.
        recovers=Goal(
            "V and the rounded A are off by at most a fifth of the truth's size",
            lambda run: worse_error(run, "star_error"),
            below=0.2,
        ),
        own=("proximal", "linear"),
        unfit={
            "gaussian": "A is the attention of each trigger itself: there are no queries and keys.",
            ("proximal", "softmax"): "An l1 norm of logits does not make attention sparse.",
        },
    ),
)
