"""What figures are made with: style, marks, diagrams, and what moves on a page."""

# fmt: off
from descentlab.drawing._animations import (
    colour_scale as colour_scale, LEVELS as LEVELS, MOST_MOMENTS as MOST_MOMENTS, Movie as Movie,
    Surface as Surface,
)
from descentlab.drawing._curves import curves as curves, recorded_numbers as recorded_numbers
from descentlab.drawing._diagrams import draw as draw, lines as lines, phases as phases
from descentlab.drawing._marks import (
    band as band, legend as legend, points as points, RANGE as RANGE, side_legend as side_legend,
    threads as threads, time_marks as time_marks,
)
from descentlab.drawing._style import (
    BLACK as BLACK, BLUE as BLUE, DPI as DPI, GREEN as GREEN, GREY as GREY, ORANGE as ORANGE,
    panels as panels, PURPLE as PURPLE, rendered as rendered, save as save, SKY as SKY, style as style,
    VERMILION as VERMILION, width as width, WIDTHS as WIDTHS,
)
