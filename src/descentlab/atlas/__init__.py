"""Papers' tasks crossed with one another's optimisers and attention kernels."""

# fmt: off
from descentlab.atlas._cells import Answer as Answer, Cell as Cell, judged as judged
from descentlab.atlas._survey import (
    Atlas as Atlas, held as held, NAME as NAME, presets as presets, Row as Row, survey as survey,
    tasks as tasks,
)
from descentlab.atlas._tables import (
    as_csv as as_csv, as_markdown as as_markdown, as_text as as_text, counted as counted,
    rates_as_csv as rates_as_csv,
)
