"""The laboratory's side of a workload, as a process that `serving` describes.

    python benchmarks/lab/side.py WORKLOAD FOLDER --seeds N

It writes what the reference needs of seed 0 to FOLDER/instance.npz as it starts.
"""

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from instances import INSTANCES
from profiling import profile
from sweeping import Sweep

import serving
from descentlab.engine import begun, rollout
from descentlab.papers import load
from workloads import Workload, named


class Rollout:
    """A workload as `rollout` runs it; of the probes, those that the reference records too."""

    def __init__(self, work: Workload, seeds: int, folder: Path) -> None:
        paper = load(work.paper)
        self.preset = paper.preset(work.preset).replace(work.settings, steps=work.steps)
        system = paper.system_of(self.preset)
        wanted = list(work.allowed)

        def probes(p: Any) -> dict[str, Any]:
            every = system.probes(p)
            return {name: every[name] for name in wanted}

        self.system = dataclasses.replace(system, probes=probes)
        self.record = np.asarray(work.recorded or paper.records(self.preset))
        self.checked, self.seeds = np.asarray(work.checked), range(seeds)
        self.seed_steps = seeds * work.steps
        folder.mkdir(parents=True, exist_ok=True)
        self.begins = work.begins
        instance = INSTANCES[work.paper, work.kind](self.preset, work.checked[-1])
        steps = {"record": self._seen(self.record), "checked": self._seen(self.checked)}
        arrays = {name: np.asarray(x) for name, x in instance.items()} | steps
        np.savez(folder / "instance.npz", allow_pickle=False, **arrays)

    def _seen(self, record: np.ndarray) -> np.ndarray:
        """The recorded steps that the reference has too."""
        return record[record >= self.begins]

    def prepare(self) -> dict[str, Any]:
        """Compiling is what the first run takes longer than the second."""
        took = []
        for _ in range(2):
            began = time.perf_counter()
            rollout(self.system, self.preset, self.seeds, np.arange(2))
            took.append(time.perf_counter() - began)
        return {"compile_seconds": took[0] - took[1]}

    def check(self, out: Path) -> None:
        """The first steps of seed 0, in the program of all seeds."""
        self._run(self.checked, out)

    def run(self, recorded: bool, out: Path | None) -> None:
        """All seeds."""
        self._run(self.record if recorded else self.record[[0, -1]], out)

    def explain(self) -> dict[str, Any]:
        """Where the time of a step goes."""
        arguments = begun(self.system, self.preset, len(self.seeds))
        whole = not self.system.divisible(self.preset)
        return profile(self.system.advance, arguments, int(self.record[-1]), len(self.seeds), whole=whole)

    def _run(self, record: np.ndarray, out: Path | None) -> None:
        found = rollout(self.system, self.preset, self.seeds, record)
        if out:
            kept = record >= self.begins
            values = {name: found[name].values[0][kept] for name in self.system.probes(self.preset)}
            np.savez(out, allow_pickle=False, record=record[kept], **values)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    work = named(args.workload)
    serving.serve(lambda: Sweep(work, args.folder) if work.over else Rollout(work, args.seeds, args.folder))


if __name__ == "__main__":
    main()
