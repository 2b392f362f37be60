"""What of other papers fits in-context regression: every optimiser, on the exact loss of linear attention."""

from descentlab.papers import Crossing, Goal, Variant, share_of_start, spaced
from descentlab.papers.in_context_regression.setting import PRESETS

_WHY_LINEAR = "The loss is exact, and the limit known, for linear attention alone."

ATLAS = (
    Crossing(
        "linear regression in context",
        PRESETS["tiny"].replace(algorithm="descent", steps=2000),
        rate=("eta",),
        optimizers={
            "gd": Variant({"optimizer": "gd"}, spaced(1e-2, 10, 7)),
            "sign": Variant({"optimizer": "sign"}, spaced(1e-3, 1, 7)),
            "adam": Variant({"optimizer": "adam"}, spaced(1e-3, 1, 7)),
            "proximal": Variant({"optimizer": "proximal"}, spaced(1e-2, 10, 7)),
        },
        kernels={"linear": {}},
        learns=Goal(
            "the excess loss falls below a tenth of its start", share_of_start("excess_loss"), below=0.1
        ),
        # What answers prompts, and not W_PV and W_KQ one by one: only flows keep the balance of the two.
        recovers=Goal(
            "answers are x' Gamma^-1 sum_i y_i x_i / M with Gamma^-1 up to a tenth of its size",
            lambda run: run["answer_error"],
            below=0.1,
        ),
        own=("gd", "linear"),
        unfit={"softmax": _WHY_LINEAR, "gaussian": _WHY_LINEAR},
    ),
)
