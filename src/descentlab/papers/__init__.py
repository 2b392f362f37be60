"""One module a paper. Every module here is found by name, and so are those in folders of one's own.

DESCENTLAB_PAPERS names such folders, separated as in PATH; where it is not set, `descentlab_papers` in the
current folder is one. A module there is `descentlab.papers.<name>` like any other: workers, which see the
same environment, import it by that name, and its source names its runs.
"""

import os
from pathlib import Path

OWN = "descentlab_papers"


def own_folders() -> list[str]:
    """The folders of papers of one's own."""
    named = os.environ.get("DESCENTLAB_PAPERS", OWN).split(os.pathsep)
    return [str(Path(folder).absolute()) for folder in named if folder]


# Last, so that a paper of this package keeps its name.
__path__ += own_folders()
