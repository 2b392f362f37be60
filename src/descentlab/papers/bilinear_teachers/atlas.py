"""What of other papers fits the teachers: every optimiser, and attention that is linear in W_KQ."""

from descentlab.papers import Crossing, Goal, Variant, share_of_start, spaced
from descentlab.papers.bilinear_teachers.setting import PRESETS

ATLAS = (
    Crossing(
        "a pooling teacher with ReLU",
        PRESETS["tiny"].replace(reduced=False, detail=False, steps=20_000),
        rate=("eta",),
        optimizers={
            "gd": Variant({"optimizer": "gd"}, spaced(1e-2, 10, 7)),
            "sign": Variant({"optimizer": "sign"}, spaced(1e-3, 1, 7)),
            "adam": Variant({"optimizer": "adam"}, spaced(1e-3, 1, 7)),
            "proximal": Variant({"optimizer": "proximal"}, spaced(1e-2, 10, 7)),
        },
        kernels={kernel: {"attention": kernel} for kernel in ("softmax", "linear")},
        learns=Goal(
            "the excess loss falls below a tenth of its start", share_of_start("excess_loss"), below=0.1
        ),
        # The tenth of heatmap_matches_teacher, up to a factor: linear attention shares one with W_V.
        recovers=Goal(
            "S is a multiple of S* up to a tenth of its size: their cosine is at least 0.995",
            lambda run: run["attention_cosine"],
            above=0.995,
        ),
        own=("gd", "softmax"),
        unfit={"gaussian": "W_KQ is one matrix, and a Gaussian kernel needs queries and keys of their own."},
    ),
)
