"""Diagrams of a sweep: a quantity against a setting, or over two of them as a phase diagram."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from descentlab.drawing._marks import side_legend
from descentlab.drawing._style import BLACK, panels, style
from descentlab.drawing._transitions import transition

MOST_CURVES = 8
MOST_TICKS = 7  # of a phase diagram that are the values of its cells


@style()
def draw(series: xr.DataArray, exponents: dict[str, float] | None = None) -> Canvas | None:
    """The diagram that suits a quantity with dimensions seed and those of a grid; None if all is nan."""
    dims = [str(d) for d in series.dims if d != "seed"]
    if not np.isfinite(series.values).any():
        return None
    series = series.sortby([d for d in dims if _numeric(series, d)])  # values come in the order of the grid
    if len(dims) == 2 and all(_numeric(series, d) and series.sizes[d] > 2 for d in dims):
        figure, axes = panels(1, 1, (3.6, 2.7))
        phases(axes[0, 0], series, dims[1], dims[0])
        return figure
    figure, axes = panels(1, 1, (3.4, 2.6))
    lines(axes[0, 0], series, dims[0], exponents or {})
    if len(dims) > 1:
        side_legend(axes[0, 0])
    return figure


def lines(ax: Axes, series: xr.DataArray, along: str, exponents: dict[str, float]) -> None:
    """A quantity against a setting: seeds as dots, their mean as a curve for each cell of the others.

    Axes are logarithmic where all is positive; the title has the exponent.
    """
    others = [d for d in series.dims if d not in ("seed", along)]
    flat = series.stack(other=others) if others else series.expand_dims("other")
    flat = flat.transpose("other", along, "seed")
    x = series[along].values
    if not _numeric(series, along):
        x, names = np.arange(len(x)), [str(one) for one in x]
        ax.set_xticks(x, names)
    chosen = np.unique(np.linspace(0, flat.sizes["other"] - 1, MOST_CURVES).round().astype(int))
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.85, chosen.size))
    for i, colour in zip(chosen, colours, strict=True):
        own = flat.isel(other=i)
        words = [f"{d}={v:.4g}" if isinstance(v := own[d].item(), float) else f"{d}={v}" for d in others]
        ax.plot(x, own.mean("seed"), color=colour, label=", ".join(words))
        ax.plot(np.repeat(x, own.sizes["seed"]), own.values.ravel(), ".", color=colour, ms=3, alpha=0.6)
    if (flat > 0).all() and _numeric(series, along) and np.all(np.asarray(x) > 0):
        ax.set(xscale="log", yscale="log")
    slope = f", exponent {exponents[along]:.3g}" if along in exponents else ""
    ax.set(xlabel=along, ylabel=str(series.name), title=f"{series.name}{slope}")


def phases(
    ax: Axes,
    series: xr.DataArray,
    x: str,
    y: str,
    level: float | None = None,
    bar: bool = True,
    **look: Any,
) -> None:
    """A quantity over two settings: the mean over seeds as colours and contours.

    A curve is where the mean crosses a level (by default its middle), with a band of resampled seeds.
    """
    values, words = series.mean("seed").transpose(y, x).values, str(series.name)
    if level is None and (series > 0).all() and values.max() > 30 * values.min():
        words = rf"$\log_{{10}}$ {series.name}"
        series = xr.DataArray(np.log10(series))
        values = series.mean("seed").transpose(y, x).values
    finite = values[np.isfinite(values)]
    level = float(finite.min() + finite.max()) / 2 if level is None else level
    xs, ys = series[x].values, series[y].values
    image = ax.pcolormesh(_edges(xs), _edges(ys), values, cmap="viridis", rasterized=True, **look)
    if bar:
        ax.figure.colorbar(image, ax=ax, label=words)
    if np.isfinite(values).all() and finite.max() > finite.min():
        ax.contour(xs, ys, values, 5, colors="white", linewidths=0.5, alpha=0.7)
        curve = transition(series, x, level)
        low, high = (np.clip(curve[k].values, xs.min(), xs.max()) for k in ("low", "high"))
        ax.fill_betweenx(ys, low, high, color="white", alpha=0.3, lw=0, where=np.isfinite(curve["place"]))
        ax.plot(curve["place"], ys, ".-", color=BLACK, lw=1.0, ms=3, label=f"crosses {level:.3g}")
    ax.set(xlabel=x, ylabel=y)
    for own, axis, set_scale in ((xs, ax.xaxis, ax.set_xscale), (ys, ax.yaxis, ax.set_yscale)):
        if _logarithmic(own):
            set_scale("log")
        if len(own) <= MOST_TICKS:
            axis.set_ticks(own, labels=[f"{value:.4g}" for value in own])
            axis.set_ticks([], minor=True)


def _logarithmic(values: np.ndarray) -> bool:
    """Whether values are shown on a logarithmic axis: positive ones that are not evenly spaced."""
    steps = np.diff(values)
    return bool(np.all(values > 0) and steps.max() > 1.5 * steps.min())


def _edges(values: np.ndarray) -> np.ndarray:
    """The borders of cells whose middles are the values, as they are shown.

    >>> _edges(np.array([1.0, 4.0, 16.0]))
    array([ 0.5,  2. ,  8. , 32. ])
    """
    places = np.log2(values) if _logarithmic(values) else values
    between = (places[1:] + places[:-1]) / 2
    edges = np.concatenate([[2 * places[0] - between[0]], between, [2 * places[-1] - between[-1]]])
    return 2.0**edges if _logarithmic(values) else edges


def _numeric(series: xr.DataArray, name: str) -> bool:
    return name in series.coords and series[name].dtype.kind in "if"
