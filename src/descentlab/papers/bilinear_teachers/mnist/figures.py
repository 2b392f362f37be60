"""Figures 4 and 5: the student on MNIST."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from descentlab.drawing import BLUE, ORANGE, VERMILION, band, legend, panels, style
from descentlab.papers import Figure
from descentlab.papers.bilinear_teachers.mnist.claims import (
    CLAIMS,
    EDGE,
    PRESETS,
    RECOVERED,
    RUNS,
    hits,
    row_errors,
)

PAPERS_ACCURACY = 0.71  # of the teacher
HALF = 0.5  # of the largest entries of a row
NAMES = {"relu": ("ReLU", BLUE), "leaky": ("LeakyReLU", VERMILION)}


@style()
def draw_training(**runs: xr.Dataset) -> Canvas:
    """Figure 4: loss and cosine along training."""
    figure, axes = panels(1, 2, (2.6, 2.2))
    for key, (label, colour) in NAMES.items():
        run = runs[key].isel(step=slice(1, None))
        band(axes[0, 0], run["loss"], label, colour)
        band(axes[0, 1], run["value_cosine"], label, colour)
    axes[0, 0].set(xscale="log", yscale="log", xlabel="$T$", title="loss on test images")
    axes[0, 1].set(xscale="log", xlabel="$T$", title=r"cosine of $W_V$ and $V^\ast$")
    axes[0, 1].axhline(0.9, color="0.5", lw=0.7, ls=":")
    accuracies = {label: float(runs[key]["teacher_accuracy"].mean()) for key, (label, _) in NAMES.items()}
    words = ["teachers' test accuracy:", *(f"{x:.1%} {label}" for label, x in accuracies.items())]
    axes[0, 0].text(
        0.04, 0.05, "\n".join([*words, f"({PAPERS_ACCURACY:.0%} in the paper)"]),
        transform=axes[0, 0].transAxes, fontsize="small",
    )  # fmt: skip
    legend(figure, columns=2)
    return figure


@style()
def draw_attention(**runs: xr.Dataset) -> Canvas:
    """Figure 5: S*, the learned S, an image with the patches that fail, and errors against ink."""
    figure, axes = panels(1, 5, (1.9, 2.1))
    first = runs["relu"].isel(seed=0)
    matrices = {"$S^\\ast$": first["teacher_attention"]} | {
        f"$S$, {label}": runs[key].isel(seed=0)["attention"] for key, (label, _) in NAMES.items()
    }
    for ax, (title, matrix) in zip(axes[0], matrices.items(), strict=False):
        ax.imshow(matrix.values, cmap="viridis", vmin=0, vmax=1 / 9)
        ax.set(title=title, xlabel="column", xticks=[0, 40, 80], yticks=[0, 8, 40, 72, 80])
        for line in (EDGE - 0.5, 80.5 - EDGE):
            ax.axhline(line, color="white", lw=0.6, ls=":")
    axes[0, 0].set_ylabel("row")
    image = first["example"].values.reshape(3, 3, 9, 9).transpose(2, 0, 3, 1).reshape(27, 27)
    axes[0, 3].imshow(image, cmap="gray")
    for patch in np.flatnonzero(hits(runs["relu"])[0] < HALF):
        row, column = divmod(int(patch), 9)
        axes[0, 3].add_patch(
            Rectangle((3 * column - 0.5, 3 * row - 0.5), 3, 3, fill=False, edgecolor=ORANGE, lw=0.9)
        )
    axes[0, 3].set(title="lost rows, ReLU", xticks=[], yticks=[])
    for key, (label, colour) in NAMES.items():
        errors = row_errors(runs[key])
        axes[0, 4].plot(runs[key]["ink"].values.ravel(), errors.ravel(), ".", ms=2, color=colour, label=label)
    axes[0, 4].axhline(RECOVERED, color="0.5", lw=0.7, ls=":")
    axes[0, 4].set(xlabel="ink of the patch", title="error of a row of $S$", xlim=(-0.02, None))
    legend(figure, columns=2)
    return figure


FIGURES = (
    Figure(
        "figure_4",
        "The student on MNIST: loss on test images and cosine of its value matrix with the teacher's "
        "kernels; median and range over seeds.",
        draw_training,
        runs=RUNS,
        claims=tuple(claim.name for claim in CLAIMS[:2]),
        presets=PRESETS,
    ),
    Figure(
        "figure_5",
        "Attention on MNIST: the teacher's pooling, what the students learn (first seed; the first and last "
        "nine rows between dotted lines), a test image with the patches in whose rows less than half of the "
        "largest entries are where they should be, and the errors of all rows and seeds against the share of "
        "a patch's pixels that have ink.",
        draw_attention,
        runs=RUNS,
        claims=tuple(claim.name for claim in CLAIMS[2:]),
        presets=PRESETS,
    ),
)
