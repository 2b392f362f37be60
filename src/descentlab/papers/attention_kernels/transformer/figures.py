"""Figures 1 and 3: both kernels on real tasks, and their landscapes."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d import Axes3D

from descentlab.drawing import BLUE, VERMILION, Surface, band, legend, panels
from descentlab.papers import Figure
from descentlab.papers.attention_kernels.transformer import theorems
from descentlab.papers.attention_kernels.transformer.theorems import KERNELS, TASKS, planes

COLOURS = {"softmax": BLUE, "gaussian": VERMILION}
STYLES = {"common": ("-", "preset's rate"), "larger": ((0, (3, 1.5)), "ten times that")}
PLANES = {"random_plane": "random", "top_plane": "top eigenvectors"}  # directions
SERIES = {
    "training_loss": "training loss", "test_loss": "test loss", "test_accuracy": "test accuracy",
}  # fmt: skip


def draw_training(**runs: xr.Dataset) -> Canvas:
    """Figure 1: loss and accuracy of both kernels along training."""
    figure, axes = panels(1, len(SERIES), (2.3, 2.2))
    for ax, (name, title) in zip(axes[0], SERIES.items(), strict=True):
        for kernel, colour in COLOURS.items():
            for rate, (line, words) in STYLES.items():
                label = f"{KERNELS[kernel]}, {words}"
                band(ax, runs[f"{kernel}_{rate}"][name], label, colour, linestyle=line)
        ax.set(xlabel="step", title=title)
    legend(figure, columns=4)
    return figure


FIGURE_1 = tuple(
    Figure(
        f"figure_1_{task}",
        f"{title} with softmax and with Gaussian attention, at the preset's learning rate and at ten "
        "times that: median and range over seeds.",
        draw_training,
        runs=theorems.TRAINING,
        claims=(f"gaussian_trains_faster_on_{task}",),
        presets=theorems.presets(task),
    )
    for task, title in TASKS.items()
)


def draw_landscapes(**runs: xr.Dataset) -> Canvas:
    """Figure 3: the loss over both planes, contours and surfaces, first seed."""
    figure, axes = panels(2, 4, (2.1, 1.9))
    for row, (kernel, title) in enumerate(KERNELS.items()):
        for column, (which, words) in enumerate(PLANES.items()):
            plane = planes(runs[kernel], which)[0]
            flat, room = axes[row, 2 * column], axes[row, 2 * column + 1]
            flat.set_title(f"{title}, {words}")
            solid = figure.add_subplot(room.get_subplotspec(), projection="3d")
            room.remove()
            if np.isfinite(plane).all():
                draw_plane(flat, solid, plane)
            else:
                solid.set_title("not finite", fontsize="small")
    return figure


def draw_plane(flat: Axes, solid: Axes3D, plane: np.ndarray) -> None:
    """A plane as contours, with a scale, and as a surface; its roughness above."""
    side = np.linspace(-1, 1, len(plane))
    filled = flat.contourf(side, side, plane.T, levels=12, cmap="viridis")
    flat.contour(side, side, plane.T, levels=12, colors="white", linewidths=0.3)
    flat.set(xlabel="$W^Q$", ylabel="$W^K$", xticks=[-1, 0, 1], yticks=[-1, 0, 1], aspect="equal")
    flat.plot(0, 0, ".", color="white", ms=3)  # the trained model
    scale = flat.figure.colorbar(filled, ax=flat, shrink=0.8, ticks=MaxNLocator(4))
    scale.ax.tick_params(labelsize=6)
    scale.outline.set_visible(False)
    solid.plot_surface(*np.meshgrid(side, side, indexing="ij"), plane, cmap="viridis", linewidth=0)
    solid.set_title(f"roughness {theorems.roughness(plane):.2g}", fontsize="small")
    solid.tick_params(labelsize=5, pad=-3)
    solid.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    solid.set_xlabel("$W^Q$", fontsize=7, labelpad=-9)
    solid.set_ylabel("$W^K$", fontsize=7, labelpad=-9)
    solid.zaxis.set_major_locator(MaxNLocator(4))


def surfaces(**runs: xr.Dataset) -> list[Surface]:
    """The loss over both planes with both kernels, first seed."""
    found = []
    for which, words in PLANES.items():
        for kernel, title in KERNELS.items():
            plane = planes(runs[kernel], which)[0]
            side = np.linspace(-1, 1, len(plane))
            found.append(Surface(f"{title}, {words}", side, side, plane, "along W^Q", "along W^K"))
    return found


FIGURE_3 = tuple(
    Figure(
        f"figure_3_{task}",
        f"Loss landscapes on {title} over a direction of W^Q and one of W^K, random and filter-normalised or "
        "the top eigenvectors of the Hessian in each block, from -1 to 1 times these; first seed. The dot is "
        "the trained model; colours have a scale of their own in each panel.",
        draw_landscapes,
        runs=theorems.BOTH,
        claims=(f"gaussian_landscape_is_smoother_on_{task}",),
        presets=theorems.presets(f"{task}_landscape"),
        moving=surfaces,
    )
    for task, title in TASKS.items()
)
