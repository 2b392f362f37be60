"""Plots that answer: the same numbers as the picture, in the same places."""

import base64
import csv
import io
import json
import re

import numpy as np
import plotly.graph_objects as go
import pytest
import xarray as xr
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure as Canvas

from descentlab.drawing import (
    BLUE,
    LEVELS,
    MOST_MOMENTS,
    Movie,
    Surface,
    band,
    legend,
    panels,
    points,
    style,
    threads,
    time_marks,
)
from descentlab.drawing._animations import NONE
from descentlab.showing.report import interactive
from descentlab.showing.report.interactive import Plot, plot
from descentlab.showing.report.tex import html


def series(values) -> xr.DataArray:
    values = np.asarray(values, dtype=float)
    return xr.DataArray(values, {"step": np.arange(1, values.shape[1] + 1)}, ("seed", "step"))


def converted(draw) -> Plot:
    with style():
        figure, axes = panels(1, 2)
        draw(figure, axes[0])
        found = plot(figure)
    assert found is not None
    # Plotly's own schema knows every property that is used.
    go.Figure(json.loads(json.dumps(found.as_json())))
    return found


def test_a_power_of_ten_that_ticks_share_stands_beside_the_axis():
    def draw(figure, axes):
        axes[0].plot([0, 1], [0, 30_000])
        axes[1].plot([0, 1], [0, 3])

    layout = converted(draw).layout
    assert "2" in layout["yaxis"]["ticktext"]
    assert 20_000.0 in layout["yaxis"]["tickvals"]
    (power,) = [one for one in layout["annotations"] if "10" in one["text"]]
    left, bottom = layout["xaxis"]["domain"][0], layout["yaxis"]["domain"][1]
    assert power["text"].split() == ["×", "10<sup>4</sup>"]
    assert power["name"] == "power of yaxis"
    assert power["x"] == pytest.approx(left, abs=0.1)
    assert power["y"] > bottom


def test_a_band_is_a_line_and_an_area_with_the_same_numbers():
    def draw(figure, axes):
        band(axes[0], series([[1, 2, 4], [3, 5, 8], [8, 13, 9]]), "loss $L_t$", BLUE)
        legend(figure)

    found = converted(draw)
    [area, line] = found.data
    assert (line["x"], line["y"]) == ([1, 2, 3], [3, 5, 8])
    assert line["name"] == "loss L<sub>t</sub>"
    assert line["showlegend"]
    assert area["fill"] == "toself"
    assert (min(y for y in area["y"] if y), max(y for y in area["y"] if y)) == (1, 13)
    assert found.layout["showlegend"]
    assert line["customdata"] == [[1, 8], [2, 13], [4, 9]]
    ends = [row[2:4] for row in found.table if row[1] == "loss L<sub>t</sub>, highest seed"]
    assert ends == [(1, 8), (2, 13), (3, 9)]


def test_panels_keep_their_places_scales_and_ranges():
    def draw(figure, axes):
        axes[0].plot([1, 10, 100], [1.0, 0.1, 0.01])
        axes[0].set(xscale="log", yscale="log", xlim=(1, 1000), xlabel=r"$\eta t$", title="left")
        axes[1].plot([0, 1], [3, 5])
        axes[1].invert_yaxis()

    found = converted(draw)
    left, right = found.layout["xaxis"], found.layout["xaxis2"]
    assert left["domain"][1] < right["domain"][0]
    assert (left["type"], left["range"]) == ("log", [0, 3])
    assert dict(zip(left["tickvals"], left["ticktext"], strict=True))[100] == "10<sup>2</sup>"
    assert found.layout["yaxis2"]["range"][0] > found.layout["yaxis2"]["range"][1]
    title, under = found.layout["annotations"]
    assert (title["text"], under["text"]) == ("left", "ηt")
    assert under["y"] < found.layout["yaxis"]["domain"][0] < found.layout["yaxis"]["domain"][1] < title["y"]
    assert [one["xaxis"] for one in found.data] == ["x", "x2"]


def test_a_symmetric_log_axis_is_laid_out_by_hand():
    def draw(figure, axes):
        axes[0].plot([0, 1, 10, 100], [0, 1, 2, 3])
        axes[0].set_xscale("symlog", linthresh=1)

    found = converted(draw)
    x = found.data[0]["x"]
    assert x == sorted(x)
    assert x[3] - x[2] == pytest.approx(x[2] - x[1], rel=1e-4)
    assert len(found.layout["xaxis"]["tickvals"]) == len(found.layout["xaxis"]["ticktext"])
    assert [row[2] for row in found.table] == [0, 1, 10, 100]
    assert found.layout["meta"]["fixed"] == ["xaxis"]


def test_legends_of_panels_and_of_the_figure_stay_apart():
    def draw(figure, axes):
        for ax in axes:
            ax.plot([0, 1], [0, 1], label="shared")
        axes[1].plot([0, 1], [1, 0], label="own")
        legend(figure)
        axes[1].legend(handles=axes[1].lines[1:])

    found = converted(draw)
    shown = {(one["name"], one["legend"]) for one in found.data if one["showlegend"]}
    assert shown == {("shared", "legend"), ("own", "legend3")}
    assert found.layout["legend"]["y"] < found.layout["yaxis"]["domain"][0]
    assert found.layout["legend3"]["orientation"] == "v"


def test_lines_across_the_panel_and_words_are_there():
    def draw(figure, axes):
        axes[0].plot([1, 100], [1, 2])
        axes[0].set_xscale("log")
        axes[0].axhline(1.5, color="red")
        time_marks(axes[0], {"T": 10.0}, labels=True)
        axes[0].text(0.5, 0.25, r"$\beta$", transform=axes[0].transAxes)

    found = converted(draw)
    across, upright = found.layout["shapes"]
    assert (across["y0"], across["y1"], across["xref"]) == (1.5, 1.5, "x domain")
    assert (upright["x0"], upright["yref"]) == (10.0, "y domain")
    name, beta = found.layout["annotations"]
    assert (name["text"], name["x"], name["y"], name["yshift"] > 0) == ("T", 1.0, 1.0, True)
    assert (beta["text"], beta["x"], beta["xref"]) == ("β", 0.5, "x domain")


def test_matrices_are_heatmaps_with_their_colour_bar():
    def draw(figure, axes):
        image = axes[0].imshow([[0.0, 1.0, 2.0], [3.0, np.nan, 5.0]], vmin=-1, vmax=6, cmap="magma")
        figure.colorbar(image, ax=axes[0], label="entry")
        mesh = axes[1].pcolormesh([1, 2, 3], [10, 20], [[1.0, 100.0]], norm=LogNorm(1, 100))
        figure.colorbar(mesh, ax=axes[1])

    found = converted(draw)
    image, mesh = found.data
    assert image["z"] == [[0, 1, 2], [3, None, 5]]
    assert (image["y"], image["zmin"], image["zmax"]) == ([0, 1], -1, 6)
    assert image["colorbar"]["title"]["text"] == "entry"
    assert image["colorscale"][0][1] == "rgb(0,0,4)"
    assert (mesh["z"], mesh["customdata"]) == ([[0, 1]], [[1, 100]])
    assert mesh["x"] == [1, 2, 3]
    assert sum(key.startswith("xaxis") for key in found.layout) == 2


def test_threads_and_intervals_are_lines_with_gaps():
    def draw(figure, axes):
        # The row of a seed that never was finite is no line.
        rows = np.array([[1.0, 2, 3], [np.nan] * 3, [4, 5, 6]])
        threads(axes[0], np.arange(3), rows, BLUE, linestyle=":")
        points(axes[1], [1, 2], [np.array([1.0, 1.2, 1.4]), np.array([2.0, 2.1, 2.2])], "mean", BLUE)

    found = converted(draw)
    assert found.data[0]["y"] == [1, 2, 3, None, 4, 5, 6, None]
    assert re.fullmatch(r"[\d.]+px,[\d.]+px", found.data[0]["line"]["dash"])
    means = next(one for one in found.data if one.get("name") == "mean")
    np.testing.assert_allclose(means["y"], [1.2, 2.1])
    assert means["marker"]["symbol"] == "circle"


def test_long_lines_are_thinned_and_the_table_is_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(interactive, "MOST_NUMBERS", 100)
    x = np.linspace(0, 1, 151)
    found = converted(lambda figure, axes: axes[0].plot(x, x**2 / 3, label="square"))
    assert found.thinned == 4
    shown = found.data[0]["x"]
    assert (shown[0], shown[-1]) == (0, 1)
    assert len(shown) < 50
    rows = list(csv.DictReader(io.StringIO(found.table_as_csv())))
    assert [float(row["y"]) for row in rows] == (x**2 / 3).tolist()
    assert {row["series"] for row in rows} == {"square"}


def test_drawings_without_numbers_stay_pictures():
    figure, axes = panels(1, 1)
    axes[0, 0].text(0.5, 0.5, "a scheme")
    assert plot(figure) is None
    solid = Canvas()
    solid.add_subplot(projection="3d")
    assert plot(solid) is None


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        (r"$\frac{1}{2}\sqrt{n}$", "1/2√n"), (r"$\sqrt{\eta T}$", "√(ηT)"),
        (r"$\frac{a + b}{c^2}P^\top$", "(a + b)/c<sup>2</sup>P<sup>⊤</sup>"),
        (r"$\hat W_{KQ}$", "W\u0302<sub>KQ</sub>"),
        ("a < b\nc", "a &lt; b<br>c"),
        (r"$\mathdefault{10^{-3}}$", "10<sup>−3</sup>"), (r"$\log_{10} x'$", "log<sub>10</sub> x′"),
        (r"$\langle w, \mu\rangle \leq 1$", "⟨w, μ⟩ ≤ 1"),
    ],
)  # fmt: skip
def test_formulas_are_read_by_people(source: str, shown: str):
    assert html(source) == shown


# ---------------------------------------------------------------- what moves


def matrices(steps: int = 100) -> xr.DataArray:
    values = np.random.default_rng(0).normal(size=(steps, 3, 4))
    return xr.DataArray(values, {"step": np.arange(steps) ** 2}, ("step", "row", "column"))


def entries(panel: dict, moments: int) -> np.ndarray:
    raw = np.frombuffer(base64.b64decode(panel["entries"]), np.uint8).reshape(
        moments, panel["rows"], panel["columns"]
    )
    return panel["low"] + raw * (panel["high"] - panel["low"]) / LEVELS


def test_a_movie_holds_every_entry_to_within_half_a_level():
    matrix = matrices()
    movie = Movie({"W": matrix})
    found = movie.as_json()
    assert len(found["steps"]) == MOST_MOMENTS
    assert (found["steps"][0], found["steps"][-1]) == (0, 99**2)
    [panel] = found["panels"]
    shown = matrix.sel(step=found["steps"]).values
    half = (panel["high"] - panel["low"]) / LEVELS / 2
    assert np.abs(entries(panel, MOST_MOMENTS) - shown).max() <= half * (1 + 1e-9)
    assert (panel["row"], panel["column"]) == ("row", "column")


def test_an_entry_that_is_no_number_is_none_on_the_page():
    matrix = matrices(2)
    matrix[1, 2, 3] = np.nan
    [panel] = Movie({"W": matrix}).as_json()["panels"]
    raw = np.frombuffer(base64.b64decode(panel["entries"]), np.uint8)
    assert (raw == NONE).tolist() == [False] * 23 + [True]


def test_matrices_of_a_movie_share_their_steps():
    with pytest.raises(ValueError, match="must have the steps of the others"):
        Movie({"a": matrices(5), "b": matrices(6)})
    with pytest.raises(ValueError, match="must have dimensions step, rows and columns"):
        Movie({"a": matrices(5).isel(row=0)})


def test_a_surface_is_laid_out_with_its_first_direction_along_x():
    surface = Surface(
        "loss", np.array([0.0, 1.0, 2.0]), np.array([5.0, 6.0]), np.arange(6.0).reshape(3, 2), "a", "b"
    )
    assert surface.as_json()["heights"] == [[0, 2, 4], [1, 3, 5]]
    assert surface.rows()[1] == ("loss", 0.0, 6.0, 1.0)
