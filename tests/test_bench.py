"""Benchmarks: sides that differ are refused, formulas hold, and the document says what it should."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import agreement
import bench as runner
import document
import measuring
import workloads
from counts import Counts
from descentlab.cli import app
from descentlab.engine import _random as draws
from descentlab.engine._rollout import begun
from descentlab.papers import load

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PEAKS = {"dgemm": 1e9, "sgemm": 2e9, "functions_64": 1e8, "functions_32": 2e8, "words": 1e8, "normals": 5e7,
         "copy": 1e9}  # fmt: skip

SPENT = {"microseconds": 0.1, "operations": 30.0, "parts": {"products": 0.04, "between": 0.06}}


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, str(BENCHMARKS / "bench.py"), *words]
    return subprocess.run(script, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": "src"})


def side_module(name: str) -> Any:
    """A module of the laboratory's side."""
    spec = spec_from_file_location(name, BENCHMARKS / "lab" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- agreement


def saved(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return saved(tmp_path / "lab.npz", record=np.array([0, 1, 5]), loss=np.array([4.0, 2.0, 1.0]))


def test_equal_trajectories_agree_within_rounding(lab: Path, tmp_path: Path):
    other = saved(tmp_path / "t.npz", record=np.array([0, 1, 5]), loss=np.array([4.0, 2.0, 1.0 + 1e-13]))
    assert agreement.compare(lab, other, {"loss": 1e-12})["loss"] == pytest.approx(1e-13, rel=1e-2)


@pytest.mark.parametrize(
    ("record", "loss", "words"),
    [
        ([0, 1, 5], [4.0, 2.001, 1.0], "loss at step 1 differs by 5.0e-04"),
        ([0, 1, 5], [4.0, 2.0, np.nan], "loss at step 5 differs by inf"),
        ([0, 1, 6], [4.0, 2.0, 1.0], "different steps"),
        ([0, 1, 5], [[4.0], [2.0], [1.0]], "shape"),
    ],
)
def test_different_trajectories_give_no_ratio(lab: Path, tmp_path: Path, record, loss, words: str):
    other = saved(tmp_path / "torch.npz", record=np.array(record), loss=np.array(loss))
    with pytest.raises(agreement.DisagreementError, match=words):
        agreement.compare(lab, other, {"loss": 1e-6})


def test_a_lab_that_is_not_finite_does_not_agree_either(tmp_path: Path):
    both = [saved(tmp_path / f"{i}.npz", record=np.arange(1), loss=np.array([np.nan])) for i in range(2)]
    with pytest.raises(agreement.DisagreementError):
        agreement.compare(both[0], both[1], {"loss": 1.0})


# ---------------------------------------------------------------- the document


def measured() -> dict[str, Any]:
    """Two rounds of a workload, with numbers that a reader can check."""
    work = replace(
        workloads.named("bilinear_population"),
        seeds=(1,),
        goals={"1": 20.0},
        counts=lambda s: Counts(flops=1e3),
    )
    sides = {"lab_1": (0.1, 0.2), "eager": (2.0, 6.0), "compiled": (0.5, 0.5)}
    rounds: list[dict[str, Any]] = [
        {
            "took": {
                k: {"seconds": v[i], "processor_seconds": v[i], "seed_steps": 1e6} for k, v in sides.items()
            },
            "busy": 0.0,
        }
        for i in range(2)
    ]
    memory = {"peak_bytes": 2**30, "library_bytes": 2**28}
    own = measuring.of_lab(work, 1, rounds, ["eager", "compiled"], 0.1, PEAKS)
    own |= {"compile_seconds": 2.0, "spent": SPENT} | measuring.held(work, 1, memory)
    one = {
        "workload": work.name, "lab": [own], "stands_in_the_way": "small sums",
        "torch": {name: measuring.timing(rounds, name) for name in ("eager", "compiled")},
    }  # fmt: skip
    return {"machine": {"cores": 2, "instructions": "x86_64 avx2"}, "peaks": PEAKS, "repeats": 2, "alone": {},
            "workloads": [one], "failed": [], "busy": 0.0, "quiet": True}  # fmt: skip


def test_ratios_are_medians_of_rounds_with_their_range():
    own = measured()["workloads"][0]["lab"][0]
    assert own["ratio"]["eager"] == pytest.approx({"value": 25.0, "low": 20.0, "high": 30.0})
    assert own["met"] == {"eager": True}
    assert own["microseconds"] == pytest.approx(0.15)


def test_the_limit_is_the_least_time_at_the_measured_rates():
    limit = measured()["workloads"][0]["lab"][0]["limit"]
    assert limit["microseconds"] == pytest.approx(1.0)
    assert limit["share"] == pytest.approx(10.0)
    both = replace(workloads.named("simulation"), counts=lambda s: Counts(flops=2e3, normals=50, bytes=1e6))
    found = measuring.limit(both, PEAKS, 2000.0)
    assert found is not None
    # Memory, beside which the rest is done, takes a millisecond.
    assert found["share"] == pytest.approx(0.5)


def test_memory_beyond_its_bound_is_said():
    found = measured()
    assert not found["workloads"][0]["lab"][0]["within_bound"]
    assert any("beyond its bound" in line for line in document.remarks(found))


def test_the_page_has_every_workload_and_names_the_machine_by_its_kind():
    found = measured()
    page = document.markdown(json.loads(json.dumps(found, allow_nan=False)))
    assert "| bilinear_population | 1 | 0.15 | 4 | 25 (20 to 30) | 20 met |" in page
    assert "2 cores (x86_64 avx2)" in page
    busy = document.markdown(found | {"quiet": False, "busy": 0.5})
    assert "NOT A MEASUREMENT" in busy
    assert "NOT A MEASUREMENT" not in page


def test_the_page_says_where_the_time_goes_that_the_limit_does_not_explain():
    found = measured()
    own = found["workloads"][0]["lab"][0]
    assert list(document.far_from_limit(found)) == []
    own["limit"]["share"] = 0.2
    (line,) = document.far_from_limit(found)
    assert "Limit: 1 us: products 1 us. Measured: 0.1 us in 30 operations: products 0.04 us" in line
    assert line.endswith("small sums")
    own["spent"] = None
    (line,) = document.far_from_limit(found)
    assert line == "bilinear_population: Limit: 1 us: products 1 us. small sums"


def test_a_workload_whose_sides_differ_has_no_ratio_and_spares_the_others(monkeypatch: pytest.MonkeyPatch):
    sound = measured()["workloads"][0] | {"busy": 0.0}

    def measure(work: workloads.Workload, *_: Any) -> dict[str, Any]:
        if work.name == "simulation":
            raise agreement.DisagreementError("loss at step 3 differs")
        return sound

    monkeypatch.setattr(runner, "measure", measure)
    monkeypatch.setattr(runner, "require_torch", lambda torch: None)
    monkeypatch.setattr(runner, "measured_peaks", lambda: PEAKS)
    found = runner.bench(["bilinear_population", "simulation"], 2, Path("python"))
    assert [work["workload"] for work in found["workloads"]] == ["bilinear_population"]
    assert [(work["workload"], work["exit_code"]) for work in found["failed"]] == [("simulation", 1)]
    page = document.markdown(found)
    assert "simulation: NO RATIO. loss at step 3 differs" in page
    assert "| simulation |" not in page


# ---------------------------------------------------------------- where the time goes


@pytest.mark.parametrize("draw", [jax.random.normal, draws.normal])
def test_operations_are_told_apart_and_their_time_adds_up(draw: Any):
    profiling = side_module("profiling")

    @jax.jit
    def advance(key: jax.Array, A: jax.Array, x: jax.Array, first: int, last: int) -> jax.Array:
        def step(i: Any, x: jax.Array) -> jax.Array:
            return jnp.sort(A @ x, axis=0) + draw(jax.random.fold_in(key, i), x.shape, x.dtype)

        return jax.lax.fori_loop(first, last, step, x)

    arguments = (jax.random.key(0), jnp.eye(80) / 2, jnp.ones((80, 80)))
    found = profiling.profile(advance, arguments, 50, 1)
    assert (
        {"products", "random", "passes"} <= set(found["parts"]) <= {"products", "random", "passes", "between"}
    )
    assert all(value > 0 for value in found["parts"].values())
    assert sum(found["parts"].values()) == pytest.approx(found["microseconds"])
    assert found["operations"] >= 3


# ---------------------------------------------------------------- workloads


def test_every_workload_has_an_instance_and_a_reference():
    instances = side_module("instances")
    for work in workloads.WORKLOADS.values():
        assert work.over or (work.paper, work.kind) in instances.INSTANCES
        assert f'"{work.kind}"' in (BENCHMARKS / "reference" / f"{work.paper}.py").read_text()
        preset = load(work.paper).preset(work.preset).replace(work.settings)
        assert {k: preset.settings()[k] for k in work.settings} == work.settings
        assert work.bytes(work.sizes, 2) >= work.bytes(work.sizes, 1) > 0


def test_the_memory_formula_bounds_what_the_compiled_program_holds():
    work = workloads.named("sparse_bigrams_small")
    small = {"T": 20, "batch": 32}
    paper = load(work.paper)
    preset = paper.preset("quick").replace({**work.settings, **small}, steps=10)
    system, rows = paper.system_of(preset), 3
    advance: Any = system.advance
    found = advance.lower(*begun(system, preset, rows), 0, 10).compile().memory_analysis()
    held = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    assert held <= work.bytes(work.sizes | small, rows)


# ---------------------------------------------------------------- the command


def test_an_unknown_workload_is_refused_with_the_list():
    done = bench("nothing")
    assert done.returncode == 2
    assert "there is no workload nothing; there are sign_descent_sign, " in done.stderr
    assert done.stdout == ""


def test_a_missing_torch_is_said_with_what_gets_it(tmp_path: Path):
    done = bench("simulation", "--torch", str(tmp_path / "python"))
    assert done.returncode == 2
    assert "python benchmarks/torch_environment.py" in done.stderr


def test_the_list_is_one_document():
    assert set(json.loads(bench("--list", "--json").stdout)) == {*workloads.WORKLOADS, *workloads.ALONE}


def test_without_a_checkout_the_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    command = import_module("descentlab.cli.bench")
    assert command.benchmarks() == BENCHMARKS / "bench.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "__file__", str(tmp_path / "a" / "b" / "c" / "bench.py"))
    done = CliRunner().invoke(app, ["bench"])
    assert done.exit_code == 2
    assert "git clone" in done.output
