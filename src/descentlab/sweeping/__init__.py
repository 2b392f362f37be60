"""Grids of settings: their cells, the dataset gathered over them, its exponents and diagrams."""

# fmt: off
from descentlab.sweeping._axes import axes_of as axes_of, axis as axis, cells as cells
from descentlab.sweeping._exponents import exponent_in as exponent_in, Fit as Fit
from descentlab.sweeping._figures import draw_all as draw_all
from descentlab.sweeping._gather import scalars as scalars
from descentlab.sweeping._sweep import FEWEST_JOBS as FEWEST_JOBS, Sweep as Sweep, sweep as sweep
