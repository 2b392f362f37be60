"""What of other papers fits the signal-noise task: all of it."""

from descentlab.papers import Crossing, Goal, Variant, share_of_start, spaced
from descentlab.papers.sign_descent.setting import PRESETS

ATLAS = (
    Crossing(
        "signal-noise classification",
        # A signal that gradient descent finds at this size, so that there is something to lose.
        PRESETS["tiny"].replace(signal=2.0, m_k=20, m_v=20, n_test=200, steps=500, detail=False),
        rate=("eta",),
        optimizers={
            "gd": Variant({"optimizer": "gd"}, spaced(0.01, 10, 7)),
            "sign": Variant({"optimizer": "sign"}, spaced(1e-5, 1e-2, 7)),
            "adam": Variant({"optimizer": "adam"}, spaced(1e-5, 1e-2, 7)),
            "proximal": Variant({"optimizer": "proximal"}, spaced(0.01, 10, 7)),
        },
        kernels={kernel: {"attention": kernel} for kernel in ("softmax", "gaussian", "linear")},
        learns=Goal(
            "the training loss falls below a tenth of its start", share_of_start("training_loss"), below=0.1
        ),
        recovers=Goal(
            "at most 5 % of fresh samples are misclassified", lambda run: run["test_error"], below=0.05
        ),
        own=("sign", "softmax"),
    ),
)
