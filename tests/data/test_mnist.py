"""MNIST: the idx parser, made-up files, the subset in the package, and the real files where they are."""

import gzip
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from descentlab.data import files, look, mnist
from descentlab.errors import DataError, SettingError

REAL = pytest.mark.skipif(
    "DESCENTLAB_DATA" not in os.environ, reason="DESCENTLAB_DATA, the folder of real data, is not set"
)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """Five made-up digits as the training files of a folder of data."""
    rng = np.random.default_rng(0)
    arrays = rng.integers(256, size=(5, 28, 28), dtype=np.uint8), np.arange(5, dtype=np.uint8)
    known = []
    (tmp_path / "mnist").mkdir()
    for file, array in zip(mnist.FILES["train"], arrays, strict=True):
        content = gzip.compress(idx(array))
        (tmp_path / file.path).write_bytes(content)
        known.append(replace(file, checksum=f"md5:{hashlib.md5(content).hexdigest()}"))
    monkeypatch.setitem(mnist.FILES, "train", tuple(known))
    monkeypatch.setenv("DESCENTLAB_DATA", str(tmp_path))
    monkeypatch.setenv("DESCENTLAB_CACHE", str(tmp_path / "cache"))
    return arrays


def test_files_are_read_once_and_not_written_to(digits: tuple[np.ndarray, np.ndarray], tmp_path: Path):
    images, labels = mnist.load("train")
    np.testing.assert_array_equal(images, digits[0])
    np.testing.assert_array_equal(labels, digits[1])
    (tmp_path / mnist.FILES["train"][0].path).unlink()
    assert mnist.load("train")[0] is images
    with pytest.raises(ValueError, match="read-only"):
        images[0] = 0


def test_an_altered_file_is_refused(digits: tuple[np.ndarray, np.ndarray], tmp_path: Path):
    place = tmp_path / mnist.FILES["train"][1].path
    place.write_bytes(place.read_bytes()[:-1])
    with pytest.raises(
        DataError, match=r"train-labels-idx1-ubyte.gz is damaged: md5 \w{32} instead of \w{32}"
    ):
        mnist.load("train")


def test_there_are_two_splits():
    with pytest.raises(SettingError, match=r"split takes train or test, got split=validation."):
        mnist.load("validation")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x is no idx file: it begins with , not with 00000803 and 3 sizes"),
        (idx(np.zeros((2, 3), np.uint8)), "begins with 000008020000000200000003.*, not with 00000803"),
        (idx(np.zeros((2, 3, 4), np.uint8))[:15], "begins with"),
        (idx(np.zeros((2, 3, 4), np.uint8))[:-1], r"x has 23 values, not the 24 of its shape \(2, 3, 4\)"),
        (idx(np.zeros((2, 3, 4), np.uint8)) + b"\0", "x has 25 values"),
    ],
)
def test_what_is_no_idx_file_is_refused(content: bytes, message: str):
    with pytest.raises(DataError, match=message):
        mnist.parse(content, 3, "x")


def test_the_subset_has_500_of_each():
    train_images, train_labels, test_images, test_labels = mnist.small()
    for images, labels in ((train_images, train_labels), (test_images, test_labels)):
        assert images.shape == (1000, 28, 28)
        assert images.dtype == labels.dtype == np.uint8
        np.testing.assert_array_equal(np.bincount(labels), [500, 500])
        # A one has less ink than a zero.
        assert images[labels == 1].mean() < 0.6 * images[labels == 0].mean()
    assert mnist.small()[0] is train_images


def test_the_subset_is_attributed():
    about = mnist.small_path().with_suffix(".md").read_text()
    assert "Yann LeCun, Corinna Cortes and Christopher" in about
    assert "by-sa/3.0" in about


@REAL
def test_the_subset_is_the_first_of_the_real_files():
    arrays = mnist.small()
    for split, own_images, own_labels in (("train", *arrays[:2]), ("test", *arrays[2:])):
        images, labels = mnist.load(split)
        rows = [row for digit in (0, 1) for row in np.flatnonzero(labels == digit)[:500]]
        np.testing.assert_array_equal(images[sorted(rows)], own_images)
        np.testing.assert_array_equal(labels[sorted(rows)], own_labels)


@REAL
def test_the_real_files():
    images, labels = mnist.load("train")
    assert images.shape == (60_000, 28, 28)
    np.testing.assert_array_equal(labels[:5], [5, 0, 4, 1, 9])
    assert images.mean() / 255 == pytest.approx(0.1307, abs=5e-5)  # the mean that everyone normalises by
    assert images.std() / 255 == pytest.approx(0.3081, abs=5e-5)
    images, labels = mnist.load("test")
    assert images.shape == (10_000, 28, 28)
    np.testing.assert_array_equal(labels[:5], [7, 2, 1, 0, 4])
    finding = look("mnist")
    assert finding.status == "found"
    assert finding.size == mnist.DOWNLOAD
    assert finding.paths[0].parent == files.folders()[0] / "mnist"
