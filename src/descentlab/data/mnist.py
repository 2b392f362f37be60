"""MNIST: 60,000 + 10,000 handwritten digits, 28 x 28 (LeCun, Cortes and Burges).

`load` reads the four official idx files; `small` the zeros and ones that come with the package
(mnist_small.md), so that there are real data everywhere.
"""

import gzip
import io
import math
import struct
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from descentlab.data import files
from descentlab.data.files import File
from descentlab.errors import DataError, SettingError

ABOUT = "MNIST, 60,000 + 10,000 handwritten digits, 28 x 28 (LeCun, Cortes and Burges)"
TERMS = "CC BY-SA 3.0 according to the Keras documentation; copyright Yann LeCun and Corinna Cortes"
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


HINT = (
    "MNIST is four files, from one address: train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz,\n"
    "  t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz."
)


def _file(name: str, size: int, md5: str) -> File:
    return File(f"mnist/{name}", size, f"md5:{md5}", tuple(mirror + name for mirror in MIRRORS), HINT)


FILES = {  # images and labels
    "train": (
        _file("train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        _file("train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
    ),
    "test": (
        _file("t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
        _file("t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
}
DOWNLOAD = sum(file.size for pair in FILES.values() for file in pair)
SMALL = File(
    "mnist_small.npz", 291_543, "sha256:be9bb0b4f30039db33dabe50b8abd5e1816d9cd15f36882783a6c30584d37d3b"
)
REINSTALL = "It is part of descentlab: install that again."
ABOUT_SMALL = "the first 500 + 500 zeros and ones of MNIST, in the package"


class Digits(NamedTuple):
    """Images and labels, for training and for tests."""

    train: Any
    train_labels: Any
    test: Any
    test_labels: Any


def digits(which: str) -> Digits:
    """Both splits: `small`, those that come with the package, or `full`, all of MNIST."""
    return Digits(*small()) if which == "small" else Digits(*load("train"), *load("test"))


def load(split: str) -> tuple[UInt8[np.ndarray, "N 28 28"], UInt8[np.ndarray, " N"]]:
    """The images and labels of a split, train or test, in the order of the files; not to be written to."""
    if split not in FILES:
        raise SettingError(f"split takes train or test, got split={split}.")
    return _load(split, files.folders())


@cache
def _load(split: str, folders: tuple[Path, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A split as the folders hold it: where these change, it is read again."""
    images, labels = FILES[split]
    return (
        parse(gzip.decompress(files.content(images)), 3, images.path),
        parse(gzip.decompress(files.content(labels)), 1, labels.path),
    )


def parse(content: bytes, dimensions: int, name: str = "this") -> np.ndarray:
    """The array of an idx file of bytes: magic number 0x0800 + dimensions, sizes (big endian), values.

    >>> parse(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 4]), 1)
    array([7, 0, 4], dtype=uint8)
    """
    head, magic = content[: 4 + 4 * dimensions], 0x0800 + dimensions
    if len(head) < 4 + 4 * dimensions or int.from_bytes(head[:4], "big") != magic:
        raise DataError(
            f"{name} is no idx file: it begins with {head.hex()}, "
            f"not with {magic:08x} and {dimensions} sizes."
        )
    shape = struct.unpack(f">{dimensions}I", head[4:])
    if len(content) - len(head) != math.prod(shape):
        values = len(content) - len(head)
        raise DataError(f"{name} has {values} values, not the {math.prod(shape)} of its shape {shape}.")
    return np.frombuffer(content, np.uint8, offset=len(head)).reshape(shape)


@cache
def small() -> tuple[
    UInt8[np.ndarray, "N 28 28"],
    UInt8[np.ndarray, " N"],
    UInt8[np.ndarray, "M 28 28"],
    UInt8[np.ndarray, " M"],
]:
    """Training images and labels, test images and labels: the first 500 zeros and 500 ones of each split.

    They come with the package and keep the order of the full files; not to be written to.
    """
    with np.load(io.BytesIO(files.verified(small_path(), SMALL, REINSTALL))) as stored:
        arrays = [stored[name] for name in ("train_images", "train_labels", "test_images", "test_labels")]
    for array in arrays:
        array.flags.writeable = False
    return arrays[0], arrays[1], arrays[2], arrays[3]


def small_path() -> Path:
    """Where the package keeps the subset."""
    return Path(__file__).with_name(SMALL.path)


def find(fetch: bool = False) -> dict[str, Path | None]:
    """Where each file lies, verified, and None for those that are missing unless they may be fetched."""
    places: dict[str, Path | None] = {}
    for file in (*FILES["train"], *FILES["test"]):
        place = files.find(file) or (files.download(file) if fetch else None)
        places[file.path] = place
        if place is not None:
            files.verified(place, file)
    return places
