"""The study of sparse_bigrams: samples against T, N, Q and accuracy."""

from descentlab.papers import Study
from descentlab.papers.sparse_bigrams.claims import OVER_SIZES
from descentlab.papers.sparse_bigrams.figures import STAGES
from descentlab.papers.sparse_bigrams.setting import PRESETS

STUDIES = (
    Study(
        "samples",
        "samples of both stages against T, N, Q and the accuracy asked for",
        PRESETS["quick"],
        {name: (grid,) for name, (grid, *_) in STAGES.items()},
        tuple(claim.name for claim in OVER_SIZES if claim.name != "transfer_skips_stage_one"),
        ("samples_over_sizes",),
    ),
)
