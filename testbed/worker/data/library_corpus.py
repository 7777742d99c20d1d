"""The source of the Python standard library, which every machine has, as bytes to learn from."""

from __future__ import annotations

import functools
import hashlib
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from testbed.core.errors import InputError

CONTEXT = 64
"""Bytes that a prediction can see."""
_HELD_OUT_OF = 16
"""One file of so many is evaluated on and never trained on."""
_MIN_BYTES = 1_000_000


class Corpus(NamedTuple):
    """Bytes as they stand in the files, one file after another."""

    train: Tensor
    held_out: Tensor
    files: Tensor
    """Of each sample of `train` the number of the file that its first byte is of."""
    sha256: str
    """Of names and contents: point releases of Debian's Python differ."""


def library() -> Path:
    """Where the interpreter's own library lies: that of the system, not of a virtual environment."""
    return Path(sysconfig.get_path("stdlib"))


def corpus_files(folder: Path) -> list[Path]:
    """Modules of the library and of its packages in the order of their names, without tests and installed packages."""
    found = [path for path in folder.rglob("*.py") if path.is_file() and not path.is_symlink()]
    left_out = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "lib2to3", "idlelib"}
    kept = [path.relative_to(folder) for path in found if not left_out & set(path.relative_to(folder).parts)]
    return [folder / path for path in sorted(kept, key=Path.as_posix)]


def corpus_faults(folder: Path) -> list[str]:
    size = sum(path.stat().st_size for path in corpus_files(folder))
    if size >= _MIN_BYTES:
        return []
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return [
        f"the standard library's source in {folder} has {size} bytes, at least {_MIN_BYTES} are needed: it is in"
        f" Debian's packages libpython{version}-stdlib and libpython{version}-minimal"
    ]


@functools.cache
def corpus() -> Corpus:
    """
    Raises:
        InputError: the library's source is not there, or only in part.
    """
    folder = library()
    if faults := corpus_faults(folder):
        raise InputError(*(f"workload bytelm: {fault}" for fault in faults))
    return read_corpus(folder)


def read_corpus(folder: Path) -> Corpus:
    """Which files are held out follows from their names alone."""
    digest = hashlib.sha256()
    parts: dict[bool, list[bytes]] = {False: [], True: []}
    for path in corpus_files(folder):
        name, content = path.relative_to(folder).as_posix().encode(), path.read_bytes()
        digest.update(b"%b\0%d\0%b" % (name, len(content), content))
        parts[hashlib.sha256(name).digest()[0] % _HELD_OUT_OF == 0].append(content)
    train, held_out = (
        torch.frombuffer(bytearray(b"\n".join(parts[is_held_out])), dtype=torch.uint8) for is_held_out in (False, True)
    )
    # the line end that joins two files is the former's
    ends = torch.tensor([len(content) + 1 for content in parts[False]]).cumsum(dim=0)
    files = torch.searchsorted(ends, torch.arange(0, len(train) - CONTEXT, CONTEXT), right=True)
    return Corpus(train, held_out, files, digest.hexdigest())


def sequences(text: Tensor, chosen: Tensor) -> Tensor:
    """Of `chosen` numbers, one a row: `CONTEXT` bytes and the one that follows."""
    return text[chosen[:, None] * CONTEXT + torch.arange(CONTEXT + 1)].long()
