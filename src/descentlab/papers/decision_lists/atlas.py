"""What of other papers fits decision lists: every optimiser, and attention that is linear in X'WX."""

from descentlab.papers import Crossing, Goal, Variant, share_of_start, spaced
from descentlab.papers.decision_lists.setting import PRESETS

ATLAS = (
    Crossing(
        "decision lists, W and V trained",
        # The paper's open question, from small random values.
        PRESETS["tiny"].replace(algorithm="descent", train="both", start="random", steps=2000),
        rate=("eta",),
        optimizers={
            "gd": Variant({"optimizer": "gd"}, spaced(0.3, 300, 7)),
            "sign": Variant({"optimizer": "sign"}, spaced(3e-3, 3, 7)),
            "adam": Variant({"optimizer": "adam"}, spaced(3e-3, 3, 7)),
            "proximal": Variant({"optimizer": "proximal"}, spaced(0.3, 300, 7)),
        },
        kernels={kernel: {"attention": kernel} for kernel in ("softmax", "linear")},
        learns=Goal(
            "the population loss falls below a tenth of its start", share_of_start("loss"), below=0.1
        ),
        recovers=Goal(
            "every position of every sequence is classified right", lambda run: run["error"], below=1e-12
        ),
        own=("gd", "softmax"),
        unfit={
            "gaussian": "X'WX has one matrix W, and a Gaussian kernel needs queries and keys of their own."
        },
    ),
)
