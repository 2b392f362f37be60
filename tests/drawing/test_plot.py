"""The house style: what is drawn is what was measured, and nothing stays behind."""

import io
import sys

import matplotlib
import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

from descentlab import drawing as plot
from descentlab.drawing import _style as canvas


def series(values) -> xr.DataArray:
    values = np.asarray(values, dtype=float)
    coordinates = {"seed": np.arange(values.shape[0]), "step": np.arange(values.shape[1])}
    return xr.DataArray(values, coordinates, ("seed", "step"))


def panel():
    figure, axes = canvas.panels(1, 1)
    return figure, axes[0, 0]


def test_style_ends_with_its_block():
    before = dict(matplotlib.rcParams)
    with canvas.style():
        assert matplotlib.rcParams["font.family"] == ["STIXGeneral"]
    assert dict(matplotlib.rcParams) == before


def test_style_holds_inside_a_decorated_drawing_each_time():
    @canvas.style()
    def draw():
        _, axes = canvas.panels(1, 1)
        return axes[0, 0].set_title("title").get_fontname()

    assert [draw(), draw()] == ["STIXGeneral", "STIXGeneral"]


def test_panels_are_a_grid_of_the_size_asked_for():
    figure, axes = canvas.panels(2, 3, (1.5, 2.0))
    assert axes.shape == (2, 3)
    assert figure.get_size_inches().tolist() == [4.5, 4.0]


def test_figures_are_unknown_to_pyplot():
    canvas.panels(1, 1)
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def test_band_is_the_median_over_the_range_of_seeds():
    _, ax = panel()
    plot.band(ax, series([[1, 2], [3, 5], [8, 13]]), "loss", plot.BLUE)
    (line,), (area,) = ax.lines, ax.collections
    assert np.asarray(line.get_ydata()).tolist() == [3, 5]
    outline = area.get_paths()[0].vertices
    assert {tuple(corner) for corner in np.asarray(outline)} == {(0, 1), (1, 2), (0, 8), (1, 13)}
    assert to_hex(area.get_facecolor()[0]) == plot.BLUE.lower()


def test_band_of_one_seed_is_a_line_only():
    _, ax = panel()
    plot.band(ax, series([[1, 2]]), "loss", plot.BLUE)
    assert len(ax.lines) == 1
    assert len(ax.collections) == 0


def test_band_ignores_seeds_that_are_not_finite():
    _, ax = panel()
    plot.band(ax, series([[1, np.nan, np.inf], [3, 4, np.nan], [5, 6, np.inf]]), "loss", plot.BLUE)
    drawn = np.ma.asarray(ax.lines[0].get_ydata(orig=False))
    assert drawn[:2].tolist() == [3, 5]
    assert not np.isfinite(drawn.filled(np.nan)[2])


def test_band_takes_dimensions_in_any_order():
    _, ax = panel()
    plot.band(ax, series([[1, 2], [3, 4]]).transpose("step", "seed"), "loss", plot.BLUE)
    assert np.asarray(ax.lines[0].get_ydata()).tolist() == [2, 3]


def lines_of(ax) -> LineCollection:
    (found,) = [c for c in ax.collections if isinstance(c, LineCollection)]
    return found


def test_threads_draw_every_row_while_there_are_few():
    _, ax = panel()
    values = np.arange(6.0).reshape(2, 3)
    plot.threads(ax, np.arange(3), values, plot.BLUE)
    drawn = [np.asarray(segment)[:, 1].tolist() for segment in lines_of(ax).get_segments()]
    assert drawn == values.tolist()
    assert not lines_of(ax).get_rasterized()
    assert ax.get_ylim()[1] >= 5


def test_threads_choose_evenly_and_become_an_image():
    _, ax = panel()
    plot.threads(ax, np.arange(2), np.repeat(np.arange(1001.0)[:, None], 2, axis=1), plot.BLUE, most=21)
    heights = [segment[0, 1] for segment in lines_of(ax).get_segments()]
    assert heights == list(range(0, 1001, 50))
    assert lines_of(ax).get_rasterized()


def test_threads_of_no_rows_draw_nothing():
    _, ax = panel()
    plot.threads(ax, np.arange(3), np.empty((0, 3)), plot.BLUE)
    assert len(ax.collections) == 0


def test_points_carry_the_interval_over_seeds():
    _, ax = panel()
    plot.points(ax, [1.0, 2.0], [np.array([0.9, 1.0, 1.1]), np.array([5.0])], "loss", plot.BLUE)
    (container,) = ax.containers
    assert np.asarray(container.lines[0].get_ydata()).tolist() == pytest.approx([1.0, 5.0])
    first, second = container.lines[2][0].get_segments()
    # Student's interval of three samples with deviation 0.1; one seed has none.
    assert first[:, 1] == pytest.approx([1 - 0.24841, 1 + 0.24841], abs=1e-5)
    assert second[:, 1].tolist() == [5.0, 5.0]


def test_points_leave_out_what_is_not_finite():
    _, ax = panel()
    plot.points(ax, [1.0, 2.0], [np.array([1.0, np.nan]), np.array([2.0, 2.0])], "loss", plot.BLUE)
    heights = ax.containers[0].lines[0].get_ydata()
    assert np.isnan(heights[0])
    assert heights[1] == 2.0


def test_time_marks_skip_times_that_have_not_come():
    _, ax = panel()
    plot.time_marks(ax, {"T1": 3.0, "T2": np.inf}, labels=True)
    assert [line.get_xdata()[0] for line in ax.lines] == [3.0]
    assert [text.get_text() for text in ax.texts] == ["T1"]


def test_legend_names_each_label_once():
    figure, axes = canvas.panels(1, 2)
    for ax in axes[0]:
        ax.plot([0, 1], [0, 1], label="SignGD")
    axes[0, 1].plot([0, 1], [1, 0], label="Adam")
    axes[0, 1].plot([0, 1], [1, 1], label="_hidden")
    plot.legend(figure)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["SignGD", "Adam"]


def test_legend_stays_clear_of_the_panels():
    figure, axes = canvas.panels(1, 2)
    axes[0, 0].plot([0, 1], [0, 1], label="SignGD")
    plot.side_legend(axes[0, 0])
    plot.legend(figure)
    figure.draw_without_rendering()
    below, beside = figure.legends[0].get_window_extent(), axes[0, 0].get_legend().get_window_extent()
    boxes = [ax.get_window_extent() for ax in axes[0]]
    assert all(not box.overlaps(below) for box in boxes)
    assert all(not box.overlaps(beside) for box in boxes)


def test_legend_without_labels_is_none():
    figure, _ = panel()
    plot.legend(figure)
    assert figure.legends == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "begins"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_save_gives_the_same_bytes_each_time(kind, begins, tmp_path):
    def saved() -> bytes:
        figure, ax = panel()
        plot.threads(ax, np.arange(3), np.random.default_rng(0).normal(size=(40, 3)), plot.BLUE)
        ax.plot([0, 2], [0, 1], clip_on=True)
        ax.set_title(r"$\langle w_{Q,s}, \mu\rangle$")
        buffer = io.BytesIO()
        canvas.save(figure, buffer, kind)
        canvas.save(figure, tmp_path / f"figure.{kind}")
        assert (tmp_path / f"figure.{kind}").read_bytes() == buffer.getvalue()
        return buffer.getvalue()

    first = saved()
    assert first.startswith(begins)
    assert first == saved()


def test_many_threads_keep_a_vector_figure_small():
    figure, ax = panel()
    plot.threads(ax, np.arange(100), np.random.default_rng(0).normal(size=(2000, 100)).cumsum(1), plot.BLUE)
    buffer = io.BytesIO()
    canvas.save(figure, buffer, "svg")
    assert len(buffer.getvalue()) < 150_000


def test_palette_differs_also_in_lightness_or_hue_for_the_red_blind():
    # Viénot, Brettel and Mollon (1999): what a protanope sees, in linear RGB.
    protanope = np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]])
    palette = [plot.BLACK, plot.ORANGE, plot.SKY, plot.GREEN, plot.BLUE, plot.VERMILION, plot.PURPLE]
    rgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in palette]) ** 2.2
    seen = np.clip(rgb @ protanope.T, 0, 1) ** (1 / 2.2)
    gaps = np.linalg.norm(seen[:, None] - seen[None], axis=2)
    assert gaps[~np.eye(len(palette), dtype=bool)].min() > 0.1


# ---------------------------------------------------------------- widths


@pytest.mark.parametrize(("columns", "lines"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_panels_that_do_not_fit_a_column_go_below(columns: int, lines: int):
    with canvas.width(canvas.WIDTHS["column"]):
        figure, axes = canvas.panels(1, columns, (2.3, 1.75))
    assert axes.shape == (1, columns)
    assert figure.get_size_inches()[0] <= 3.4 + 1e-9
    assert len(figure.axes) == columns
    figure.draw_without_rendering()
    tops = {round(float(ax.get_position().y1), 2) for ax in axes.flat}
    assert len(tops) == lines
    # Reading order is kept.
    places = [(-round(float(ax.get_position().y1), 2), float(ax.get_position().x0)) for ax in axes[0]]
    assert places == sorted(places)


def test_rows_stay_together_and_share_what_they_shared():
    with canvas.width(3.4):
        _, axes = canvas.panels(2, 4, (1.9, 1.5), sharex=True, sharey="row")
    axes[0, 0].set_xlim(2, 3)
    axes[1, 0].set_ylim(5, 6)
    assert {ax.get_xlim() for ax in axes.flat} == {(2, 3)}
    assert {ax.get_ylim() for ax in axes[1]} == {(5, 6)}
    assert {ax.get_ylim() for ax in axes[0]} == {(0, 1)}


def test_a_width_ends_with_its_block_and_widens_nothing():
    with canvas.width(12.0):
        figure, _ = canvas.panels(1, 2, (2.3, 1.75))
        assert figure.get_size_inches().tolist() == [4.6, 1.75]
    figure, _ = canvas.panels(1, 4, (2.3, 1.75))
    assert figure.get_size_inches().tolist() == [9.2, 1.75]


def test_a_legend_has_as_many_columns_as_there_is_room_for():
    with canvas.width(3.4):
        figure, axes = canvas.panels(1, 1, (3.4, 2.0))
        for i in range(4):
            axes[0, 0].plot([0, 1], [0, i], label=f"a rather long name {i}")
        plot.legend(figure)
    assert figure.legends[0]._ncols == 2  # type: ignore[attr-defined]
