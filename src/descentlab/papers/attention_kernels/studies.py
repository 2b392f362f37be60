"""The study of attention_kernels: where Gaussian attention beats softmax attention."""

from descentlab.judging import Grid
from descentlab.papers import Study
from descentlab.papers.attention_kernels.runs import MAP
from descentlab.papers.attention_kernels.setting import PRESETS

STUDIES = (
    Study(
        "separation_map",
        "what is left of both kernels' losses over delta and scale, each at its best step size",
        PRESETS["quick"],
        {"": (Grid("kernel", list(MAP.values())),)},
        ("gaussian_beats_softmax_constructed",),
        ("separation_map",),
    ),
)
