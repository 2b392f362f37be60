"""A run's quantities along training, as a first look."""

import xarray as xr
from matplotlib.figure import Figure

from descentlab.drawing._marks import band
from descentlab.drawing._style import BLUE, panels, style


def curves(data: xr.Dataset, names: tuple[str, ...] = ()) -> Figure:
    """Quantities of a dataset along training: median and range over seeds, on log axes where they can be."""
    names = names or tuple(recorded_numbers(data))
    unknown = [name for name in names if name not in data or set(data[name].dims) != {"seed", "step"}]
    if unknown or not names:
        raise KeyError(
            f"plot takes {', '.join(recorded_numbers(data))}, got {', '.join(unknown) or 'nothing'}."
        )
    across = min(3, len(names))
    with style():
        figure, axes = panels(-(-len(names) // across), across, (2.6, 2.0))
        for ax, name in zip(axes.flat, names, strict=False):
            series = data[name].isel(step=data["step"].values > 0)
            if bool((series > 0).all()):
                ax.set_yscale("log")
            band(ax, series, name, BLUE)
            ax.set(xscale="log", xlabel="step", title=name)
        for left_over in list(axes.flat)[len(names) :]:
            left_over.remove()
    return figure


def recorded_numbers(data: xr.Dataset) -> list[str]:
    """The quantities of a run that are one number per seed and step."""
    return [str(name) for name, series in data.items() if set(series.dims) == {"seed", "step"}]
