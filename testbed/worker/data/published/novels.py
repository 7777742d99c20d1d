"""Jane Austen's six novels from Debian's package of the R library janeaustenr, chapter by chapter."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Mapping

from testbed.worker.data.array_cache import Array
from testbed.worker.data.published.dataset import Dataset
from testbed.worker.data.published.documents import packed
from testbed.worker.data.published.packages import DebianPackage

CHAPTERS, SAMPLES = 244, 56_804
"""Numbers of chapters and of samples to train on."""
_FILE = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
_MIN_LINES = 1000
"""Number of lines above which a list of texts is a novel."""
_TEST_EVERY = 10
"""One chapter of so many, of each novel, is for test."""
_STRINGS = 16
"""Type of a vector of texts in R's serialisation (SEXPTYPE STRSXP)."""
_CHAPTER = re.compile(r"(?m)^(?:CHAPTER|Chapter) (?:[0-9]+|[IVXL]+)\.?$")
_NO_PROSE = re.compile(r"(?m)^(?:VOLUME|Volume) .*$|^FINIS$|^(?:THE END|The End)\.?$")


def parse(files: Mapping[str, bytes]) -> Array:
    """Return the chapters for training, in the order of the novels, and those for test."""
    training: list[str] = []
    test: list[str] = []
    for novel in sorted(novels(files[_FILE])):
        for place, chapter in enumerate(chapters(novel)):
            (test if place % _TEST_EVERY == _TEST_EVERY - 1 else training).append(chapter)
    return packed(training, "".join(test))


def chapters(novel: str) -> Iterator[str]:
    """Yield the chapters of a novel: a line for each paragraph, without headings, marks of emphasis and the title."""
    for chapter in _CHAPTER.split(novel.replace("\u00a3", "L"))[1:]:
        prose = _NO_PROSE.sub("", chapter).replace("_", "")
        paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", prose))
        yield "".join(f"{paragraph}\n" for paragraph in paragraphs if paragraph)


def novels(content: bytes) -> Iterator[str]:
    """Yield the vectors of many lines in a database of R objects, each as one text."""
    while content:
        # four bytes of length, and then what R has serialised, as one zlib stream
        stream = zlib.decompressobj()
        serialised, content = stream.decompress(content[4:]), stream.unused_data
        if (lines := _lines(serialised)) is not None:
            yield "".join(f"{line}\n" for line in lines)


def _lines(serialised: bytes) -> list[str] | None:
    """Return the texts of a serialised vector, None for any other object and for short vectors."""
    version = _whole(serialised, 2)
    # after "X\n" and three versions comes, from format 3 on, the name of the encoding with its length
    at = 14 if version == 2 else 18 + _whole(serialised, 14)
    if _whole(serialised, at) & 255 != _STRINGS or (count := _whole(serialised, at + 4)) <= _MIN_LINES:
        return None
    lines, at = [], at + 8
    for _ in range(count):
        start, at = at + 8, at + 8 + max(_whole(serialised, at + 4), 0)
        lines.append(serialised[start:at].decode())
    return lines


def _whole(content: bytes, at: int) -> int:
    """Return the signed number of four bytes at a place."""
    number: int = struct.unpack_from(">i", content, at)[0]
    return number


DATASET = Dataset(
    name="texts",
    package=DebianPackage(
        name="r-cran-janeaustenr",
        version="1.0.0-1",
        filename="r-cran-janeaustenr_1.0.0-1_all.deb",
        sha256="df6bddf211906d1ff404f8ff662c21b34e6660e7f54a311084e749050c019c95",
        size_bytes=1_626_392,
        files={_FILE: "8fb5198960d0da724b1562f96e4221e5c1b41ff455000280b02c55980c3d8f21"},
    ),
    licence="public domain (Jane Austen's novels); the package is under the MIT licence",
    sha256="e98c8372a57091da6ed4e66f1e8824eb3a2e567fbba760255be0b0548c138091",
    parse=parse,
)
