"""What notebooks show of runs, verdicts and papers: small tables in plain HTML, and a run's curves."""

from __future__ import annotations

import base64
import math
from io import BytesIO
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from descentlab.report.number import interval, number

if TYPE_CHECKING:
    from descentlab.experiment import Run
    from descentlab.paper import Paper
    from descentlab.verdict import Verdict

COLOURS = {
    "SUPPORTED": "#00707f", "REFUTED": "#b84700", "UNDECIDED": "#5f6872", "OUT_OF_REGIME": "#7b3f98",
    "BROKEN": "#b3001b",
}  # fmt: skip
MOST_CURVES = 4


def verdict(one: Verdict) -> str:
    """The outcome, and measured against predicted."""
    badge = Markup('<b style="background:{};color:#fff;padding:0 .4em;border-radius:3px">{}</b>')
    measured = "nothing"
    if not math.isnan(one.value):
        measured = f"{number(one.value)}, 95 % interval {interval(one.low, one.high)}, {one.seeds} seeds"
    rows = {
        "measured": measured, "predicted": interval(one.predicts.low, one.predicts.high),
        "why": one.reason, "statement": one.statement,
    }  # fmt: skip
    head = badge.format(COLOURS[one.outcome], one.outcome) + Markup(" <code>{}</code> ({})").format(
        one.claim, one.cite
    )
    return head + _table({name: words for name, words in rows.items() if words})


def run(one: Run) -> str:
    """Its name and size, what it differs in, and its first curves."""
    from descentlab.work import label

    data = one.data
    size = f"{data.sizes['seed']} seeds, {data.sizes['step']} records up to step {int(data['step'][-1])}"
    rows = {"run": one.id, "settings": label(one.id.rpartition("-")[0], [one.preset]), "size": size,
            "file": str(one.path)}  # fmt: skip
    buffer = BytesIO()
    one.plot(*_scalars(data)[:MOST_CURVES]).savefig(buffer, format="svg")
    picture = base64.b64encode(buffer.getvalue()).decode()
    image = Markup('<img alt="curves of {}" src="data:image/svg+xml;base64,{}">').format(one.id, picture)
    return _table(rows) + image


def paper(one: Paper) -> str:
    """Its title, presets, claims and figures."""
    main = [name for name in one.presets if not name.endswith("tiny")]
    rows = {
        "module": f"descentlab.papers.{one.name}", "presets": ", ".join(main),
        "claims": ", ".join(claim.name for claim in one.claims),
        "figures": ", ".join(figure.name for figure in one.figures),
    }  # fmt: skip
    return Markup("<b>{}</b><br>{}").format(one.about.title, one.about.citation) + _table(rows)


def curves(data: Any, names: tuple[str, ...]) -> Any:
    """Quantities of a dataset along training: median and range over seeds, on log axes where they can be."""
    from descentlab.plot import BLUE, band, panels, style

    names = names or tuple(_scalars(data))
    unknown = [name for name in names if name not in data or set(data[name].dims) != {"seed", "step"}]
    if unknown or not names:
        raise KeyError(f"plot takes {', '.join(_scalars(data))}, got {', '.join(unknown) or 'nothing'}.")
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


def _scalars(data: Any) -> list[str]:
    return [str(name) for name, series in data.items() if set(series.dims) == {"seed", "step"}]


def _table(rows: dict[str, str]) -> Markup:
    cells = Markup("").join(
        Markup('<tr><th style="text-align:left">{}</th><td style="text-align:left">{}</td></tr>').format(*row)
        for row in rows.items()
    )
    return Markup("<table>{}</table>").format(cells)
