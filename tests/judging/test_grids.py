"""Grids of sizes, and the settings of stored runs."""

import json

import xarray as xr

from descentlab.judging import Grid, setting, times


def test_a_grid_names_its_runs_and_a_cell_wins_over_what_is_common():
    grid = Grid("D", [{"D": 1}, {"D": 2, "steps": 5}], {"steps": 3})
    assert grid.runs == {"D_0": {"steps": 3, "D": 1}, "D_1": {"steps": 5, "D": 2}}


def test_the_settings_of_a_stored_run_are_read_from_it():
    run = xr.Dataset(attrs={"about": json.dumps({"settings": {"D": 36}})})
    assert setting(run, "D") == 36


def test_a_factor_keeps_whole_numbers_whole_and_positive():
    assert (times(0.01)(10), times(2.5)(3), times(0.5)(0.3)) == (1, 8, 0.15)
