"""The drawing of one Pathfinder image, compiled. Imported only when images are drawn.

A snake is an array of five numbers: its pivot, its heading, and the point its last stroke is drawn from. The
room of that last stroke is not yet in the mask ("pending"): only the stroke after the next keeps off it.

Compiled code is kept on disk by this file's time stamp, so all that it is compiled from stands here.
"""

import math
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int64

from descentlab.data._compiled import compiled

TARGET_CONTRAST, DISTRACTOR_CONTRAST = 1.5, 2.0
STROKE_TRIALS, DISTRACTOR_TRIALS = 3, 5
FREE = 0.3  # a cell of the mask up to this is free
OVERLAP = 1.8  # a stroke is refused where its mask and the image's add up to this
LEAST_WEIGHT, LEAST_SHARE_FREE = 1e-4, 0.01

PIVOT_Y, PIVOT_X, HEADING, Y, X = range(5)

Random: TypeAlias = np.random.Generator
Grid: TypeAlias = np.ndarray
Snake: TypeAlias = np.ndarray


class Tables(NamedTuple):
    """What is looked up here. Headings are the 360 degrees of a seed, then those of the candidates."""

    frame: Float[np.ndarray, "32 32"]  # the mask of an empty image
    far_frame: Float[np.ndarray, "32 32"]  # where the first snake may not start
    to_head: Float[np.ndarray, "degree 2"]
    to_pivot: Float[np.ndarray, "degree 2"]  # from the head
    apart: Float[np.ndarray, "degree 2"]  # from one start to the other
    onward: Float[np.ndarray, "heading 2"]  # from a pivot to the next
    candidates: Int64[np.ndarray, "candidate 2"]  # from the next pivot
    straightness: Float[np.ndarray, "heading candidate"]
    angles: Float[np.ndarray, " heading"]  # at which a stroke is drawn
    lines: Float[np.ndarray, "heading stamp stamp"]
    masks: Float[np.ndarray, "heading stamp stamp"]
    room: Int64[np.ndarray, "degree cell 2"]  # cells that a seed needs free, around its start
    room_size: Int64[np.ndarray, " degree"]
    open: Bool[np.ndarray, " degree"]  # degrees at which seeds are tried at all


@compiled
def below(random: Random, bound: int) -> int:
    """A uniform whole number from 0 to `bound` - 1."""
    return int(random.random() * bound)


@compiled
def inside(image: Grid, y: int, x: int) -> bool:
    """Whether (y, x) is a pixel."""
    return 0 <= y < image.shape[0] and 0 <= x < image.shape[1]


@compiled
def copy(source: Grid, target: Grid) -> None:
    """Overwrite an image. A loop compiles much faster than a slice."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@compiled
def moved(y: int, x: int, step: np.ndarray) -> tuple[int, int]:
    """(y, x) after a step, rounded up."""
    return math.ceil(y + step[0]), math.ceil(x + step[1])


@compiled
def paste(image: Grid, stamp: Grid, y: int, x: int, contrast: float) -> None:
    """Lay a stamp with its middle at (y, x) onto an image: the larger value stays."""
    reach = stamp.shape[0] // 2
    for i in range(max(y - reach, 0), min(y + reach + 1, image.shape[0])):
        for j in range(max(x - reach, 0), min(x + reach + 1, image.shape[1])):
            image[i, j] = max(image[i, j], contrast * stamp[i - y + reach, j - x + reach])


@compiled
def fits(mask: Grid, stamp: Grid, y: int, x: int) -> bool:
    """Whether the room of a stroke at (y, x) overlaps with none that is taken."""
    reach = stamp.shape[0] // 2
    for i in range(max(y - reach, 0), min(y + reach + 1, mask.shape[0])):
        for j in range(max(x - reach, 0), min(x + reach + 1, mask.shape[1])):
            if mask[i, j] + stamp[i - y + reach, j - x + reach] >= OVERLAP:
                return False
    return True


@compiled
def crowding(mask: Grid, y: int, x: int) -> float:
    """The largest value of the mask at (y, x) and its four neighbours."""
    most = mask[y, x]
    for i, j in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
        if inside(mask, i, j):
            most = max(most, mask[i, j])
    return most


@compiled
def has_room(mask: Grid, room: np.ndarray, y: int, x: int) -> bool:
    """Whether all cells of a seed's room at (y, x) that are in the image are free."""
    for c in range(len(room)):
        i, j = y + room[c, 0], x + room[c, 1]
        if inside(mask, i, j) and mask[i, j] > FREE:
            return False
    return True


@compiled
def start(snake: Snake, tables: Tables, degree: int, y: int, x: int) -> bool:
    """Make a snake of one stroke, unless that leaves the image."""
    head = moved(y, x, tables.to_head[degree])
    pivot = moved(head[0], head[1], tables.to_pivot[degree])
    snake[PIVOT_Y], snake[PIVOT_X] = pivot
    snake[HEADING], snake[Y], snake[X] = degree, y, x
    return inside(tables.frame, head[0], head[1]) and inside(tables.frame, pivot[0], pivot[1])


@compiled
def seed(random: Random, tables: Tables, mask: Grid, snake: Snake) -> bool:
    """Start a snake at a uniform orientation and a uniform pixel with room for it."""
    for _ in range(STROKE_TRIALS):
        degree = below(random, tables.open.size)
        if not tables.open[degree]:
            return False
        room = tables.room[degree, : tables.room_size[degree]]
        places = np.empty((mask.size, 2), np.int64)
        found = 0
        for y in range(mask.shape[0]):
            for x in range(mask.shape[1]):
                if has_room(mask, room, y, x):
                    places[found, 0], places[found, 1] = y, x
                    found += 1
        if found == 0:
            return False
        place = places[below(random, found)]
        if start(snake, tables, degree, place[0], place[1]):
            return True
    return False


@compiled
def seed_beside(random: Random, tables: Tables, other: Snake, snake: Snake) -> bool:
    """Start a snake at the seed distance from the start of another, wherever that is."""
    for _ in range(STROKE_TRIALS):
        degree = below(random, tables.open.size)
        apart = tables.apart[below(random, len(tables.apart))]
        if start(snake, tables, degree, round(other[Y] + apart[0]), round(other[X] + apart[1])):
            return True
    return False


@compiled
def lay(image: Grid, stamps: np.ndarray, snake: Snake, contrast: float) -> None:
    """Draw a snake's last stroke, or take its room."""
    paste(image, stamps[snake[HEADING]], snake[Y], snake[X], contrast)


@compiled
def extend(random: Random, tables: Tables, image: Grid, mask: Grid, snake: Snake, contrast: float) -> bool:
    """Add a stroke to a snake, the likelier the straighter and the freer, unless there is no room."""
    candidates = tables.candidates
    first = len(tables.angles) - len(candidates)
    pivot_y, pivot_x = moved(snake[PIVOT_Y], snake[PIVOT_X], tables.onward[snake[HEADING]])
    cumulative = np.empty(len(candidates))
    total = 0.0
    for c in range(len(candidates)):
        y, x = pivot_y + candidates[c, 0], pivot_x + candidates[c, 1]
        if inside(mask, y, x):
            total += tables.straightness[snake[HEADING], c] * (1 - crowding(mask, y, x))
        cumulative[c] = total
    if total < LEAST_WEIGHT:
        return False
    for _ in range(STROKE_TRIALS):
        level, c = random.random() * total, 0
        while cumulative[c] <= level:
            c += 1
        y, x = pivot_y + candidates[c, 0], pivot_x + candidates[c, 1]
        if fits(mask, tables.masks[first + c], y, x):
            lay(mask, tables.masks, snake, 1.0)
            snake[PIVOT_Y], snake[PIVOT_X] = pivot_y, pivot_x
            snake[HEADING], snake[Y], snake[X] = first + c, y, x
            lay(image, tables.lines, snake, contrast)
            return True
    return False


@compiled
def targets(
    random: Random, tables: Tables, image: Grid, mask: Grid, points: np.ndarray, angles: np.ndarray
) -> bool:
    """Draw the two target snakes on an empty image, unless one gets stuck."""
    snakes = np.empty((2, 5), np.int64)
    if not seed(random, tables, tables.far_frame, snakes[0]):
        return False
    if not seed_beside(random, tables, snakes[0], snakes[1]):
        return False
    image.fill(0)
    copy(tables.frame, mask)
    for stroke in range(points.shape[1]):
        for s in range(2):
            if stroke == 0:
                lay(image, tables.lines, snakes[s], TARGET_CONTRAST)
            elif not extend(random, tables, image, mask, snakes[s], TARGET_CONTRAST):
                return False
            points[s, stroke, 0], points[s, stroke, 1] = snakes[s, Y], snakes[s, X]
            angles[s, stroke] = tables.angles[snakes[s, HEADING]]
    lay(mask, tables.masks, snakes[1], 1.0)  # not that of the first snake, as in the original
    return True


@compiled
def distractor(random: Random, tables: Tables, image: Grid, mask: Grid, length: int) -> bool:
    """Draw a distractor where there is room, or leave the image and its mask as they are."""
    snake = np.empty(5, np.int64)
    for _ in range(DISTRACTOR_TRIALS):
        if np.mean(mask <= FREE) < LEAST_SHARE_FREE or not seed(random, tables, mask, snake):
            continue
        new_image, new_mask = image.copy(), mask.copy()
        lay(new_image, tables.lines, snake, DISTRACTOR_CONTRAST)
        strokes = 1
        while strokes < length and extend(random, tables, new_image, new_mask, snake, DISTRACTOR_CONTRAST):
            strokes += 1
        if strokes == length:
            lay(new_mask, tables.masks, snake, 1.0)
            copy(new_image, image)
            copy(new_mask, mask)
            return True
    return False


@compiled
def draw(
    random: Random, tables: Tables, distractor_length: int, distractors: int,
    image: Grid, points: np.ndarray, angles: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    """Draw targets and distractors, record the targets' strokes, and return tries and distractors placed."""
    mask, tries = np.empty_like(image), 1
    while not targets(random, tables, image, mask, points, angles):
        tries += 1
    placed = 0
    for _ in range(distractors):
        placed += distractor(random, tables, image, mask, distractor_length)
    return tries, placed
