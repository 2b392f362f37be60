"""One way to have the store's missing runs made: a plan, workers, pools, clusters, progress."""

# fmt: off
from descentlab.running._cluster import connect as connect
from descentlab.running._complete import Tally as Tally, View as View, work_through as work_through
from descentlab.running._experiments import (
    complete as complete, datasets as datasets, diverged as diverged, final as final, gather as gather,
    judge_mutant as judge_mutant, judge_paper as judge_paper, Need as Need, needed as needed, Run as Run,
    run as run, stored as stored, verdicts as verdicts,
)
from descentlab.running._plan import (
    identify as identify, label as label, names_of as names_of, plan as plan, Result as Result,
    Task as Task,
)
from descentlab.running._pool import Fleet as Fleet, Here as Here, Processes as Processes
from descentlab.running._progress import burning as burning, Watcher as Watcher
from descentlab.running._worker import perform as perform
