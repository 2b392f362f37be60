"""What of other papers fits regression by attention: all of it, and linear attention too."""

from descentlab.papers import Crossing, Goal, Variant, share_of_start, spaced
from descentlab.papers.attention_kernels.runs import GENERIC
from descentlab.papers.attention_kernels.setting import PRESETS


def regression(what: str, train: str) -> Crossing:
    """Regression from a generic start, which is nobody's favourite; labels have no truth but themselves."""
    return Crossing(
        f"regression, {what} trained",
        PRESETS["tiny"].replace(GENERIC, train=train, detail=False, steps=1500),
        rate=("eta",),
        optimizers={
            # In units of 1/L, as the paper's theorems have the step.
            "gd": Variant({"optimizer": "gd", "step": "curvature"}, spaced(0.1, 30, 6)),
            "sign": Variant({"optimizer": "sign"}, spaced(1e-4, 1, 6)),
            "adam": Variant({"optimizer": "adam"}, spaced(1e-4, 1, 6)),
            "proximal": Variant({"optimizer": "proximal", "step": "curvature"}, spaced(0.1, 30, 6)),
        },
        kernels={kernel: {"kernel": kernel} for kernel in ("softmax", "gaussian", "linear")},
        learns=Goal("the loss falls below a tenth of its start", share_of_start("loss"), below=0.1),
        recovers=Goal(
            "all labels are fitted, with a loss below a ten-thousandth of its start",
            share_of_start("loss"),
            below=1e-4,
        ),
        own=("gd", "softmax"),
    )


ATLAS = (regression("all weights", "qkv"), regression("W^Q alone", "q"))
