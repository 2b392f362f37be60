"""Change one assumption of a paper and see which claims break: SignGD from a start that knows the noise."""

from pathlib import Path
from tempfile import TemporaryDirectory

from descentlab import Store, load
from descentlab.running import judge_paper

paper = load("sign_descent")
preset = paper.preset("tiny")
with TemporaryDirectory() as folder:
    store = Store(Path(folder))
    as_assumed = judge_paper(paper, "tiny", preset, 4, store)
    changed = judge_paper(paper, "tiny", preset.replace(start="aligned"), 4, store)
for before, after in zip(as_assumed, changed, strict=True):
    if before.outcome != after.outcome:
        print(f"{before.claim}: {before.outcome} ({before.value:.3g}) -> {after.outcome} ({after.value:.3g})")
