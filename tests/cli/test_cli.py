"""The command line as people script against it, in processes of its own."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from descentlab.cli import main
from descentlab.papers import load
from descentlab.running import Here
from descentlab.showing.gallery import usual_preset
from descentlab.showing.reproduce import reproduce
from descentlab.store import Store

TINY = ["sign_descent", "tiny"]
SMALL = [
    "--set",
    "n=4",
    "--set",
    "d=50",
    "--set",
    "s=5",
    "--set",
    "m_k=8",
    "--set",
    "m_v=8",
    "--set",
    "n_test=20",
]


def descentlab(
    *words: str, store: Path | None = None, timeout: int = 300, **options
) -> subprocess.CompletedProcess[str]:
    where = ["--store", str(store)] if store else []
    command = [sys.executable, "-m", "descentlab", *words, *where]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)


def refused(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """The command line, here, refuses its usage."""
    monkeypatch.setattr(sys, "argv", ["descentlab", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2


@pytest.mark.slow
def test_papers_lists_what_there_is():
    done = descentlab("papers", "--json")
    assert done.returncode == 0, done.stderr
    [paper] = [p for p in json.loads(done.stdout) if p["paper"] == "sign_descent"]
    assert {"quick", "paper"} <= set(paper["presets"])
    assert "value_noise_grows_linearly" in paper["claims"]
    assert "sign_descent" in descentlab("papers").stdout
    one = descentlab("papers", "decision_lists").stdout
    assert one.startswith("decision_lists: ")
    assert "value_noise_grows_linearly" not in one
    wrong = descentlab("papers", "nothing")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "there is no paper nothing; there are attention_kernels, " in wrong.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", *TINY, "--set", "d=-3"], "d takes a whole number >= 2 and <= 100000, got d=-3."),
        (["run", *TINY, "--set", "nosuch=1"], "nosuch is not a setting; there are n, d, s,"),
        (["judge", *TINY, "--set", "n=abc"], "n takes a whole number >= 1 and <= 10000, got n=abc."),
        (["run", *TINY, "--set", "s=400"], "s takes a whole number <= d - 1 = 399, got s=400."),
        (
            ["run", *TINY, "--set", "optimizer=lion"],
            "optimizer takes one of sign, adam, gd, proximal, got optimizer=lion.",
        ),
        (["run", *TINY, "--steps", "0"], "steps takes a whole number >= 1 and <= 1e+08, got steps=0."),
        (["run", "nosuch"], "there is no paper nosuch; there are"),
        (
            ["run", "sign_descent", "nosuch"],
            "sign_descent has no preset nosuch; there are tiny, quick, paper, mnist_tiny, mnist_small,",
        ),
        (
            ["judge", *TINY, "--claims", "nosuch"],
            "sign_descent tiny has no claim nosuch; there are value_noise",
        ),
        (["judge", *TINY, "--expect", "nosuch.json"], "--expect takes a file written by `judge --json`"),
        (["run", *TINY, "--seeds", "0"], "seeds takes a whole number >= 1, got seeds=0."),
        (["reproduce", "--scale", "huge"], "has no preset huge"),
        (["sweep", *TINY, "--over", "s=5,-3"], "cell s=-3: s takes a whole number >= 1, got s=-3."),
        (
            ["sweep", *TINY, "--over", "s=5,6", "--cluster", "localhost:8786"],
            "cluster takes a scheduler's address such as tcp://host:8786",
        ),
    ],
)
def test_wrong_usage_is_refused_before_anything_runs(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    refused(monkeypatch, [*words, "--store", str(tmp_path / "store")])
    out, err = capsys.readouterr()
    assert message in " ".join(err.replace("│", " ").split())
    assert out == ""
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_wrong_usage_ends_a_process_with_exit_code_2(tmp_path: Path):
    done = descentlab("run", *TINY, "--set", "d=-3", store=tmp_path / "store")
    assert done.returncode == 2
    assert done.stderr == "descentlab: d takes a whole number >= 2 and <= 100000, got d=-3.\n"
    assert done.stdout == ""


@pytest.mark.slow
def test_run_prints_one_json_document(tmp_path: Path):
    words = ["run", *TINY, *SMALL, "--steps", "30", "--seeds", "3", "--json"]
    done = descentlab(*words, store=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert list(result) == [
        "paper",
        "preset",
        "settings",
        "run",
        "path",
        "steps",
        "seeds",
        "seconds",
        "final",
    ]
    assert (result["steps"], result["seeds"], result["settings"]["d"]) == (30, 3, 50)
    loss = result["final"]["training_loss"]
    with xr.open_dataset(result["path"]) as data:
        np.testing.assert_array_equal(data["training_loss"].isel(step=-1), loss["values"])
    assert loss["mean"] == pytest.approx(np.mean(loss["values"]))
    # The same run again reads the store; more seeds extend it, and the first ones stay.
    again = json.loads(descentlab(*words, store=tmp_path).stdout)
    assert again == result
    words[words.index("3")] = "5"
    more = json.loads(descentlab(*words, store=tmp_path).stdout)
    assert more["run"] == result["run"]
    assert more["final"]["training_loss"]["values"][:3] == loss["values"]
    assert len(more["final"]["training_loss"]["values"]) == 5


TEACHERS = ["bilinear_teachers", "tiny", "--set", "detail=false", "--steps", "10", "--seeds", "2"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A small sweep, its store and its folder of figures."""
    folder = tmp_path_factory.mktemp("swept")
    words = ["sweep", *TEACHERS, "--over", "eta=0.1,0.2", "--over", "V_scale=logspace(1,4,3)"]
    return folder, descentlab(*words, "--out", str(folder / "out"), "--json", store=folder / "store")


@pytest.mark.slow
def test_sweep_prints_one_json_document(swept: tuple[Path, subprocess.CompletedProcess[str]]):
    folder, done = swept
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert list(result) == [
        "paper", "preset", "settings", "over", "seeds", "path", "cells", "stored", "failed", "errors",
        "diverged", "exponents",
    ]  # fmt: skip
    assert (result["paper"], result["preset"], result["seeds"]) == ("bilinear_teachers", "tiny", 2)
    assert result["settings"]["steps"] == 10
    assert result["over"] == {"eta": [0.1, 0.2], "V_scale": [1.0, 2.0, 4.0]}
    assert (result["cells"], result["stored"], result["failed"]) == (6, 0, 0)
    assert (result["errors"], result["diverged"]) == ([], {})
    fit = result["exponents"]["teacher_norm"]["V_scale"]
    assert fit["value"] == pytest.approx(1)
    # Three values have no interval.
    assert (fit["low"], fit["high"], fit["seeds"], fit["points"]) == (None, None, 2, 3)
    assert Path(result["path"]).is_relative_to(folder / "store" / "sweeps")
    with xr.open_dataset(result["path"]) as data:
        assert data["excess_loss"].dims == ("eta", "V_scale", "seed", "step")
        assert data["excess_loss"].shape == (2, 3, 2, 11)
    assert "6 cells: 0 in the store, 6 done, 0 failed" in done.stderr


@pytest.mark.slow
def test_sweep_writes_tables_and_figures(swept: tuple[Path, subprocess.CompletedProcess[str]]):
    folder, done = swept
    out = folder / "out"
    named = {"data.nc", "table.csv", "table.parquet", "exponents.json", "excess_loss.png", "C_1.png"}
    assert named <= {path.name for path in out.iterdir()}
    assert (out / "table.csv").read_text().count("\n") == 1 + 6 * 2
    assert (out / "excess_loss.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((out / "exponents.json").read_text()) == json.loads(done.stdout)["exponents"]
    assert (out / "data.nc").read_bytes()


@pytest.mark.slow
def test_a_diverging_run_is_broken(tmp_path: Path):
    words = [*TINY, *SMALL, "--set", "sigma_p=1e200", "--steps", "20", "--seeds", "2"]
    done = descentlab("run", *words, "--json", store=tmp_path)
    assert done.returncode == 1
    assert "BROKEN: seed 0 diverged at step" in done.stderr
    assert json.loads(done.stdout)["final"]["training_loss"]["mean"] is None
    alone = ["--claims", "query_key_noise_align", "--workers", "1", "--json"]
    judged = descentlab("judge", *words, *alone, store=tmp_path)
    assert judged.returncode == 1, judged.stderr
    [claim] = json.loads(judged.stdout)["claims"]
    assert claim["outcome"] == "BROKEN"
    assert "seed 0 at step" in claim["reason"]


@pytest.mark.slow
def test_judge_prints_every_claim_and_trains_nothing_twice(store: Store):
    words = ["judge", *TINY, "--seeds", "6", "--workers", "1", "--json"]
    done = descentlab(*words, store=store.path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert len(result["claims"]) >= 20
    needed = {"claim", "cite", "statement", "outcome", "value", "low", "high", "predicts", "seeds", "unmet"}
    needed |= {"range", "runs", "level"}
    for claim in result["claims"]:
        assert needed <= set(claim)
        assert all(run in store.ids() for run in claim["runs"])
    before = {path: path.stat().st_mtime_ns for path in store.path.rglob("*.nc")}
    expect = store.path / "expected.json"
    expect.write_text(done.stdout)
    again = descentlab(
        "judge",
        *TINY,
        "--seeds",
        "6",
        "--expect",
        str(expect),
        "--claims",
        "value_memorises_noise",
        "--json",
        store=store.path,
    )
    assert again.returncode == 0, again.stderr
    [claim] = json.loads(again.stdout)["claims"]
    assert claim == next(c for c in result["claims"] if c["claim"] == "value_memorises_noise")
    assert before == {path: path.stat().st_mtime_ns for path in before}
    changed = done.stdout.replace('"SUPPORTED"', '"REFUTED"')
    expect.write_text(changed)
    differs = descentlab("judge", *TINY, "--seeds", "6", "--expect", str(expect), store=store.path)
    assert differs.returncode == 3
    assert "recorded REFUTED" in differs.stderr


@pytest.mark.slow
def test_short_runs_are_out_of_regime(tmp_path: Path):
    words = ["judge", *TINY, *SMALL, "--steps", "20", "--seeds", "2", "--workers", "1", "--json"]
    done = descentlab(*words, store=tmp_path)
    claims = {c["claim"]: c for c in json.loads(done.stdout)["claims"]}
    assert claims["query_and_key_signals_oppose"]["outcome"] == "OUT_OF_REGIME"
    assert claims["query_and_key_signals_oppose"]["unmet"] == ["steps >= 40"]


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path: Path):
    words = ["run", *TINY, "--set", "detail=false", "--steps", "150000", "--seeds", "2", "--json"]
    whole = json.loads(descentlab(*words, store=tmp_path / "whole").stdout)
    rng, cut = random.Random(0), tmp_path / "cut"
    often = "from descentlab import cli; from descentlab.running import _worker; "
    often += "_worker.KEEP_SECONDS = 0.1; cli.main()"
    command = [sys.executable, "-c", often, *words, "--store", str(cut)]
    resumed = 0
    for _ in range(3):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        began = time.time()
        # Wait for a checkpoint of this process, so that a resumed run is killed too; then a random moment.
        while process.poll() is None and not any(
            path.stat().st_mtime > began for path in cut.glob("*/checkpoint-*.npz")
        ):
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        resumed += bool(list(cut.glob("*/checkpoint-*.npz")))
    assert resumed >= 2, "the run was over before it could be killed"
    done = descentlab(*words, store=cut)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["run"] == whole["run"]
    with xr.open_dataset(whole["path"]) as a, xr.open_dataset(result["path"]) as b:
        assert set(a) == set(b)
        for name in a:
            assert a[name].values.tobytes() == b[name].values.tobytes(), name
    assert not list(cut.glob("*/checkpoint-*.npz"))


@pytest.mark.slow
def test_report_trains_nothing(store: Store, tmp_path: Path):
    empty = descentlab("report", "--out", str(tmp_path / "report"), store=tmp_path / "empty")
    assert empty.returncode == 1
    assert "`descentlab reproduce` makes one" in empty.stderr
    assert not (tmp_path / "empty").exists()
    paper = load("bilinear_teachers")
    chosen = [(paper, paper.preset("tiny"))]
    path, broken = reproduce(chosen, "tiny", 6, store.path, tmp_path / "a", Here())
    assert path == tmp_path / "a" / "index.html"
    assert not broken
    # A copy of these runs: other tests write to the store they share.
    copy = tmp_path / "copy"
    for folder in store.path.glob("bilinear_teachers-*"):
        shutil.copytree(folder, copy / folder.name, ignore=shutil.ignore_patterns("*.tmp", ".*"))
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*.nc")}
    again = descentlab("report", "--out", str(tmp_path / "b"), store=copy)
    assert again.returncode == 0, again.stderr
    first, second = (json.loads((tmp_path / name / "verdicts.json").read_text()) for name in "ab")
    assert first == [section for section in second if section["preset"] == "tiny"]
    assert before == {path: path.stat().st_mtime_ns for path in copy.rglob("*.nc")}


@pytest.mark.slow
def test_doctor_finds_a_damaged_entry(tmp_path: Path):
    descentlab("run", *TINY, *SMALL, "--steps", "5", "--seeds", "1", store=tmp_path)
    healthy = descentlab("doctor", store=tmp_path)
    assert healthy.returncode == 0, healthy.stderr
    assert "compiled programs agree with NumPy" in healthy.stdout
    [data] = tmp_path.glob("*/*.nc")
    os.truncate(data, 1000)
    ill = descentlab("doctor", store=tmp_path)
    assert ill.returncode == 1
    assert f"{data.name} is damaged" in ill.stdout


@pytest.mark.slow
def test_a_store_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    done = descentlab("run", *TINY, *SMALL, "--steps", "5", "--seeds", "1", store=tmp_path / "file" / "store")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "file" in done.stderr


# ---------------------------------------------------------------- figures


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nosuch"], "sign_descent has no figure nosuch; there are figure_stage_one,"),
        (["--format", "jpg"], "format takes svg, png, pdf, got format=jpg."),
        (["--style", "wide"], "style takes drawn, column, text, slide, got style=wide."),
        (["figure_stage_one", "--preset", "nosuch"], "sign_descent has no preset nosuch; there are tiny,"),
        (["figure_noisy_mnist", "--preset", "tiny"], "sign_descent tiny has no figure figure_noisy_mnist;"),
        (["--seeds", "0"], "seeds takes a whole number >= 1, got seeds=0."),
    ],
)
def test_wrong_figures_are_refused_before_anything_runs(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    where = ["--out", str(tmp_path / "out"), "--store", str(tmp_path / "store")]
    refused(monkeypatch, ["figures", "sign_descent", *words, *where])
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_figures_are_written_for_print(store: Store, tmp_path: Path):
    words = ["figures", "bilinear_teachers", "3", "--preset", "tiny", "--seeds", "6", "--out", str(tmp_path)]
    for kind, start in (("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")):
        done = descentlab(*words, "--format", kind, "--style", "column", store=store.path)
        assert done.returncode == 0, done.stderr
        path = Path(done.stdout.strip())
        assert path == (tmp_path / f"bilinear_teachers_figure_3.{kind}").resolve()
        assert path.read_bytes().startswith(start)


def test_a_figure_of_a_branch_is_drawn_at_its_own_preset():
    paper = load("attention_kernels")
    at = {figure.name: usual_preset(paper, figure) for figure in paper.figures}
    assert at["rate_bounds"] == "quick"
    assert at["figure_1_imdb"] == "imdb"
    assert at["figure_3_pathfinder"] == "pathfinder_landscape"
