"""What the paper says of its MNIST experiment, with ReLU (`relu`) and LeakyReLU (`leaky`)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from descentlab.judging import Bounds, Claim, Datasets, Estimate, Interval, Mutant, mean

PRESETS = ("mnist_tiny", "mnist", "mnist_paper")
RUNS: dict[str, dict[str, Any]] = {"relu": {"activation": "relu"}, "leaky": {"activation": "leaky_relu"}}
BLOCK = 9  # patches that are pooled together
EDGE = 9  # the first and the last nine patches: the top and the bottom line
INNER = 81 - 2 * EDGE
UNIFORM = 16 / 9  # the error of a row of uniform attention
RECOVERED = 0.5  # the error of a row that counts as recovered
UNTRAINED = Mutant("hardly trained", settings={"eta": 1e-9})


def over_steps(run: xr.Dataset) -> dict[str, Bounds]:
    """The range of steps behind a measure of the end."""
    return {"step": (0.0, float(run["step"][-1]))}


def worse_of(
    measure: Callable[[xr.Dataset], np.ndarray], worst: Callable[..., Any], resolution: float = 0.0
) -> Callable[..., Estimate]:
    """The worse of both activations, by seed; each in the notes."""

    def measured(relu: xr.Dataset, leaky: xr.Dataset) -> Estimate:
        found = {"relu": measure(relu), "leaky_relu": measure(leaky)}
        notes = {name: float(own.mean()) for name, own in found.items()}
        for name, run in (("relu", relu), ("leaky_relu", leaky)):
            notes[f"{name}_teacher_accuracy"] = float(run["teacher_accuracy"].mean())
        return mean(worst(*found.values()), resolution=resolution, range=over_steps(relu), notes=notes)

    return measured


def left_of_loss(run: xr.Dataset) -> np.ndarray:
    """The loss at the end over that at the start, where the student says nothing."""
    return (run["loss"].isel(step=-1) / run["loss"].isel(step=0)).values


def cosine(run: xr.Dataset) -> np.ndarray:
    """The cosine of W_V and V* at the end."""
    return run["value_cosine"].isel(step=-1).values


def row_errors(run: xr.Dataset) -> np.ndarray:
    """The errors of the rows of S at the end, by seed and patch."""
    return run["row_error"].isel(step=-1).transpose("seed", "patch").values


def hits(run: xr.Dataset) -> np.ndarray:
    """The share of the largest entries of each row of S that are where S* has its own, by seed and patch."""
    S, T = (
        run[name].transpose("seed", "row", "column").values for name in ("attention", "teacher_attention")
    )
    largest = np.argsort(S, axis=2)[:, :, -BLOCK:]
    return (np.take_along_axis(T, largest, axis=2) > 0).mean(axis=2)


def inner_hits(run: xr.Dataset) -> np.ndarray:
    """The mean share of hits in the rows between the first and the last nine."""
    return hits(run)[:, EDGE:-EDGE].mean(axis=1)


def edge_hits(run: xr.Dataset) -> np.ndarray:
    """The same in the first and the last nine rows."""
    return np.delete(hits(run), np.s_[EDGE:-EDGE], axis=1).mean(axis=1)


def inner_recovered(run: xr.Dataset) -> np.ndarray:
    """The share of rows between the first and last nine that are recovered."""
    return (row_errors(run)[:, EDGE:-EDGE] < RECOVERED).mean(axis=1)


def edge_failed(run: xr.Dataset) -> np.ndarray:
    """The share of the first and last nine rows that are not recovered."""
    errors = row_errors(run)
    return (np.concatenate([errors[:, :EDGE], errors[:, -EDGE:]], axis=1) >= RECOVERED).mean(axis=1)


def edge_lag(run: xr.Dataset) -> np.ndarray:
    """The mean error of the first and last nine rows minus that of the others, over that of a uniform row."""
    errors = row_errors(run)
    edge = np.delete(errors, np.s_[EDGE:-EDGE], axis=1)
    return (edge.mean(axis=1) - errors[:, EDGE:-EDGE].mean(axis=1)) / UNIFORM


def background(relu: xr.Dataset, leaky: xr.Dataset) -> Estimate:
    """By how much the edge has larger errors than other rows, in those of uniform attention.

    Notes have how errors go with ink over all patches.
    """
    worse = [edge_lag(run) for run in (relu, leaky)]
    notes = {}
    for name, run in (("relu", relu), ("leaky_relu", leaky)):
        ink, errors = run["ink"].transpose("seed", "patch").values, row_errors(run)
        by_seed = [rank_correlation(a, b) for a, b in zip(ink, errors, strict=True)]
        notes[f"{name}_share_of_these_rows_failed"] = float(edge_failed(run).mean())
        notes[f"{name}_rank_correlation_of_ink_and_error"] = float(np.mean(by_seed))
        notes[f"{name}_hits_in_these_rows"] = float(edge_hits(run).mean())
        notes[f"{name}_hits_in_other_rows"] = float(inner_hits(run).mean())
        notes[f"{name}_least_ink_of_a_recovered_row"] = float(ink[errors < RECOVERED].min(initial=1.0))
        notes[f"{name}_most_ink_of_a_failed_row"] = float(ink[errors >= RECOVERED].max(initial=0.0))
    return mean(np.minimum(*worse), range=over_steps(relu), notes=notes)


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's, equal values sharing their mean rank; 0 where one of both does not vary."""
    x, y = (stats.rankdata(values) - (len(values) + 1) / 2 for values in (a, b))
    size = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / size) if size > 0 else 0.0


def as_the_teacher(data: Datasets) -> Datasets:
    """Students whose attention is the teacher's."""
    return {
        name: run.assign(row_error=0.0 * run["row_error"], attention=run["teacher_attention"])
        for name, run in data.items()
    }


claim = partial(Claim, cite="Section on MNIST, figures 4 and 5", runs=RUNS, presets=PRESETS)

CLAIMS = (
    claim(
        "mnist_loss_gets_small",
        statement="With ReLU and with LeakyReLU, the student's loss on MNIST falls to a twentieth of that of "
        "a student who says nothing, or less.",
        measure=worse_of(left_of_loss, np.maximum),
        predicts=Interval(high=0.05),
        mutants=(UNTRAINED,),
        margin="`Small` has no number in the paper; a twentieth is what a plot from zero shows as nothing.",
    ),
    claim(
        "mnist_value_direction_recovers",
        statement="With ReLU and with LeakyReLU, the cosine of W_V and the teacher's kernels is above 0.9 in "
        "the end.",
        measure=worse_of(cosine, np.minimum),
        predicts=Interval(low=0.9),
        mutants=(UNTRAINED,),
        margin="The paper's number.",
    ),
    claim(
        "mnist_attention_recovers_pooling",
        statement="With ReLU and with LeakyReLU, nine in ten of the rows of S between the first and the last "
        f"nine are recovered: their entries differ from those of S* by less than {RECOVERED} in sum, where "
        "S* has 1.",
        measure=worse_of(inner_recovered, np.minimum, 1 / INNER),
        predicts=Interval(low=0.9),
        mutants=(UNTRAINED,),
        margin="A row of uniform attention differs by 16/9; a tenth of the rows may be background at the "
        "sides.",
    ),
    claim(
        "mnist_attention_recovers_pattern",
        statement="With ReLU and with LeakyReLU, nine in ten of the nine largest entries of a row of S are "
        "where S* has its nine, in the rows between the first and the last nine.",
        measure=worse_of(inner_hits, np.minimum, 1 / (INNER * BLOCK)),
        predicts=Interval(low=0.9),
        mutants=(UNTRAINED,),
        margin="What the heatmap shows; chance gives one in nine. Added after a look at the figure, beside "
        "the claim about values.",
    ),
    claim(
        "mnist_background_patches_fail",
        statement="With ReLU and with LeakyReLU, the first and last nine rows of S, patches that are mostly "
        "background, are farther from those of S* than the others: their mean error is larger by a "
        "quarter or more of that of uniform attention.",
        measure=background,
        predicts=Interval(low=0.25),
        mutants=(Mutant("the teacher's attention", alter=as_the_teacher), UNTRAINED),
        margin="The paper shows it, without a number. Rows of a student who learned nothing err alike; their "
        "largest entries do not tell that, since the first steps already order them by ink.",
    ),
)
