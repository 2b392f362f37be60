"""The study of decision_lists: where joint training of W and V ends perfect."""

from descentlab.judging import Grid
from descentlab.papers import Study
from descentlab.papers.decision_lists.runs import JOINT
from descentlab.papers.decision_lists.setting import PRESETS

STUDIES = (
    Study(
        "success_map",
        "joint training over sizes, laws of tokens and starts, each end certified exactly",
        PRESETS["quick"],
        {start: (Grid("cell", list(runs.values())),) for start, runs in JOINT.items()},
        ("joint_training_classifies",),
        ("joint", "joint_failures"),
    ),
)
