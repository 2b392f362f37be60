"""IMDb: 25,000 + 25,000 film reviews, positive or negative, as bytes (Maas et al., ACL 2011).

They are read from the first of these that a folder of data holds:

    imdb/imdb_{train,test}.jsonl.xz   a JSON object a line with label (1 positive) and text; sha256 verified
    imdb/aclImdb/                     the authors' archive, unpacked; sha256 of its reviews verified
    imdb/aclImdb_v1.tar.gz            the authors' archive; md5 verified

Whatever the form, the order is the same: sorted by label and text, then permuted once and for all.
"""

import io
import json
import lzma
import re
import tarfile
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from descentlab.data import files
from descentlab.data.files import File
from descentlab.errors import DataError, SettingError

ABOUT = "Large Movie Review Dataset, 25,000 + 25,000 film reviews (Maas et al., ACL 2011)"
TERMS = "no formal licence: research use, cite Maas et al. 2011; not to be copied into other work"
SEED = 2011
LABELS = {"neg": 0, "pos": 1}
ARCHIVE = File(
    "imdb/aclImdb_v1.tar.gz", 84_125_825, "md5:7c2ac02c03563afcf9b574c7e56c153a",
    ("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",),
    "Instead, imdb_train.jsonl.xz and imdb_test.jsonl.xz, or the unpacked folder aclImdb, will do.",
)  # fmt: skip
FOLDER = "imdb/aclImdb"
UNPACKED = {  # a half's reviews as `_lines` writes them
    "train": File(
        f"{FOLDER}/train", 33_207_823,
        "sha256:696c2f652a4dc50c298be1f371a7ecb4b1b9e57620689202fc1f69d26ea892cf",
    ),
    "test": File(
        f"{FOLDER}/test", 32_425_685,
        "sha256:91411c673fd9267e0995f3130b254479b4ab33a18750e15efd5586ea0b537bc3",
    ),
}  # fmt: skip
HALVES = {
    "train": File(
        "imdb/imdb_train.jsonl.xz", 9_147_116,
        "sha256:a6be124f08233ea19853101ac3036dafae958381d85012f2cea0751d35a7788f",
    ),
    "test": File(
        "imdb/imdb_test.jsonl.xz", 8_912_132,
        "sha256:4ab71aa7219a4ce9728e796cfabbc8b1343b2ad151512a8477f61185b74707ee",
    ),
}  # fmt: skip


def load(split: str) -> tuple[list[bytes], UInt8[np.ndarray, " N"]]:
    """The reviews of a half, train or test, in UTF-8, and their labels (1 positive), in a fixed order.

    The labels are not to be written to.
    """
    if split not in HALVES:
        raise SettingError(f"split takes train or test, got split={split}.")
    texts, labels = _load(split, files.folders())
    return list(texts), labels


def tokens(split: str, length: int) -> tuple[UInt8[np.ndarray, "N {length}"], UInt8[np.ndarray, " N"]]:
    """The reviews as rows of bytes, cut at `length` and padded with 0, and their labels.

    A byte is a token; no review has a byte 0.
    """
    if length < 1:
        raise SettingError(f"length takes a whole number >= 1, got length={length}.")
    texts, labels = load(split)
    rows = b"".join(text[:length].ljust(length, b"\0") for text in texts)
    return np.frombuffer(rows, np.uint8).reshape(len(texts), length), labels


@cache
def _load(split: str, folders: tuple[Path, ...]) -> tuple[tuple[bytes, ...], np.ndarray]:
    """A half as the folders hold it: where these change, it is read again."""
    place = _find(split) or files.download(ARCHIVE)
    reviews = sorted(_reviews(place, split))
    # NumPy promises the raw stream of a bit generator for good, but not what permutes by it.
    order = np.argsort(np.random.PCG64(SEED).random_raw(len(reviews)), kind="stable")
    labels = np.array([reviews[i][0] for i in order], np.uint8)
    labels.flags.writeable = False
    return tuple(reviews[i][1] for i in order), labels


def _find(split: str) -> Path | None:
    """The first thing that holds a half; None where nothing does."""
    forms = (HALVES[split].path, FOLDER, ARCHIVE.path)
    return next((p for folder in files.folders() for form in forms if (p := folder / form).exists()), None)


def _file(place: Path, split: str) -> File | None:
    """The file that a half is read from; None for the unpacked archive."""
    if place.name == Path(FOLDER).name:
        return None
    return ARCHIVE if place.name == Path(ARCHIVE.path).name else HALVES[split]


def _reviews(place: Path, split: str) -> list[tuple[int, bytes]]:
    """Label and text of each review of a half."""
    file = _file(place, split)
    if file is None:
        return _unpacked(place, split)
    if file is ARCHIVE:
        return _archived(place)[split]
    lines = lzma.decompress(files.verified(place, file)).splitlines()
    return [(review["label"], review["text"].encode()) for review in map(json.loads, lines)]


def _unpacked(folder: Path, split: str) -> list[tuple[int, bytes]]:
    """Label and text of each review of a half of the unpacked archive, sorted and verified."""
    reviews = sorted(
        (label, path.read_bytes())
        for kind, label in LABELS.items()
        for path in (folder / split / kind).glob("*.txt")
    )
    if wrong := files.fault(_lines(reviews), UNPACKED[split]):
        raise DataError(
            f"{folder / split} is damaged: its {len(reviews)} reviews have {wrong}. Unpack "
            f"{Path(ARCHIVE.path).name} again, or remove {folder} and give `descentlab data imdb`."
        )
    return reviews


def _lines(reviews: list[tuple[int, bytes]]) -> bytes:
    """Labels and texts as one content, whose checksum is that of a half."""
    return b"".join(b"%d %b\n" % review for review in reviews)


@cache
def _archived(place: Path) -> dict[str, list[tuple[int, bytes]]]:
    """Label and text of each review of both halves: the archive is too slow to be read twice."""
    reviews: dict[str, list[tuple[int, bytes]]] = {split: [] for split in HALVES}
    with tarfile.open(fileobj=io.BytesIO(files.verified(place, ARCHIVE)), mode="r|gz") as archive:
        for member in archive:
            match = re.fullmatch(r"aclImdb/(train|test)/(neg|pos)/[^/]+\.txt", member.name)
            if match and (file := archive.extractfile(member)):
                reviews[match[1]].append((LABELS[match[2]], file.read()))
    return reviews


def find(fetch: bool = False) -> dict[str, Path | None]:
    """Where each half lies, verified, and None where it is missing unless it may be fetched."""
    places: dict[str, Path | None] = {}
    for split in HALVES:
        place = _find(split) or (files.download(ARCHIVE) if fetch else None)
        if place is not None and place not in places.values():
            file = _file(place, split)
            _ = files.verified(place, file) if file else [_unpacked(place, half) for half in HALVES]
        places[f"imdb, {split} half"] = place
    return places
