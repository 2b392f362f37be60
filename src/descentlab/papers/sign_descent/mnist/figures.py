"""The figure of noisy MNIST."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Canvas

from descentlab.drawing import BLUE, GREEN, VERMILION, band, legend, panels, style
from descentlab.papers import Figure
from descentlab.papers.sign_descent.mnist.claims import CLAIMS, FIT, PRESETS, fitted, noises, once_fit
from descentlab.papers.sign_descent.mnist.runs import NOISES, TITLES, runs

COLOURS = {"gd": GREEN, "sign": BLUE, "adam": VERMILION}


@style()
def draw(**data: xr.Dataset) -> Canvas:
    """Samples, training losses at the largest noise, and test loss and error against the noise."""
    figure, axes = panels(1, 4, (1.9, 2.2))
    scales = noises(data)
    samples = data["sign_1"]["examples"].isel(seed=0, example=slice(3)).values
    side = round(samples.shape[-1] ** 0.5)
    rows = [np.hstack(list(example.reshape(2, side, side))) for example in samples]
    axes[0, 0].imshow(np.vstack(rows), cmap="gray", vmin=-0.2, vmax=0.3)
    axes[0, 0].set(xticks=[], yticks=[], title=f"samples, noise {scales[1]:g}")
    for name, colour in COLOURS.items():
        last = data[f"{name}_{len(NOISES) - 1}"].isel(step=slice(1, None))
        band(axes[0, 1], last["training_loss"], color=colour, label=TITLES[name])
        for ax, what in ((axes[0, 2], "test_loss"), (axes[0, 3], "test_error")):
            runs_ = [data[f"{name}_{i}"] for i in range(len(NOISES))]
            found = np.array([np.where(fitted(run), once_fit(run, what), np.nan) for run in runs_])
            ax.plot(scales, found.mean(axis=1), color=colour, marker="o", ms=3)
            ax.plot(np.repeat(scales, found.shape[1]), found.ravel(), ".", color=colour, ms=2, alpha=0.5)
    axes[0, 1].axhline(FIT, color="0.5", lw=0.7, ls=":")
    axes[0, 1].set(xscale="log", yscale="log", xlabel="step", title=f"training loss, noise {scales[-1]:g}")
    for ax, title in ((axes[0, 2], f"test loss at training loss {FIT}"), (axes[0, 3], "test error there")):
        ax.set(xscale="log", xlabel="norm of the noise patch", title=title)
        ax.set_xticks(scales, [f"{x:g}" for x in scales])
        ax.minorticks_off()
    legend(figure, columns=3)
    return figure


FIGURES = (
    Figure(
        "figure_noisy_mnist",
        "Noisy MNIST. Samples (digit and noise patch), training loss at the largest noise, test loss and "
        f"error of each optimiser when its training loss first is {FIT} or less, all seeds and the mean.",
        draw,
        runs=runs("gd", "sign", "adam"),
        claims=tuple(claim.name for claim in CLAIMS),
        presets=PRESETS,
    ),
)
