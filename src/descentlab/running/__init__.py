"""One way to have the store's missing runs made: a plan, workers, pools, clusters, progress."""

# fmt: off
from descentlab.running._cluster import Cluster as Cluster, connect as connect
from descentlab.running._complete import complete as complete
from descentlab.running._experiments import (
    as_store as as_store, datasets as datasets, diverged as diverged, final as final, gather as gather,
    judge_mutant as judge_mutant, judge_paper as judge_paper, Need as Need, needed as needed, Run as Run,
    run as run, stored as stored, verdicts as verdicts,
)
from descentlab.running._plan import (
    identify as identify, Job as Job, label as label, plan as plan, Result as Result,
)
from descentlab.running._pool import Here as Here, Pool as Pool, Processes as Processes
from descentlab.running._progress import (
    jobs_in_progress as jobs_in_progress, Progress as Progress, ProgressFile as ProgressFile, Tally as Tally,
)
from descentlab.running._worker import perform as perform
