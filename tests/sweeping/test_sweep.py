"""Sweeps: grids, runs computed together, and what is gathered from them."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from jaxtyping import TypeCheckError
from typer.testing import CliRunner

import descentlab.papers
from descentlab import running
from descentlab.cli import app
from descentlab.engine import Checkpoint, Settings, rollouts
from descentlab.engine._rollout import rollout
from descentlab.errors import SettingError
from descentlab.judging import Grid
from descentlab.papers import Paper, load
from descentlab.running import (
    Here,
    Job,
    Progress,
    ProgressFile,
    Tally,
    identify,
    jobs_in_progress,
    perform,
    plan,
)
from descentlab.running._worker import absorb
from descentlab.store import Store
from descentlab.sweeping import Sweep, cells, draw_all, scalars, sweep
from descentlab.sweeping._axes import axis
from descentlab.sweeping._exponents import Fit
from descentlab.sweeping._gather import exponents

STEPS = np.array([0, 1, 5, 20])
History = Callable[[Store], dict[str, list[list[int]]]]
# Most tests have the sizes of others, so that they share compiled programs: 12 cells of 3 seeds, 9 of 2, and
# 2 or 3 seeds of single cells.


@pytest.fixture(scope="module")
def bowl() -> Iterator[Paper]:
    """A paper of one's own, among the others."""
    with pytest.MonkeyPatch.context() as patch:
        own = str(Path(__file__).parents[1] / "own_papers")
        patch.setattr(descentlab.papers, "__path__", [*descentlab.papers.__path__, own])
        yield load("bowl")


def close(a: xr.Dataset, b: xr.Dataset, rtol: float = 1e-12) -> None:
    assert set(a.variables) == set(b.variables)
    for name in a.variables:
        np.testing.assert_allclose(a[name].values, b[name].values, rtol=rtol, err_msg=str(name))


def identical(a: xr.Dataset, b: xr.Dataset) -> None:
    assert set(a.variables) == set(b.variables)
    for name in a.variables:
        np.testing.assert_array_equal(a[name].values, b[name].values, err_msg=str(name))


# ---------------------------------------------------------------- grids


def test_values_are_listed_spaced_or_moved_together():
    assert axis(" eta = 0.1, 0.2 ") == Grid("eta", [{"eta": "0.1"}, {"eta": "0.2"}])
    assert axis("eta=linspace(0.1,0.3,3)").cells == [{"eta": 0.1}, {"eta": 0.2}, {"eta": 0.3}]
    assert axis("eta=logspace(100,1,3)").cells == [{"eta": 100.0}, {"eta": 10.0}, {"eta": 1.0}]
    assert axis("eta=linspace(-1,1,1)").cells == [{"eta": -1.0}]
    together = axis("d,eta=3:0.1,5:0.2")
    assert together.over == "d_eta"
    assert together.cells == [{"d": "3", "eta": "0.1"}, {"d": "5", "eta": "0.2"}]


def test_values_may_be_functions_of_ones_own():
    assert axis("ood=uniform,my_laws:heavy").cells == [{"ood": "uniform"}, {"ood": "my_laws:heavy"}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "over takes NAME=V1,V2,... or NAME=logspace(FIRST,LAST,COUNT), got ''."),
        ("eta", "over takes NAME=V1,V2,... or NAME=logspace(FIRST,LAST,COUNT), got 'eta'."),
        ("eta=", "got 'eta='."),
        ("=1,2", "got '=1,2'."),
        ("d,,eta=1:1:1", "got 'd,,eta=1:1:1'."),
        ("eta=1,,2", "over takes values separated by commas, got an empty one in 'eta=1,,2'."),
        ("d,eta=3:0.1,5:", "got an empty one in 'd,eta=3:0.1,5:'."),
        ("eta=linspace(0,1,1000001)", "a grid has at most 100,000 cells, got 1,000,001 by eta=linspace("),
        ("d,eta=3:0.1,5", "over takes 2 values for d,eta, joined by colons, got 'd,eta=3:0.1,5'."),
        ("d,eta=3:0.1:7", "over takes 2 values for d,eta, joined by colons, got 'd,eta=3:0.1:7'."),
        ("d,eta=logspace(1,2,3)", "over takes 2 values for d,eta, joined by colons"),
        ("eta=geomspace(1,2,3)", "over takes linspace(FIRST,LAST,COUNT) or logspace(FIRST,LAST,COUNT)"),
        ("eta=linspace(1,2)", "got 'eta=linspace(1,2)'."),
        ("eta=linspace(1,2,3,4)", "got 'eta=linspace(1,2,3,4)'."),
        ("eta=linspace(1,2,0)", "got 'eta=linspace(1,2,0)'."),
        ("eta=linspace(1,2,2.5)", "got 'eta=linspace(1,2,2.5)'."),
        ("eta=linspace(one,2,3)", "got 'eta=linspace(one,2,3)'."),
        ("eta=logspace(-1,2,3)", "the latter of positive numbers, got 'eta=logspace(-1,2,3)'."),
        ("eta=logspace(0,2,3)", "the latter of positive numbers, got 'eta=logspace(0,2,3)'."),
    ],
)
def test_what_is_no_axis_is_refused(words: str, message: str):
    with pytest.raises(SettingError) as caught:
        axis(words)
    assert message in str(caught.value)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("words", ["d=linspace(1,inf,3)", "d=linspace(nan,3,3)", "eta=logspace(1,inf,3)"])
def test_ends_that_are_no_numbers_are_refused(words: str, bowl: Paper):
    with pytest.raises(SettingError):
        cells(bowl.preset("tiny"), [axis(words)])


def test_cells_are_the_product_of_axes(bowl: Paper):
    base = bowl.preset("tiny")
    found = cells(base, [axis("eta=0.1,0.2,0.3"), axis("d,scale=2:1,4:2")])
    assert found.shape == (3, 2)
    assert found[2, 1] == base.replace(eta=0.3, d=4, scale=2.0)
    assert found[0, 0] == base.replace(d=2)


def test_spaced_whole_numbers_are_rounded_and_no_others(bowl: Paper):
    found = cells(bowl.preset("tiny"), [axis("d=logspace(2,50,4)")])
    assert [p.settings()["d"] for p in found] == [2, 6, 17, 50]
    # Where types are checked at run time, that is first.
    with pytest.raises((SettingError, TypeCheckError), match=r"2\.5"):
        cells(bowl.preset("tiny"), [Grid("d", [{"d": 2.5}])])


def test_grids_of_no_cells_and_of_too_many_are_refused(bowl: Paper):
    with pytest.raises(SettingError, match=r"over takes one value at least, got none of d\."):
        cells(bowl.preset("tiny"), [axis("eta=0.1,0.2"), Grid("d", [])])
    many = [axis("eta=linspace(0.1,0.2,1000)"), axis("d=linspace(1,1000,1000)")]
    with pytest.raises(SettingError, match="at most 100,000 cells, got 1,000,000 by eta x d"):
        cells(bowl.preset("tiny"), many)


@pytest.mark.parametrize("over", [["d=linspace(1,3,9)"], ["eta=0.1,0.2,1e-1"], ["d=3,5", "eta=0.1,0.10"]])
def test_values_that_are_the_same_after_all_are_refused(over: list[str], bowl: Paper):
    name = axis(over[-1]).over
    with pytest.raises(SettingError, match=f"over takes different values, got some of {name} twice"):
        cells(bowl.preset("tiny"), [axis(one) for one in over])


@pytest.mark.parametrize(
    "over",
    [
        ["eta=0.1,0.2", "eta=0.3,0.4"],
        ["eta=0.1,0.2", "d,eta=3:0.3,5:0.4"],
        ["d,eta=3:0.3,5:0.4", "eta=0.1,0.2"],
        ["eta,eta=0.1:0.3,0.2:0.4"],
    ],
)
def test_a_setting_is_swept_once(over: list[str], bowl: Paper):
    with pytest.raises(SettingError, match="over takes every setting once, got eta"):
        cells(bowl.preset("tiny"), [axis(one) for one in over])


@pytest.mark.parametrize(
    ("over", "message"),
    [
        (["eta=0.1,-2"], "cell eta=-2: eta takes a number > 0, got eta=-2.0."),
        (["eta=0.1", "d=3,abc"], "cell eta=0.1 d=abc: d takes a whole number"),
        (["nosuch=1,2"], "cell nosuch=1: nosuch is not a setting; there are d, scale, eta,"),
        (
            ["noise=0,5", "eta=1,0.1"],
            "cell noise=5 eta=0.1: noise takes a number <= 10 eta = 1, got noise=5.",
        ),
        (["start=zero,here"], "cell start=here: start takes one of zero, far, got start=here."),
        (["eta=linspace(-1,1,3)"], "cell eta=-1.0: eta takes a number > 0, got eta=-1.0."),
    ],
)
def test_a_wrong_cell_is_named(over: list[str], message: str, bowl: Paper):
    with pytest.raises(SettingError) as caught:
        cells(bowl.preset("tiny"), [axis(one) for one in over])
    assert message in str(caught.value)


def test_a_sweep_needs_an_axis(bowl: Paper, tmp_path: Path):
    with pytest.raises(
        SettingError, match=r"at least one NAME=V1,V2,\.\.\., got none; the studies of bowl.*bowls"
    ):
        sweep(bowl, "tiny", store=tmp_path / "store", pool=Here())
    assert not (tmp_path / "store").exists()


# ---------------------------------------------------------------- several presets at once


@pytest.fixture(scope="module")
def presets(bowl: Paper) -> list[Settings]:
    base = bowl.preset("tiny")
    return [base.replace(eta=eta, noise=noise) for eta, noise in ((0.1, 0.0), (0.2, 0.3), (0.05, 0.1))]


@pytest.mark.parametrize("room", [0, 8, 20])
def test_presets_together_equal_presets_alone(bowl: Paper, presets: list[Settings], room: int):
    together = rollouts(bowl.system, presets, range(1, 3), STEPS, room=room)
    assert len(together) == 3
    for preset, found in zip(presets, together, strict=True):
        alone = rollout(bowl.system, preset, range(1, 3), STEPS)
        close(found, alone)
        assert found["loss"].attrs == alone["loss"].attrs
        assert {k: v.dims for k, v in found.items()} == {k: v.dims for k, v in alone.items()}


def test_sizes_that_share_a_program_start_by_themselves(bowl: Paper):
    base = bowl.preset("tiny").replace(reduced=True)
    sizes = [base.replace(d=d, eta=eta) for d, eta in ((3, 0.1), (3, 0.2), (7, 0.3))]
    together = rollouts(bowl.system, sizes, range(2), STEPS, room=8)
    for preset, found in zip(sizes, together, strict=True):
        close(found, rollout(bowl.system, preset, range(2), STEPS))


def test_a_checkpoint_of_several_presets_comes_apart_and_together(
    bowl: Paper, presets: list[Settings], monkeypatch: pytest.MonkeyPatch
):
    whole = rollouts(bowl.system, presets, range(2), STEPS, room=8)
    kept: list[Checkpoint] = []
    monkeypatch.setattr("descentlab.engine._rollout.PIECE_SECONDS", 0.0)
    rollouts(bowl.system, presets, range(2), STEPS, room=8, keep=kept.append, keep_every=-1.0)
    middle = next(c for c in kept if c.step == 7)
    parts = [Checkpoint.from_arrays(middle.rows(slice(2 * i, 2 * i + 2)).arrays()) for i in range(3)]
    joined = rollouts(bowl.system, presets, range(2), STEPS, room=8, resume=Checkpoint.join(parts))
    for a, b in zip(whole, joined, strict=True):
        identical(a, b)
    close(rollout(bowl.system, presets[1], range(2), STEPS, resume=parts[1]), whole[1])


def test_rows_that_diverge_are_dated_like_single_runs(bowl: Paper, monkeypatch: pytest.MonkeyPatch):
    base = bowl.preset("tiny")
    steps = [0.1, 1e80, 1e40, 1e2, 0.2]
    several = [base.replace(eta=eta) for eta in steps]
    records = np.array([0, 20])
    expected = [rollout(bowl.system, p, range(2), records)["diverged_at"].values for p in several]
    found = [run["diverged_at"].values for run in rollouts(bowl.system, several, range(2), records, room=20)]
    np.testing.assert_array_equal(found, expected)
    # |w - c| grows by eta a step and passes 1.8e308; the last is not over by then, but its loss is too large.
    assert [int(one[0]) for one in found] == [-1, 4, 8, 20, -1]
    monkeypatch.setattr("descentlab.engine._rollout.PIECE_SECONDS", 0.0)
    cut = [run["diverged_at"].values for run in rollouts(bowl.system, several, range(2), records, room=20)]
    np.testing.assert_array_equal(cut, expected)


# ---------------------------------------------------------------- the whole

OVER = ["eta=logspace(0.05,0.4,4)", "scale=1,2,4"]
TWELVE = {"scale": "scale=logspace(1,64,12)", "eta": "eta=logspace(0.05,0.4,12)"}


def swept(paper: Paper, store: Store | Path, over: Any = OVER, seeds: int = 3, **further: Any) -> Sweep:
    return sweep(paper, further.pop("preset", "tiny"), over, seeds, store, Here(), **further)


@pytest.fixture(scope="module")
def product(bowl: Paper, tmp_path_factory: pytest.TempPathFactory) -> tuple[Sweep, Store]:
    """A product of two axes, enough cells for a program of their own."""
    store = Store(tmp_path_factory.mktemp("product"))
    return swept(bowl, store), store


@pytest.fixture(scope="module")
def lines(bowl: Paper, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Sweep], Store]:
    """Single axes with as many values as an exponent with an interval needs."""
    store = Store(tmp_path_factory.mktemp("lines"))
    return {name: swept(bowl, store, [over]) for name, over in TWELVE.items()}, store


def test_a_sweep_is_one_dataset_of_its_runs(bowl: Paper, product: tuple[Sweep, Store], history: History):
    result, store = product
    data = result.data
    assert (result.tally.cells, result.tally.stored, result.tally.done, result.tally.left) == (12, 0, 12, 0)
    assert dict(data.sizes) == {"eta": 4, "scale": 3, "seed": 3, "step": 4, "coordinate": 3}
    np.testing.assert_allclose(data["eta"], [0.05, 0.1, 0.2, 0.4], rtol=1e-12)
    np.testing.assert_array_equal(data["scale"], [1, 2, 4])
    np.testing.assert_array_equal(data["step"], [0, 1, 10, 20])
    assert data["loss"].dims == ("eta", "scale", "seed", "step")
    assert data["error"].dims == ("eta", "scale", "seed", "step", "coordinate")
    assert data["target"].dims == ("eta", "scale", "seed", "coordinate")
    assert data["progress"].dims == ("eta", "scale", "seed")
    assert data["loss"].attrs["description"] == "the loss"
    assert not any(str(name).startswith("final_") for name in data)
    assert data["eta"].attrs == {"description": "step size"}
    common = {k: v for k, v in bowl.preset("tiny").settings().items() if k not in ("eta", "scale")}
    assert json.loads(data.attrs["settings"]) == common
    assert not data["failed"].any()
    assert (data["diverged_at"] == -1).all()
    for eta in data["eta"].values:
        for scale in data["scale"].values:
            preset = bowl.preset("tiny").replace(eta=float(eta), scale=float(scale))
            alone = rollout(bowl.system, preset, range(3), bowl.records(preset))
            cell = data.sel(eta=eta, scale=scale)
            assert cell["run"] == identify(bowl, preset)
            for name in ("loss", "error", "target"):
                np.testing.assert_allclose(cell[name], alone[name], rtol=1e-12)
            progress = alone["loss"].values[:, 0] / alone["loss"].values[:, -1]
            np.testing.assert_allclose(cell["progress"], progress, rtol=1e-12)
    assert history(store) == {run: [[0, 3]] for run in data["run"].values.flat}
    assert store.problems() == []
    assert jobs_in_progress(store) == []


def test_exponents_are_those_of_the_bowl(product: tuple[Sweep, Store]):
    fits = product[0].exponents
    # The loss is |c|^2 (1 - eta)^(2 t) / 2: a power of the scale, and none of the step size.
    fit = fits["loss"]["scale"]
    assert (fit.value, fit.drift) == pytest.approx((2, 0), abs=1e-9)
    assert (fit.seeds, fit.points) == (3, 3)
    assert fits["progress"]["scale"].value == pytest.approx(0, abs=1e-9)
    assert fits["loss"]["eta"].drift < -1
    # Three scales and four step sizes do not show where a drift leads.
    for fit in fits["loss"].values():
        assert (fit.low, fit.high, fit.power_law) == (-math.inf, math.inf, None)
    assert "error" not in fits  # it has both signs


def test_seven_values_or_more_give_exponents_with_intervals(lines: tuple[dict[str, Sweep], Store]):
    fit = lines[0]["scale"].exponents["loss"]["scale"]
    assert (fit.value, fit.low, fit.high, fit.drift) == pytest.approx((2, 2, 2, 0), abs=1e-9)
    assert (fit.seeds, fit.points, fit.power_law, fit.left_out) == (3, 12, True, 0)
    # The slope in eta falls without end.
    fit = lines[0]["eta"].exponents["loss"]["eta"]
    assert fit.low == -math.inf
    assert fit.value == pytest.approx(fit.high)
    assert fit.drift < -1
    assert fit.power_law is False


def test_what_a_sweep_found_lies_in_the_store(product: tuple[Sweep, Store]):
    result, store = product
    folder = result.path.parent
    assert folder.parent == store.path / "sweeps"
    assert folder.name.startswith("bowl-")
    with xr.open_dataset(result.path) as opened:
        xr.testing.assert_equal(opened.load(), result.data)
    csv, parquet = pd.read_csv(folder / "table.csv"), pd.read_parquet(folder / "table.parquet")
    expected = scalars(result.data)
    for rows in (csv, parquet):
        assert len(rows) == 4 * 3 * 3
        assert {"eta", "scale", "seed", "loss", "error", "progress", "diverged_at", "failed", "run"} <= set(
            rows
        )
        in_order = rows.sort_values(["eta", "scale", "seed"])
        for name in ("loss", "error", "progress"):
            values = expected[name].transpose("eta", "scale", "seed").values.ravel()
            np.testing.assert_allclose(in_order[name].to_numpy(), values, rtol=1e-12, err_msg=name)
        assert list(in_order["run"][::3]) == list(result.data["run"].values.ravel())
    assert json.loads((folder / "exponents.json").read_text()) == result.as_json()["exponents"]


def test_what_is_stored_is_not_computed_again(bowl: Paper, product: tuple[Sweep, Store]):
    result, store = product
    before = {path: path.stat().st_mtime_ns for path in store.path.glob("bowl-*/*")}
    again = swept(bowl, store)
    assert (again.tally.stored, again.tally.done) == (12, 0)
    assert before == {path: path.stat().st_mtime_ns for path in store.path.glob("bowl-*/*")}
    xr.testing.assert_identical(again.data, result.data)
    assert again.path == result.path
    fewer = swept(bowl, store, seeds=2)
    assert fewer.tally.stored == 12
    xr.testing.assert_identical(fewer.data, result.data.isel(seed=slice(2)))
    assert fewer.path != result.path


def test_a_run_is_a_cell_and_a_cell_is_a_run(bowl: Paper, product: tuple[Sweep, Store], history: History):
    result, store = product
    preset = bowl.preset("tiny").replace(scale=2.0, eta=float(result.data["eta"][1]))
    run = running.run(bowl, preset, 3, store)
    assert history(store)[run.id] == [[0, 3]]
    np.testing.assert_array_equal(run.data["loss"], result.data["loss"].isel(eta=1, scale=1))


def test_two_seeds_and_two_values_have_no_interval_and_no_drift_in_json(bowl: Paper, tmp_path: Path):
    result = swept(bowl, tmp_path, ["scale=1,3"], seeds=2)
    fit = result.as_json()["exponents"]["loss"]["scale"]
    assert fit["value"] == pytest.approx(2)
    assert (fit["low"], fit["high"], fit["drift"]) == (None, None, None)
    assert json.loads((result.path.parent / "exponents.json").read_text())["loss"]["scale"] == fit
    json.dumps(result.as_json(), allow_nan=False)


def test_more_seeds_extend_a_sweep(bowl: Paper, tmp_path: Path, history: History):
    store, over = Store(tmp_path), ["eta=linspace(0.1,0.3,9)"]
    first = swept(bowl, store, over, seeds=2)
    more = swept(bowl, store, over, seeds=3)
    assert (more.tally.stored, more.tally.done) == (0, 9)
    assert history(store) == {run: [[0, 2], [2, 3]] for run in more.data["run"].values}
    np.testing.assert_array_equal(more.data["loss"].isel(seed=slice(2)), first.data["loss"])
    preset = bowl.preset("tiny").replace(eta=0.2)
    alone = rollout(bowl.system, preset, range(2, 3), bowl.records(preset))
    np.testing.assert_allclose(more.data["loss"].sel(eta=0.2, seed=[2]), alone["loss"], rtol=1e-12)


def test_many_values_of_a_number_share_one_program(bowl: Paper, tmp_path: Path):
    # More rows than a job takes: the jobs share the program too.
    base = bowl.preset("tiny").replace(d=5)
    jobs = plan(bowl, cells(base, [axis("eta=linspace(0.1,0.4,64)")]), 3, Store(tmp_path))
    assert len(jobs) == 2
    assert len({job.room for job in jobs}) == 1
    before = bowl.system.advance._cache_size()  # type: ignore[attr-defined]
    result = swept(bowl, tmp_path, ["eta=linspace(0.1,0.4,64)"], preset=base)
    assert result.tally.done == 64
    assert bowl.system.advance._cache_size() - before == 1  # type: ignore[attr-defined]
    loss = result.data["loss"]
    factor = (1 - result.data["eta"]) ** (2 * loss["step"])
    np.testing.assert_allclose(loss, (loss.isel(step=0) * factor).transpose(*loss.dims), rtol=1e-10)


def test_few_cells_go_through_the_program_of_a_single_run(bowl: Paper, tmp_path: Path):
    preset = bowl.preset("tiny").replace(d=4)
    before = bowl.system.advance._cache_size()  # type: ignore[attr-defined]
    running.run(bowl, preset, 2, Store(tmp_path))
    assert bowl.system.advance._cache_size() == before + 1  # type: ignore[attr-defined]
    swept(bowl, tmp_path, ["eta=0.2,0.3"], seeds=2, preset=preset)
    assert bowl.system.advance._cache_size() == before + 1  # type: ignore[attr-defined]


class Stops(Progress):
    """Someone who presses Ctrl-C at a step."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.said: list[str] = []

    def step(self, step: int, loss: float) -> None:
        if step >= self.at:
            raise KeyboardInterrupt

    def say(self, message: str) -> None:
        self.said.append(message)


def test_a_group_that_was_cut_goes_on_from_its_checkpoints(
    bowl: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: History
):
    grid = cells(bowl.preset("tiny").replace(noise=0.2), [axis("eta=linspace(0.1,0.3,9)")])
    whole, cut = Store(tmp_path / "whole"), Store(tmp_path / "cut")
    [job] = plan(bowl, grid, 2, whole)
    assert {one.outcome for one in perform(job, whole)} == {"done"}
    monkeypatch.setattr("descentlab.running._worker.KEEP_SECONDS", -1.0)
    monkeypatch.setattr("descentlab.engine._rollout.PIECE_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        list(perform(job, cut, Stops(8)))
    names = [identify(bowl, preset) for preset in grid]
    for name in names:
        kept = cut.kept(name, 0, 2)
        assert kept is not None
        assert kept[0] == range(2)
        assert int(kept[1]["step"]) == 7
    # One of them has lost its checkpoint, and another is further than the rest.
    cut.drop(names[3], 2)
    alone = Job("bowl", (grid[5],), 0, 2)
    with pytest.raises(KeyboardInterrupt):
        list(perform(alone, cut, Stops(15)))
    progress = Stops(1000)
    assert {one.outcome for one in perform(job, cut, progress)} == {"done"}
    assert [message.split()[-1] for message in progress.said] == ["7", "14"]
    for name in names:
        a, b = whole.read(name), cut.read(name)
        assert a is not None
        assert b is not None
        close(a, b)
    assert history(cut) == {name: [[0, 2]] for name in names}
    assert not list(cut.path.glob("*/checkpoint-*"))


def test_a_cell_that_another_process_holds_is_left_to_it(bowl: Paper, tmp_path: Path):
    store = Store(tmp_path)
    grid = cells(bowl.preset("tiny"), [axis("eta=linspace(0.1,0.3,8)")])
    [job] = plan(bowl, grid, 1, store)
    with store.lock(identify(bowl, grid[2])):
        outcomes = {one.preset: one.outcome for one in perform(job, store)}
    assert [outcomes[preset] for preset in grid] == ["done", "done", "busy", *["done"] * 5]
    assert store.read(identify(bowl, grid[2])) is None


# ---------------------------------------------------------------- cells that fail or diverge


class Said(Progress):
    """Remembers what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, message: str) -> None:
        self.said.append(message)


@pytest.mark.parametrize("count", [3, 12], ids=["one after another", "together"])
def test_a_cell_that_raises_is_alone_in_that(
    bowl: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
):
    module: ModuleType = bowl.module
    store, over = Store(tmp_path), [f"eta=linspace(0.1,0.5,{count})"]
    progress = Said()
    with monkeypatch.context() as patch:
        patch.setattr(module, "UNLUCKY", {0.5})
        result = swept(bowl, store, over, progress=progress)
        data, tally = result.data, result.tally
        [(preset, error)] = tally.failed.items()
        assert preset == bowl.preset("tiny").replace(eta=0.5)
        assert error == "ArithmeticError: eta=0.5 is unlucky"
        assert (tally.done, tally.stored, tally.left) == (count - 1, 0, 0)
        assert progress.said == [f"failed: bowl eta=0.5: {error}"]
        np.testing.assert_array_equal(data["failed"], [False] * (count - 1) + [True])
        assert np.isnan(data["loss"].isel(eta=-1)).all()
        assert np.isfinite(data["loss"].isel(eta=slice(-1))).all()
        record = json.loads((store.folder(identify(bowl, preset)) / "failed.json").read_text())
        assert record["error"] == error
        assert record["settings"] == preset.settings()
        assert "in probes" in record["trace"]
        assert record["versions"]["jax"]
        document = result.as_json()
        assert document["failed"] == 1
        assert document["errors"] == [{"settings": preset.settings(), "error": error}]
        with xr.open_dataset(result.path) as opened:
            xr.testing.assert_equal(opened.load(), data)
        rows = pd.read_csv(result.path.parent / "table.csv")
        np.testing.assert_array_equal(rows["failed"], rows["eta"] == 0.5)
        np.testing.assert_array_equal(np.isnan(rows["loss"]), rows["failed"])
    # It would succeed now, but is left alone until someone asks.
    skipped = swept(bowl, store, over)
    assert skipped.tally.failed == {preset: error}
    assert (skipped.tally.stored, skipped.tally.done) == (count - 1, 0)
    again = swept(bowl, store, over, retry=True)
    assert (again.tally.failed, again.tally.stored, again.tally.done) == ({}, count - 1, 1)
    assert not again.data["failed"].any()
    assert not list(store.path.glob("*/failed.json"))


def test_a_sweep_in_which_all_fail_says_so(bowl: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bowl.module, "UNLUCKY", {0.5, 0.25})
    result = swept(bowl, tmp_path, ["eta=0.25,0.5"])
    assert len(result.tally.failed) == 2
    assert result.exponents == {}
    assert result.data["failed"].all()
    assert result.over() == {"eta": [0.25, 0.5]}
    assert draw_all(result, tmp_path / "out") == []


def test_what_failed_is_not_shown_as_running(bowl: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bowl.module, "UNLUCKY", {0.5})
    job, store = Job("bowl", (bowl.preset("tiny").replace(eta=0.5),), 0, 2), Store(tmp_path)
    [result] = perform(job, store)
    assert result.outcome == "failed"
    assert jobs_in_progress(store) == []


def test_an_error_is_raised_where_one_run_is_asked_for(
    bowl: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bowl.module, "UNLUCKY", {0.5})
    with pytest.raises(ArithmeticError, match="unlucky"):
        running.run(bowl, bowl.preset("tiny").replace(eta=0.5), 2, Store(tmp_path))


def test_cells_that_diverge_are_named_and_left_out_of_exponents(bowl: Paper, tmp_path: Path):
    result = swept(bowl, tmp_path, ["eta=0.1,0.2,0.3,1e80", "scale=1,2,4"])
    assert set(result.diverged()) == {f"eta=1e+80 scale={scale}" for scale in (1.0, 2.0, 4.0)}
    assert result.tally.failed == {}
    alone = rollout(bowl.system, bowl.preset("tiny").replace(eta=1e80), range(3), STEPS)
    marks = result.data["diverged_at"].sel(eta=1e80, scale=1)
    np.testing.assert_array_equal(marks, alone["diverged_at"])
    where = ", ".join(f"seed {seed} at step {int(marks[0])}" for seed in range(3))
    assert result.diverged()["eta=1e+80 scale=1.0"] == where
    assert result.exponents["loss"]["scale"].value == pytest.approx(2, abs=1e-9)
    assert result.exponents["loss"]["scale"].left_out == 3
    assert math.isfinite(result.exponents["loss"]["eta"].value)


# ---------------------------------------------------------------- grids of all kinds


def test_words_and_switches_are_axes_too(bowl: Paper, tmp_path: Path):
    result = swept(bowl, tmp_path, ["start=zero,far", "reduced=true,false"], seeds=2)
    data = result.data
    assert list(data["start"].values) == ["zero", "far"]
    np.testing.assert_array_equal(data["reduced"], [True, False])
    assert data["loss"].dims == ("start", "reduced", "seed", "step")
    assert result.over() == {"start": ["zero", "far"], "reduced": [True, False]}
    assert result.exponents == {}
    with xr.open_dataset(result.path) as opened:
        xr.testing.assert_equal(opened.load(), data)
    near, far = (float(data["loss"].sel(start=s, reduced=False)[0, 0]) for s in ("zero", "far"))
    assert far > 100 * near


@pytest.mark.parametrize("values", ["true,false", "false,true"])
def test_cells_that_lack_a_probe_are_nan_there(values: str, bowl: Paper, tmp_path: Path):
    data = swept(bowl, tmp_path, [f"reduced={values}"], seeds=2).data
    assert data["target"].dims == ("reduced", "seed", "coordinate")
    assert np.isnan(data["target"].sel(reduced=True)).all()
    assert np.isfinite(data["target"].sel(reduced=False)).all()
    assert np.isfinite(data["loss"]).all()


def test_a_setting_may_be_called_like_a_probe_its_dimension_or_time(tmp_path: Path):
    paper, store, coords = load("attention_kernels"), Store(tmp_path), {"seed": [0, 1], "step": [0, 1, 2]}
    over = ["step=fixed,curvature", "kernel=softmax,gaussian", "delta=0.1,0.2"]
    for i, preset in enumerate(cells(paper.preset("tiny"), [axis(one) for one in over]).flat):
        # Runs as they might be: what is gathered from runs does not depend on who computed them.
        run = xr.Dataset(
            {
                "loss": (("seed", "step"), np.full((2, 3), float(i))),
                "floor": (("seed", "kernel"), np.full((2, 2), 10.0 + i)),
                "delta": ("seed", np.full(2, 20.0 + i)),
                "diverged_at": ("seed", np.full(2, -1)),
            },
            coords,
        )
        with store.lock(identify(paper, preset)):
            absorb(paper, preset, run, 0.0, store)
    result = swept(paper, store, over, 2)
    assert (result.tally.stored, result.tally.done) == (8, 0)
    data, dims = result.data, ("setting_step", "kernel", "delta", "seed")
    assert list(data["setting_step"].values) == ["fixed", "curvature"]
    assert data["floor"].dims == (*dims, "probe_kernel")
    assert data["probe_delta"].dims == dims
    assert data["loss"].dims == (*dims, "step")
    assert list(data["step"].values) == [0, 1, 2]
    np.testing.assert_array_equal(data["loss"][..., 0, 0].values.ravel(), np.arange(8))
    np.testing.assert_array_equal(data["probe_delta"].sel(delta=0.2)[..., 0].values.ravel(), [21, 23, 25, 27])
    with xr.open_dataset(result.path) as opened:
        xr.testing.assert_equal(opened.load(), data)


def test_diverged_cells_are_told_apart_by_their_grid(bowl: Paper, tmp_path: Path):
    over = {name: [Grid("eta", [{"eta": 1e80}])] for name in ("first", "second")}
    result = sweep(bowl, "tiny", over, 2, tmp_path, Here())
    assert list(result.diverged()) == ["first: eta=1e+80", "second: eta=1e+80"]
    assert result.over() == {"eta": [1e80]}


def test_probes_of_different_sizes_are_averaged_and_other_records_left_out(bowl: Paper, tmp_path: Path):
    result = swept(bowl, tmp_path, ["d,steps=2:10,5:20"], seeds=3)
    data = result.data
    assert data["loss"].dims == ("d_steps", "seed")
    assert data["error"].dims == ("d_steps", "seed")
    assert data["target"].dims == ("d_steps", "seed")
    np.testing.assert_array_equal(data["d"], [2, 5])
    np.testing.assert_array_equal(data["steps"], [10, 20])
    assert data["d"].dims == data["steps"].dims == ("d_steps",)
    for i, (d, steps) in enumerate(((2, 10), (5, 20))):
        run = running.run(bowl, bowl.preset("tiny").replace(d=d, steps=steps), 3, Store(tmp_path)).data
        np.testing.assert_allclose(data["loss"][i], run["loss"].isel(step=-1))
        np.testing.assert_allclose(data["target"][i], run["target"].mean("coordinate"))
    assert set(result.exponents["loss"]) == {"d", "steps"}
    assert result.over() == {"d": [2, 5], "steps": [10, 20]}


@pytest.fixture(scope="module")
def study(bowl: Paper, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep(bowl, "bowls", seeds=3, store=tmp_path_factory.mktemp("study"), pool=Here())


def test_a_study_is_several_grids_in_one_file(study: Sweep, tmp_path: Path):
    result = study
    assert set(result.grids) == {"line", "map"}
    assert result.tally.cells == 10  # two cells are in both
    np.testing.assert_array_equal(result.grids["line"]["scale"], [1, 2, 4])
    assert result.grids["map"]["loss"].dims == ("eta", "scale", "seed", "step")
    with xr.open_datatree(result.path, engine="h5netcdf") as tree:
        for name, data in result.grids.items():
            xr.testing.assert_equal(tree[name].to_dataset().load(), data)
    folder = result.path.parent
    assert len(pd.read_csv(folder / "table_line.csv")) == 3 * 3
    assert len(pd.read_parquet(folder / "table_map.parquet")) == 9 * 3
    with pytest.raises(ValueError, match=r"several grids: take grids\[NAME\] of line, map\."):
        _ = result.data
    drawn = draw_all(result, tmp_path / "out")
    assert {path.name for path in drawn} == {
        f"{grid}_{name}.png" for grid in ("line", "map") for name in ("loss", "error", "target", "progress")
    }
    assert all(path.stat().st_size > 5000 for path in drawn)
    assert {"data.nc", "table_line.csv", "table_map.csv", "exponents.json"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    assert plt.get_fignums() == []


def fits_in(tree: Any) -> int:
    return 1 if isinstance(tree, Fit) else sum(fits_in(branch) for branch in tree.values())


def test_grids_of_a_study_do_not_hide_each_others_exponents(study: Sweep):
    own = [fits_in(exponents(data)) for data in study.grids.values()]
    assert all(own)
    assert fits_in(study.exponents) == sum(own)


def test_one_axis_takes_the_place_of_a_studys_own(bowl: Paper, tmp_path: Path):
    result = sweep(bowl, "bowls", ["scale=1,2"], 2, tmp_path, Here())
    assert set(result.grids) == {""}
    assert result.tally.cells == 2


def test_a_study_is_a_preset_with_claims_and_figures_of_its_own(bowl: Paper):
    assert list(bowl.presets) == ["tiny", "quick", "paper", "bowls"]
    assert bowl.preset("bowls") == bowl.preset("tiny").replace(noise=0.1)
    assert list(bowl.readings(bowl.preset("tiny"))) == ["progress"]
    for paper in map(load, ("sign_descent", "bilinear_teachers")):
        for name, study in paper.studies.items():
            assert {figure.name for figure in paper.figures_of(name)} == set(study.figures)
            assert {claim.name for claim in paper.claims_of(name)} == set(study.claims)
            for grid in study.grids.values():
                cells(study.preset, grid)
        own = {f.name for f in paper.figures if f.presets and "tiny" not in f.presets}
        assert own.isdisjoint(figure.name for figure in paper.figures_of("tiny"))


# ---------------------------------------------------------------- what people see


class Looks(Progress):
    def __init__(self, look: Callable[[], None]) -> None:
        self.look = look

    def step(self, step: int, loss: float) -> None:
        self.look()


@pytest.fixture(scope="module")
def seen(bowl: Paper, tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """What was in progress at each moment while two cells were computed one after another, and afterwards."""
    store, found = Store(tmp_path_factory.mktemp("progress")), []
    [job] = plan(bowl, cells(bowl.preset("tiny"), [axis("eta=0.2,0.3")]), 2, store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("descentlab.running._progress.EVERY_SECONDS", -1.0)
        list(perform(job, store, Looks(lambda: found.append(jobs_in_progress(store)))))
    return [*found, jobs_in_progress(store)]


def test_a_job_is_in_progress_while_it_is_computed(seen: list[list[dict[str, Any]]]):
    assert [len(one) for one in seen] == [1] * (len(seen) - 1) + [0]
    assert list(dict.fromkeys(one["label"] for [one] in seen[:-1])) == ["bowl eta=0.2", "bowl eta=0.3"]
    [last] = seen[-2]
    assert (last["seeds"], last["step"], last["steps"]) == (2, 20, 20)
    assert last["loss"] > 0
    assert last["seconds_left"] == 0


def test_a_job_in_progress_counts_the_cells_that_are_being_computed(seen: list[list[dict[str, Any]]]):
    assert {one["cells"] for [one] in seen[:-1]} == {1}


def test_progress_files_of_dead_processes_are_removed(tmp_path: Path):
    store = Store(tmp_path)
    with ProgressFile(store, ["bowl-1"], "bowl", 20, 1) as file:
        assert [one["label"] for one in jobs_in_progress(store)] == ["bowl"]
        about = json.loads(file.path.read_text())
        file.path.write_text(json.dumps(about | {"pid": 2**22 + 1}))
        assert jobs_in_progress(store) == []
        assert not file.path.exists()
        # Another process has got the number of one that died.
        file.path.write_text(json.dumps(about | {"since": "1"}))
        assert jobs_in_progress(store) == []
        file.path.write_text("{")
        assert jobs_in_progress(store) == []


def command(*words: str, store: Store) -> Any:
    return CliRunner().invoke(app, ["sweep", "bowl", "tiny", *words, "--store", str(store.path)])


def test_the_command_line_prints_exponents_and_computes_nothing_again(product: tuple[Sweep, Store]):
    result, store = product
    over = [word for one in OVER for word in ("--over", one)]
    before = {path: path.stat().st_mtime_ns for path in store.path.glob("bowl-*/*")}
    done = command(*over, "--seeds", "3", store=store)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        "quantity",
        "in",
        "exponent",
        "95",
        "%",
        "interval",
        "drift",
        "cells",
        "left",
        "out",
    ]
    found = {tuple(line.split()[:2]): line.split() for line in lines}
    assert found["loss", "scale"][2:4] == ["2", "-"]
    assert found["loss", "scale"][-1] == "?"
    assert "?: more values (at least 7) or more seeds would tell whether it is a power" in lines
    assert done.stderr == "12 cells: 12 in the store, 0 done, 0 failed, 0 running, 0 to go\n"
    assert lines[-1] == str(result.path.resolve())
    assert before == {path: path.stat().st_mtime_ns for path in store.path.glob("bowl-*/*")}


def test_the_command_line_prints_intervals_and_what_bends(lines: tuple[dict[str, Sweep], Store]):
    printed = {
        name: command("--over", over, "--seeds", "3", store=lines[1]).stdout.splitlines()
        for name, over in TWELVE.items()
    }
    rows = {
        name: next(row for row in map(str.split, own) if row[:2] == ["loss", name])
        for name, own in printed.items()
    }
    assert rows["scale"][2:5] == ["2", "[2,", "2]"]
    assert rows["scale"][-2:] == ["a", "power"]
    assert rows["eta"][3] == "[-inf,"
    assert rows["eta"][-1] == "bends"
    assert "bends: the slope changes over the range, so there is no exponent" in printed["eta"]


def test_the_command_line_says_what_failed_and_what_diverged(
    bowl: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bowl.module, "UNLUCKY", {0.5})
    words = ["--over", "eta=0.1,0.5,1e200", "--seeds", "2"]
    printed = command(*words, "--json", store=Store(tmp_path))
    assert printed.exit_code == 1
    document = json.loads(printed.stdout)
    assert (document["cells"], document["failed"]) == (3, 1)
    assert document["errors"][0]["error"] == "ArithmeticError: eta=0.5 is unlucky"
    [(cell, where)] = document["diverged"].items()
    assert cell == "eta=1e+200"
    assert where.startswith("seed 0 at step ")
    assert "failed: bowl eta=0.5: ArithmeticError: eta=0.5 is unlucky" in printed.stderr
    again = command(*words, store=Store(tmp_path))
    assert again.exit_code == 1
    assert f"eta=1e+200 diverged: {where}" in again.stdout
    assert "bowl eta=0.5 failed: ArithmeticError: eta=0.5 is unlucky; --retry runs it again" in again.stdout
    monkeypatch.setattr(bowl.module, "UNLUCKY", set())
    mended = command("--over", "eta=0.1,0.5", "--seeds", "2", "--retry", store=Store(tmp_path))
    assert mended.exit_code == 0, mended.output


@pytest.mark.parametrize("words", [["--set", "eta=0.5"], ["--steps", "3"]])
def test_what_is_swept_cannot_be_set(words: list[str], tmp_path: Path):
    over = ["--over", "eta,steps=0.1:10,0.2:20"]
    with pytest.raises(SettingError, match=r"(eta|steps) is swept or set, got --over \1 and \1="):
        CliRunner().invoke(
            app, ["sweep", "bowl", "tiny", *over, *words, "--store", str(tmp_path)], catch_exceptions=False
        )


class Counts(Progress):
    """Remembers how many cells were done when."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def overview(self, tally: Tally) -> None:
        self.done.append(tally.done)


def test_cells_count_as_done_one_by_one(bowl: Paper, tmp_path: Path):
    """Though they are one job, as few cells of a shape are."""
    progress = Counts()
    swept(bowl, tmp_path, ["eta=0.1,0.2,0.3"], progress=progress)
    assert progress.done == [0, 1, 2, 3]


def test_seeds_that_do_not_fit_together_are_computed_in_blocks(
    bowl: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    begun: list[int] = []

    class Counts(Progress):
        def begin(self, label: str, steps: int, seeds: int, cells: int) -> None:
            begun.append(seeds)

    preset = bowl.preset("tiny").replace(noise=0.2)
    whole = running.run(bowl, preset, 7, tmp_path / "whole", progress=Counts())
    row = bowl.system_of(preset).bytes_of_a_row(preset, len(bowl.records(preset)))
    monkeypatch.setattr("descentlab.running._worker.MOST_BYTES", 3 * row)
    blocks = running.run(bowl, preset, 7, tmp_path / "blocks", progress=Counts())
    assert begun == [7, 3, 3, 1]
    identical(whole.data, blocks.data)
