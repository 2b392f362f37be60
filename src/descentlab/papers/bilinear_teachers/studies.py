"""The study of bilinear_teachers: the exponents of Theorem 3.1 in D, K, |V*| and eta."""

from descentlab.papers import Study
from descentlab.papers.bilinear_teachers.claims import CLAIMS
from descentlab.papers.bilinear_teachers.runs import GRIDS
from descentlab.papers.bilinear_teachers.setting import PRESETS

STUDIES = (
    Study(
        "exponents",
        "prefactors and hitting times against D, K, |V*| and eta",
        PRESETS["quick"],
        {name: (grid,) for name, grid in GRIDS.items()},
        tuple(claim.name for claim in CLAIMS if len(claim.runs) > 1),
        ("figure_exponents", "figure_sizes", "table_exponents", "figure_start"),
    ),
)
