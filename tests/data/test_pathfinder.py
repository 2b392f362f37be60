"""Pathfinder-32 against the published generator's statistics, and against a plain replay of its rules."""

import hashlib
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import pytest
from scipy import ndimage

from descentlab.data import _compiled, pathfinder
from descentlab.data.pathfinder import BASELINE, HARD, Pathfinder, Scenes, generate, scenes
from descentlab.errors import SettingError

PUBLISHED_IMAGES = 4000  # behind the expected values
DRAWN = {
    "hard": (2000, HARD),
    "five": (1000, Pathfinder(distractors=5)),
    "none": (1000, Pathfinder(distractors=0)),
    "fixed": (500, Pathfinder(fix_border_quirk=True)),
    "baseline": (200, BASELINE),
}
STATISTICS: dict[str, Callable[[Scenes], np.ndarray]] = {
    "mean": lambda drawn: drawn.images.mean((1, 2)),
    "std": lambda drawn: drawn.images.std((1, 2)),
    "above 0": lambda drawn: (drawn.images > 0).mean((1, 2)),
    "above 64": lambda drawn: (drawn.images > 64).mean((1, 2)),
    "above 140": lambda drawn: (drawn.images > 140).mean((1, 2)),
    "at 255": lambda drawn: (drawn.images == 255).mean((1, 2)),
    "tries": lambda drawn: drawn.tries,
    "distractors": lambda drawn: drawn.distractors,
}


@pytest.fixture(scope="module")
def drawn() -> dict[str, Scenes]:
    return {name: scenes(count, 1, settings) for name, (count, settings) in DRAWN.items()}


def assert_mean(draws: np.ndarray, expected: float, last_digit: float) -> None:
    """Four standard errors of both samples, and the rounding of the expected value."""
    error = draws.std(ddof=1) * math.sqrt(1 / len(draws) + 1 / PUBLISHED_IMAGES)
    assert abs(draws.mean() - expected) < 4 * error + last_digit / 2


@pytest.mark.parametrize(
    ("name", "statistic", "expected", "last_digit"),
    [
        ("hard", "mean", 22.33, 1e-2),
        ("hard", "std", 52.90, 1e-2),
        ("hard", "above 0", 0.3769, 1e-4),
        ("hard", "above 64", 0.1393, 1e-4),
        ("hard", "above 140", 0.0751, 1e-4),
        ("hard", "at 255", 0.00179, 1e-5),
        ("hard", "tries", 322, 1),
        ("hard", "distractors", 2.21, 1e-2),
        ("five", "mean", 20.20, 1e-2),
        ("five", "above 64", 0.1258, 1e-4),
        ("five", "distractors", 1.17, 1e-2),
        ("none", "mean", 18.29, 1e-2),
        ("none", "above 64", 0.1121, 1e-4),
        ("fixed", "tries", 46, 1),
        ("fixed", "distractors", 8.1, 1e-1),
    ],
)
def test_statistics_are_the_published_ones(
    drawn: dict[str, Scenes], name: str, statistic: str, expected: float, last_digit: float
):
    assert_mean(STATISTICS[statistic](drawn[name]), expected, last_digit)


def test_distractors_find_room_as_often_as_published(drawn: dict[str, Scenes]):
    for placed, share in enumerate([0.065, 0.236, 0.314, 0.235, 0.113, 0.030, 0.007]):
        assert_mean(drawn["hard"].distractors == placed, share, 1e-3)


def test_labels_are_balanced(drawn: dict[str, Scenes]):
    labels = np.concatenate([own.labels for own in drawn.values()])
    assert set(labels.tolist()) == {0, 1}
    assert abs(labels.mean() - 0.5) < 4 * 0.5 / math.sqrt(len(labels))


@pytest.mark.parametrize("name", DRAWN)
def test_label_tells_whether_the_marked_ends_are_of_one_snake(drawn: dict[str, Scenes], name: str):
    own = drawn[name]
    starts_at = (own.points[:, :, 0] == own.markers[:, None, 0]).all(2)
    assert (starts_at.sum(1) == 1).all()
    image, snake = np.nonzero(starts_at)
    # By the tip itself: the last strokes of both snakes ignore each other, and may end at one point.
    tips = own.points[image, np.where(own.labels == 1, snake, 1 - snake), -1]
    np.testing.assert_array_equal(own.markers[:, 1], tips)


def pasted(stamp: np.ndarray, y: int, x: int) -> np.ndarray:
    room = np.zeros((40, 40))
    room[y : y + 9, x : x + 9] = stamp
    return room[4:-4, 4:-4]


def moved(point: np.ndarray, angle: float, distance: float) -> np.ndarray:
    return np.ceil(point + distance * np.array([math.sin(angle), math.cos(angle)])).astype(int)


def flip(angle: float) -> float:
    return angle + math.pi if angle < 0 else angle - math.pi


@pytest.mark.parametrize("i", range(5))
def test_replay_of_the_snakes_breaks_no_rule_and_gives_the_image(drawn: dict[str, Scenes], i: int):
    own = drawn["none"]
    points, angles = own.points[i].astype(int), own.angles[i]
    mask = np.ones((32, 32))
    mask[1:-1, 1:-1] = 0
    image = np.zeros((32, 32))
    cross = ndimage.generate_binary_structure(2, 1)
    seed_room = points[0, 0] + pathfinder.seed_room(pathfinder.stamp(float(angles[0, 0]))[1])
    assert set(seed_room.flat) <= {14, 15, 16, 17}
    assert -150 <= round(math.degrees(angles[0, 0])) <= -121
    assert np.abs(np.hypot(*(points[0, 0] - points[1, 0])) - 7) <= math.sqrt(0.5)
    pivots = [moved(moved(points[s, 0], angles[s, 0], 2), flip(angles[s, 0]), 3) for s in range(2)]
    headings, pending = [angles[0, 0], angles[1, 0]], [mask, mask]
    for stroke in range(14):
        for s in range(2):
            (y, x), angle = points[s, stroke], angles[s, stroke]
            line, room = (pasted(part, y, x) for part in pathfinder.stamp(float(angle)))
            if stroke > 0:
                pivots[s] = moved(pivots[s], headings[s], 4)
                dy, dx = points[s, stroke] - pivots[s]
                heading = math.atan2(dy, dx)
                assert [dy, dx] in pathfinder.candidate_offsets().tolist()
                assert angle == pytest.approx(flip(heading))
                assert math.cos(heading - headings[s]) > 0
                assert ndimage.maximum_filter(mask, footprint=cross, mode="constant")[y, x] < 1
                assert (mask + room).max() < 1.8
                mask, headings[s] = np.maximum(mask, pending[s]), heading
            image, pending[s] = np.maximum(image, 1.5 * line), room
    for y, x in own.markers[i].tolist():
        image = np.maximum(image, pathfinder.marker(y, x))
    np.testing.assert_array_equal(own.images[i], np.floor(image * 255 / image.max() + 0.5))


def test_candidates_for_the_next_tip_are_those_of_the_original():
    assert pathfinder.candidate_offsets().tolist() == [
        *([-3, x] for x in (-2, -1, 0, 1)), [-2, -3], [-2, 2], [-1, -3], [-1, 2], [0, -3], [0, 2], [0, 3],
        [1, -3], [1, 2], *([2, x] for x in (-3, -2, -1, 0, 1)),
    ]  # fmt: skip


def test_border_quirk_leaves_thirty_orientations():
    left = [
        degree
        for degree in range(-180, 180)
        if pathfinder.border_lets(pathfinder.seed_room(pathfinder.stamp(math.radians(degree))[1]))
    ]
    assert left == list(range(-150, -120))


def test_marker_is_a_disc_of_its_radius():
    disc = pathfinder.marker(10, 20)
    assert disc[10, 20] == disc.max() == 1
    assert disc.sum() == pytest.approx(math.pi * 1.5**2, rel=0.1)


@pytest.mark.parametrize("settings", [HARD, BASELINE, Pathfinder(fix_border_quirk=True)])
def test_image_depends_on_seed_and_number_alone(settings: Pathfinder):
    images, labels = generate(12, 5, settings)
    assert images.shape == (12, 32, 32)
    assert images.dtype == labels.dtype == np.uint8
    for first, count in [(0, 12), (0, 4), (7, 5), (3, 0)]:
        again, marks = generate(count, 5, settings, first=first)
        np.testing.assert_array_equal(again, images[first : first + count])
        np.testing.assert_array_equal(marks, labels[first : first + count])
    other, _ = generate(12, 6, settings)
    assert not (other == images).all((1, 2)).any()
    assert len(np.unique(images, axis=0)) == 12


@pytest.mark.parametrize(
    ("settings", "known"),
    [
        (HARD, "c759230fc5f11fc9"),
        (BASELINE, "8cd389e3541c95b5"),
        (Pathfinder(fix_border_quirk=True), "9a1a4b7ca90146bf"),
    ],
)
def test_images_are_the_same_everywhere(settings: Pathfinder, known: str):
    images, labels = generate(50, 0, settings)
    assert hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()[:16] == known


def test_images_are_the_same_however_they_are_divided(monkeypatch: pytest.MonkeyPatch):
    together = pathfinder.scenes(30, 5, BASELINE)
    monkeypatch.setattr(pathfinder, "BLOCK", 4)
    monkeypatch.setattr(pathfinder, "cores", lambda: 3)
    for whole, parts in zip(together, pathfinder.scenes(30, 5, BASELINE), strict=True):
        np.testing.assert_array_equal(whole, parts)


def test_long_drawing_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    generate(9, 5, BASELINE)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(pathfinder, "BLOCK", 4)
    monkeypatch.setattr(pathfinder, "TELL_SECONDS", -1.0)
    generate(9, 5, BASELINE)
    assert capsys.readouterr().err.splitlines() == [
        f"drawing Pathfinder images: {done} of 9" for done in (4, 8, 9)
    ]


def test_short_snakes_have_their_length(drawn: dict[str, Scenes]):
    assert drawn["baseline"].points.shape == (200, 2, 6, 2)
    assert drawn["baseline"].tries.mean() < drawn["hard"].tries.mean()
    assert (drawn["baseline"].images.max((1, 2)) == 255).all()


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("contour_length", 1, "from 2 to 20"),
        ("contour_length", 21, "from 2 to 20"),
        ("distractor_length", 0, "from 1 to 20"),
        ("distractors", -1, ">= 0"),
        ("distractors", True, ">= 0"),
    ],
)
def test_bad_settings_are_named(field: str, value: int, allowed: str):
    with pytest.raises(SettingError, match=f"{field} takes a whole number {allowed}, got {field}={value}"):
        replace(HARD, **{field: value})


@pytest.mark.parametrize("arguments", [{"count": -1}, {"count": 1, "seed": -1}, {"count": 1, "first": -2}])
def test_bad_requests_are_named(arguments: dict[str, Any]):
    name, value = list(arguments.items())[-1]
    with pytest.raises(SettingError, match=f"{name} takes a whole number >= 0, got {name}={value}"):
        generate(**arguments)


def test_import_does_not_load_the_compiler():
    check = "import sys, descentlab.data.pathfinder; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_kernel_compiles_where_no_cache_can_be_written(monkeypatch: pytest.MonkeyPatch):
    njit = numba.njit

    def without_cache(cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(_compiled.numba, "njit", without_cache)

    @_compiled.compiled
    def three() -> int:
        return 3

    assert three() == 3
