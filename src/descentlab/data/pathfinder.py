"""Pathfinder-32: are the two marked ends those of one dashed contour, or of two?

Two target contours of short strokes ("snakes") wander over a 32 x 32 image among shorter, brighter
distractors. One end of each of two walks is marked by a disc: the start of one snake and the tip of the same
(label 1) or of the other (label 0). The length-14 set is the hard one of the Long Range Arena.

After Linsley et al. (arXiv:1805.08315) with the parameters of the Long Range Arena (arXiv:2011.04006),
quirks included: positions are rounded up, and the border of the test for free room leaves a distractor or
the first snake 30 of the 360 orientations (`fix_border_quirk` leaves all).

This module holds the geometry, as tables of what is stamped where; `_pathfinder_kernel` draws. Coordinates
are (row, column), an angle t points along (sin t, cos t).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int16, Int64, UInt8
from PIL import Image, ImageDraw

from descentlab.engine import cores
from descentlab.errors import SettingError

SIZE = 32
PADDING = 1  # width of the frame that no stroke may touch
STROKE = 2  # length of a stroke
THICKNESS = 0.5
MARGIN = 1  # gap between strokes
ANTIALIAS = 2
MARKER_RADIUS = 1.5
SEED_DISTANCE = 7  # between the starts of the two snakes
CONTINUITY = 1.0  # above 1, snakes bend less

REACH = STROKE + math.ceil(THICKNESS) + MARGIN  # a stamp is 2 REACH + 1 wide
DEGREES = np.arange(-180, 180)
BLOCK = 100  # images that a thread draws in one go
TELL_SECONDS = 10.0

LONGEST = 20  # each further stroke halves the chance that both snakes fit


def _require(name: str, value: int, least: int, most: int | None = None) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        allowed = f">= {least}" if most is None else f"from {least} to {most}"
        raise SettingError(f"{name} takes a whole number {allowed}, got {name}={value!r}.")


@dataclass(frozen=True)
class Pathfinder:
    """Lengths in strokes, and how many distractors are attempted (fewer find room)."""

    contour_length: int = 14
    distractor_length: int = 4
    distractors: int = 10
    fix_border_quirk: bool = False

    def __post_init__(self) -> None:
        _require("contour_length", self.contour_length, 2, LONGEST)
        _require("distractor_length", self.distractor_length, 1, LONGEST)
        _require("distractors", self.distractors, 0)
        if not isinstance(self.fix_border_quirk, bool):
            raise SettingError(
                f"fix_border_quirk takes True or False, got fix_border_quirk={self.fix_border_quirk!r}."
            )


HARD = Pathfinder()
BASELINE = Pathfinder(contour_length=6, distractor_length=2)


class Scenes(NamedTuple):
    """Images and how they came about; `points` and `angles` are those of the strokes of the two snakes.

    A stroke leaves its point at its angle: the first of a snake from its start on, the others from their tip
    back. `markers` are the marked points, of a start and of a tip.
    """

    images: UInt8[np.ndarray, "count 32 32"]
    labels: UInt8[np.ndarray, " count"]
    tries: Int64[np.ndarray, " count"]
    distractors: Int64[np.ndarray, " count"]
    markers: Int16[np.ndarray, "count 2 2"]
    points: Int16[np.ndarray, "count 2 length 2"]
    angles: Float[np.ndarray, "count 2 length"]


def generate(
    count: int, seed: int = 0, settings: Pathfinder = HARD, *, first: int = 0
) -> tuple[UInt8[np.ndarray, "count 32 32"], UInt8[np.ndarray, " count"]]:
    """Images `first`, ..., `first` + `count` - 1 of a seed, and their labels.

    An image depends on the seed, its number and the settings alone: ranges can be drawn anywhere.
    """
    drawn = scenes(count, seed, settings, first=first)
    return drawn.images, drawn.labels


def scenes(count: int, seed: int = 0, settings: Pathfinder = HARD, *, first: int = 0) -> Scenes:
    """The same images with the number of tries each took, the distractors that found room, and the snakes."""
    for name, value in {"count": count, "seed": seed, "first": first}.items():
        _require(name, value, 0)
    length = settings.contour_length
    drawn = Scenes(
        images=np.zeros((count, SIZE, SIZE), np.uint8),
        labels=np.zeros(count, np.uint8),
        tries=np.zeros(count, np.int64),
        distractors=np.zeros(count, np.int64),
        markers=np.zeros((count, 2, 2), np.int16),
        points=np.zeros((count, 2, length, 2), np.int16),
        angles=np.zeros((count, 2, length)),
    )
    if count == 0:
        return drawn
    from descentlab.data._pathfinder_kernel import Tables, draw  # loads the compiler

    tables = Tables(**_tables(settings.fix_border_quirk))

    def block(begin: int) -> int:
        """Draws some images; the lock of the interpreter is given up meanwhile. Returns how many."""
        image, numbers = np.empty((SIZE, SIZE)), range(begin, min(begin + BLOCK, count))
        for i in numbers:
            random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(first + i,)))
            points, angles = drawn.points[i], drawn.angles[i]
            drawn.tries[i], drawn.distractors[i] = draw(
                random, tables, settings.distractor_length, settings.distractors, image, points, angles
            )
            same, snake = random.integers(2, size=2).tolist()
            drawn.labels[i] = same
            drawn.markers[i] = points[snake, 0], points[snake if same else 1 - snake, -1]
            drawn.images[i] = _bytes(
                np.maximum.reduce([image, *(marker(y, x) for y, x in drawn.markers[i].tolist())])
            )
        return len(numbers)

    with ThreadPoolExecutor(cores()) as pool:
        _tell(pool.map(block, range(0, count, BLOCK)), count)
    return drawn


def _tell(parts: Iterable[int], count: int) -> None:
    """Goes through the parts of some images as they are drawn; a line now and then where that is long."""
    done, told = 0, time.monotonic()
    for part in parts:
        done += part
        if time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            print(f"drawing Pathfinder images: {done} of {count}", file=sys.stderr)


def _bytes(image: Float[np.ndarray, "32 32"]) -> UInt8[np.ndarray, "32 32"]:
    low, high = image.min(), image.max()
    return np.floor((image - low) * 255 / (high - low) + 0.5).astype(np.uint8)


def directions(angles: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n 2"]:
    """The unit vectors (row, column) of angles."""
    return np.stack([np.sin(angles), np.cos(angles)], axis=1)


def flipped(angles: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The opposite angles."""
    return np.where(angles < 0, angles + np.pi, angles - np.pi)


def candidate_offsets() -> Int64[np.ndarray, "candidate 2"]:
    """Where the next tip may be, seen from the pivot: a circle rounded down, without repetitions."""
    radius = STROKE + MARGIN
    circle = np.radians(np.arange(0, 360, 360 / (2 * np.pi * radius)))
    return np.unique(np.floor(radius * directions(circle)).astype(np.int64), axis=0)


def stamp(angle: float) -> tuple[Float[np.ndarray, "stamp stamp"], Float[np.ndarray, "stamp stamp"]]:
    """A stroke at unit contrast, and the mask of the room it takes; it leaves the middle cell at `angle`."""
    centre, wide = REACH * ANTIALIAS, 2 * REACH * ANTIALIAS + 1
    end = np.ceil(centre + STROKE * ANTIALIAS * directions(np.array([angle]))[0]).astype(int).tolist()
    canvas = Image.new("L", (wide, wide))
    width = round(THICKNESS * ANTIALIAS)
    ImageDraw.Draw(canvas).line([centre, centre, end[1], end[0]], fill=255, width=width)
    line = np.asarray(canvas)
    taken = np.any([_disc(wide, y, x, MARGIN * ANTIALIAS) for y, x in np.argwhere(line).tolist()], axis=0)
    return _shrunk(line, 2 * REACH + 1), _shrunk(255 * taken.astype(np.uint8), 2 * REACH + 1)


@cache
def marker(y: int, x: int) -> Float[np.ndarray, "32 32"]:
    """The disc at a pixel, on an image of its own."""
    disc = _disc(SIZE * ANTIALIAS, y * ANTIALIAS, x * ANTIALIAS, MARKER_RADIUS * ANTIALIAS)
    image = _shrunk(255 * disc.astype(np.uint8), SIZE)
    image.setflags(write=False)
    return image


def seed_room(mask: Float[np.ndarray, "stamp stamp"]) -> Int64[np.ndarray, "cell 2"]:
    """The cells around its start that must be free for a seed with this mask.

    The mask is cut to 7 x 7 and shifted by one cell, as in the original: its middle lands on (4, 4), while
    cells count from (3, 3).
    """
    wide = 2 * (STROKE + MARGIN) + 1
    shift = REACH - (wide + 1) // 2
    return np.argwhere(mask[shift : shift + wide, shift : shift + wide] == 1) - wide // 2


def border_lets(room: Int64[np.ndarray, "cell 2"]) -> bool:
    """Whether every pixel of the image has some of its room inside. The quirk: other seeds are refused."""
    cells = np.argwhere(np.ones((SIZE, SIZE)))[:, None] + room
    return bool(((cells >= 0) & (cells < SIZE)).all(axis=2).any(axis=1).all())


def _disc(wide: int, y: int, x: int, radius: float) -> Bool[np.ndarray, "wide wide"]:
    Y, X = np.ogrid[:wide, :wide]
    return (Y - y) ** 2 + (X - x) ** 2 <= radius**2


def _shrunk(canvas: UInt8[np.ndarray, "wide wide"], size: int) -> Float[np.ndarray, "size size"]:
    return np.asarray(Image.fromarray(canvas).resize((size, size), Image.Resampling.LANCZOS)) / 255


def _framed(width: int) -> Float[np.ndarray, "32 32"]:
    frame = np.ones((SIZE, SIZE))
    frame[width:-width, width:-width] = 0
    return frame


@cache
def _tables(fix_border_quirk: bool) -> dict[str, np.ndarray]:
    seeds = np.radians(DEGREES)
    candidates = candidate_offsets()
    turned = np.arctan2(candidates[:, 0], candidates[:, 1])
    headings = np.concatenate([seeds, turned])
    bend = np.abs(turned - headings[:, None])
    bend = np.minimum(np.minimum(bend, 2 * np.pi - bend) * CONTINUITY, np.pi / 2)
    drawn_at = np.concatenate([seeds, flipped(turned)])
    stamps = [stamp(angle) for angle in drawn_at.tolist()]
    rooms = [seed_room(mask) for _, mask in stamps[: len(seeds)]]
    room = np.zeros((len(rooms), max(map(len, rooms)), 2), np.int64)
    for cells, own in zip(room, rooms, strict=True):
        cells[: len(own)] = own
    return {
        "frame": _framed(PADDING),
        "far_frame": _framed(2 * SEED_DISTANCE),
        "to_head": STROKE * directions(seeds),
        "to_pivot": (STROKE + MARGIN) * directions(flipped(seeds)),
        "apart": SEED_DISTANCE * directions(np.radians(np.arange(360))),
        "onward": (STROKE + 2 * MARGIN) * directions(headings),
        "candidates": candidates,
        "straightness": np.maximum(np.cos(bend), 0) ** 2,
        "angles": drawn_at,
        "lines": np.stack([line for line, _ in stamps]),
        "masks": np.stack([mask for _, mask in stamps]),
        "room": room,
        "room_size": np.array([len(own) for own in rooms]),
        "open": np.array([fix_border_quirk or border_lets(own) for own in rooms]),
    }
