"""IMDb on made-up reviews in all three forms, and on the real ones where they are."""

import hashlib
import io
import json
import lzma
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from descentlab.data import files, imdb, look
from descentlab.errors import DataError, SettingError

REAL = pytest.mark.skipif(
    "DESCENTLAB_DATA" not in os.environ, reason="DESCENTLAB_DATA, the folder of real data, is not set"
)
EACH = 6
WORDS = {"pos": "lovely <br /><br />déjà vu", "neg": "dreary,<br />\x85"}
REVIEWS = {
    (split, kind): [f"{i % 4} {words} {split}" for i in range(EACH)]  # two of them twice
    for split in ("train", "test")
    for kind, words in WORDS.items()
}


def content(split: str) -> bytes:
    """What a half's checksum is of: labels and texts, sorted."""
    lines = [(label, text) for label, kind in enumerate(("neg", "pos")) for text in REVIEWS[split, kind]]
    return "".join(f"{label} {text}\n" for label, text in sorted(lines)).encode()


def unpacked(folder: Path) -> None:
    for (split, kind), texts in REVIEWS.items():
        (folder / "aclImdb" / split / kind).mkdir(parents=True)
        for i, text in enumerate(texts):
            (folder / "aclImdb" / split / kind / f"{i}_7.txt").write_bytes(text.encode())
    (folder / "aclImdb" / "train" / "unsup").mkdir()
    (folder / "aclImdb" / "train" / "unsup" / "0_0.txt").write_text("not labelled")


def archive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked(folder / "elsewhere")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(folder / "elsewhere" / "aclImdb", "aclImdb")
    (folder / "aclImdb_v1.tar.gz").write_bytes(buffer.getvalue())
    known = replace(imdb.ARCHIVE, checksum=f"md5:{hashlib.md5(buffer.getvalue()).hexdigest()}", addresses=())
    monkeypatch.setattr(imdb, "ARCHIVE", known)


def halves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for split in ("train", "test"):
        rows = [
            {"label": int(kind == "pos"), "id": i, "rating": 7, "movie": "tt0", "text": text}
            for kind in ("pos", "neg")
            for i, text in enumerate(REVIEWS[split, kind])
        ]
        content = lzma.compress("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
        (folder / f"imdb_{split}.jsonl.xz").write_bytes(content)
        known = replace(imdb.HALVES[split], checksum=f"sha256:{hashlib.sha256(content).hexdigest()}")
        monkeypatch.setitem(imdb.HALVES, split, known)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for reviews, of which there are few in these tests; nothing is fetched."""
    monkeypatch.setenv("DESCENTLAB_DATA", str(tmp_path))
    monkeypatch.setenv("DESCENTLAB_CACHE", str(tmp_path / "cache"))
    for split, half in imdb.UNPACKED.items():
        known = hashlib.sha256(content(split)).hexdigest()
        monkeypatch.setitem(imdb.UNPACKED, split, replace(half, checksum=f"sha256:{known}"))
    (tmp_path / "imdb").mkdir()
    return tmp_path / "imdb"


@pytest.fixture(params=["unpacked", "archive", "halves"])
def form(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "unpacked":
        unpacked(folder)
    else:
        {"archive": archive, "halves": halves}[request.param](folder, monkeypatch)
    return request.param


def test_every_form_gives_the_same_reviews_in_the_same_order(form: str):
    for split in ("train", "test"):
        texts, labels = imdb.load(split)
        ordered = [(0, text) for text in sorted(t.encode() for t in REVIEWS[split, "neg"])]
        ordered += [(1, text) for text in sorted(t.encode() for t in REVIEWS[split, "pos"])]
        order = np.argsort(np.random.PCG64(2011).random_raw(2 * EACH))
        assert list(zip(labels.tolist(), texts, strict=True)) == [ordered[i] for i in order]
        assert labels.dtype == np.uint8
        assert np.any(np.diff(labels[:EACH].astype(int)))  # mixed
    finding = look("imdb")
    assert finding.status == "found"
    assert len(finding.paths) == (2 if form == "halves" else 1)
    assert finding.size


def test_a_half_is_read_once(folder: Path):
    unpacked(folder)
    texts, labels = imdb.load("train")
    (folder / "aclImdb" / "train" / "pos" / "0_7.txt").unlink()
    again, same = imdb.load("train")
    assert same is labels
    assert again == texts
    texts.clear()  # the list is the caller's own
    assert len(imdb.load("train")[0]) == 2 * EACH


def test_tokens_are_bytes_cut_and_padded(folder: Path):
    unpacked(folder)
    texts, labels = imdb.load("train")
    for length in (1, 9, 60):
        tokens, same = imdb.tokens("train", length)
        assert tokens.shape == (2 * EACH, length)
        assert same is labels
        for row, text in zip(tokens, texts, strict=True):
            assert bytes(row[: len(text)]) == text[:length]
            assert not row[len(text) :].any()
    with pytest.raises(SettingError, match=r"length takes a whole number >= 1, got length=0."):
        imdb.tokens("train", 0)
    with pytest.raises(SettingError, match=r"split takes train or test, got split=unsup."):
        imdb.load("unsup")


@pytest.mark.parametrize("altered", [None, "4 dreary, but not quite"])
def test_a_folder_that_lacks_or_alters_a_review_is_refused(folder: Path, altered: str | None):
    unpacked(folder)
    review = folder / "aclImdb" / "test" / "neg" / "3_7.txt"
    review.unlink() if altered is None else review.write_text(altered)
    assert len(imdb.load("train")[0]) == 2 * EACH  # the other half is whole
    with pytest.raises(
        DataError,
        match=rf"aclImdb/test is damaged: its {2 * EACH - (altered is None)} reviews have sha256 \w+ "
        r"instead of \w+, .*Unpack aclImdb_v1.tar.gz again",
    ):
        imdb.load("test")
    assert look("imdb").status == "damaged"


@pytest.mark.parametrize("name", ["imdb_train.jsonl.xz", "aclImdb_v1.tar.gz"])
def test_an_altered_file_is_refused(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    (halves if name.endswith("xz") else archive)(folder, monkeypatch)
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"{name} is damaged: (md5|sha256) \w+ instead of"):
        imdb.load("train")
    assert look("imdb").status == "damaged"


def test_a_half_alone_leaves_the_other_missing(folder: Path, monkeypatch: pytest.MonkeyPatch):
    halves(folder, monkeypatch)
    (folder / "imdb_test.jsonl.xz").unlink()
    monkeypatch.setattr(imdb, "ARCHIVE", replace(imdb.ARCHIVE, addresses=("http://127.0.0.1:9/",)))
    assert len(imdb.load("train")[0]) == 2 * EACH
    finding = look("imdb")
    assert (finding.status, finding.missing) == ("missing", ("imdb, test half",))
    with pytest.raises(
        DataError, match=r"aclImdb_v1.tar.gz is missing.\n(.*\n)*.*`descentlab data imdb`"
    ) as no:
        imdb.load("test")
    assert str(no.value).endswith(
        "Instead, imdb_train.jsonl.xz and imdb_test.jsonl.xz, or the unpacked folder aclImdb, will do."
    )


@REAL
def test_the_real_reviews():
    sums = {}
    for split in ("train", "test"):
        texts, labels = imdb.load(split)
        assert len(texts) == 25_000
        np.testing.assert_array_equal(np.bincount(labels), [12_500, 12_500])
        first = labels[:1000].mean()
        assert abs(first - 0.5) < 5 * 0.5 / np.sqrt(1000)
        assert not any(b"\0" in text for text in texts)
        # All forms hold the same reviews, so that one checksum does for the folder.
        assert (
            files.fault(imdb._lines(sorted(zip(labels.tolist(), texts, strict=True))), imdb.UNPACKED[split])
            is None
        )
        sums[split] = hashlib.sha256(b"\0".join(texts) + labels.tobytes()).hexdigest()[:16]
    # The order of the reviews is part of every result on them.
    assert sums == {"train": "a14822503c36c37d", "test": "60bd75fe40de26ba"}
    assert imdb.tokens("train", 1000)[0].shape == (25_000, 1000)
