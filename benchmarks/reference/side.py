"""PyTorch's side of a workload, as a process that `serving` describes.

    .venv-torch/bin/python benchmarks/reference/side.py WORKLOAD FOLDER --variant eager|compiled|fused

Nothing here knows of the laboratory: ground truth, start and steps come from FOLDER/instance.npz.
"""

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from training import Run

import serving
from workloads import named


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--variant", choices=("eager", "compiled", "fused"), default="eager")
    args = parser.parse_args()
    torch.set_num_threads(1)
    work = named(args.workload)
    torch.set_default_dtype({32: torch.float32, 64: torch.float64}[work.precision])

    def make() -> Run:
        with np.load(args.folder / "instance.npz") as file:
            instance = dict(file)
        training = importlib.import_module(work.paper).TRAININGS[work.kind](instance, args.variant)
        return Run(training, instance["record"], instance["checked"], args.variant == "compiled")

    serving.serve(make)


if __name__ == "__main__":
    main()
