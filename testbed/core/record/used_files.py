"""Files that a run used and that neither its spec nor its code hash covers: their digests, then and now.

An entry is {"path", "sha256", "size_bytes", "modified_s"}. `path` is relative to the repository where it lies in there.
`sha256` is null for a file of more than MAX_BYTES, which is known by size and time instead, and for one that changed
while the run went on, whose `size_bytes` is null too: what the run had of it is not known.
"""

from __future__ import annotations

import functools
import hashlib
import os
import site
import stat
import sys
import sysconfig
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

MAX_BYTES = 64 << 20
"""Size of the largest file that is read."""
MAX_FILES = 3_000
"""Number of files of one run that are listed, its largest number."""
MAX_FOLDER_FILES = 10_000
"""Number of files and folders within one folder; one that has more is known by its own time alone."""
MAX_TOTAL_BYTES = 1 << 30
"""Bytes that are read for one run; files beyond are known by size and time."""
CLONE = Path(__file__).resolve().parents[3]
CODE = ("testbed/core", "testbed/worker", "testbed/orchestrator", "compressors", "topologies")
"""Folders of the repository whose Python files the code hash covers."""
_SETTLED_S = 2.0
"""Age from which on a file's times tell whether it has changed: clocks of file systems tick in milliseconds."""
_PIECE_BYTES = 1 << 20

Entry = dict[str, Any]
KEYS = ("path", "sha256", "size_bytes", "modified_s")
"""Keys of an entry."""


def is_covered(path: str) -> bool:
    """Return True for a module of Longhaul's that the code hash covers. `path` is absolute, without links."""
    return path == str(CLONE / "testbed/__init__.py") or (
        path.endswith(".py") and path.startswith(tuple(f"{CLONE / folder}{os.sep}" for folder in CODE))
    )


def outside(paths: Iterable[str]) -> list[str]:
    """Return those of loaded modules that lie outside of Longhaul's code, of this environment and of Python's library.

    A path that is not absolute is left out: some modules of torch invent one. A module in an archive counts as the
    archive.
    """
    places = _installed()
    # thousands are installed; of the others links are followed
    found = {path: os.path.realpath(path) for path in paths if os.path.isabs(path) and not path.startswith(places)}
    return sorted({_file_of(path) for path, real in found.items() if not (is_covered(real) or real.startswith(places))})


def _file_of(path: str) -> str:
    """Return the path of a module, or of the archive that it lies in, such as a zip file on PYTHONPATH."""
    above = next((str(one) for one in Path(path).parents if one.is_file()), None)
    return above or path


@functools.cache
def _installed() -> tuple[str, ...]:
    """Return folders, each with a separator at its end: Python's library, and the packages of this environment."""
    paths = sysconfig.get_paths()
    places = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    places += [os.path.dirname(os.__file__), *site.getsitepackages([sys.prefix])]
    places.append(f"/etc/python{sys.version_info.major}.{sys.version_info.minor}")  # Debian's sitecustomize
    places += [os.path.realpath(place) for place in places]
    return tuple(f"{place}{os.sep}" for place in dict.fromkeys(places))


def unknown(what: str) -> Entry:
    """Return an entry of something that was used and cannot be told again."""
    return {"path": what, "sha256": None, "size_bytes": None, "modified_s": 0.0}


def place_of(name: str) -> Path:
    """Return where the file of an entry's `path` is."""
    return CLONE / name


def entry(path: str, *, since_unix_s: float | None = None, most_bytes: int = MAX_BYTES) -> Entry | None:
    """Return the entry of a file or folder as it is; None if there is neither, or it cannot be read.

    The digest of a folder covers the names in it, and the content of its files up to `MAX_BYTES` in all. What is beyond
    counts by size and time, and links in it by what they name. Its path ends with a separator.

    Args:
        path: Path of the file. A link keeps its own name: what it leads to may change.
        since_unix_s: Moment from which on a change makes unknown what was used.
    """
    place = os.path.abspath(path)
    try:
        found = os.stat(place)
        if stat.S_ISDIR(found.st_mode):
            digest, size_bytes, changed_s = _folder(place, found, most_bytes)
        elif stat.S_ISREG(found.st_mode):
            digest = _digest(place, found) if found.st_size <= min(most_bytes, MAX_BYTES) else None
            size_bytes, changed_s = found.st_size, max(found.st_mtime, found.st_ctime)
        else:
            return None
    except OSError:
        return None
    name = os.path.relpath(place, CLONE) if place.startswith(f"{CLONE}{os.sep}") else place
    name += os.sep if stat.S_ISDIR(found.st_mode) else ""
    if since_unix_s is not None and changed_s > since_unix_s:
        return {"path": name, "sha256": None, "size_bytes": None, "modified_s": found.st_mtime}
    return {"path": name, "sha256": digest, "size_bytes": size_bytes, "modified_s": found.st_mtime}


def _folder(place: str, folder: os.stat_result, most_bytes: int) -> tuple[str | None, int, float]:
    """Return the digest of a folder, the bytes of its files, and when it last changed.

    Raises:
        OSError: It, or something in it, cannot be read.
    """
    lines: list[str] = []
    size_bytes, left, changed_s = 0, min(most_bytes, MAX_BYTES), max(folder.st_mtime, folder.st_ctime)
    for root, folders, files in os.walk(place, onerror=_raise):
        folders.sort()
        if len(lines) + len(folders) + len(files) > MAX_FOLDER_FILES:
            return None, folder.st_size, changed_s
        for path in (os.path.join(root, name) for name in (*folders, *sorted(files))):
            found = os.lstat(path)
            said = os.readlink(path) if stat.S_ISLNK(found.st_mode) else ""
            if stat.S_ISREG(found.st_mode):
                said = f"{found.st_size} {found.st_mtime_ns}"
                if found.st_size <= left:
                    said, left = _digest(path, found), left - found.st_size
                size_bytes += found.st_size
            lines.append(f"{os.path.relpath(path, place)}\0{stat.S_IFMT(found.st_mode)}\0{said}")
            changed_s = max(changed_s, found.st_mtime, found.st_ctime)
    text = "\n".join(lines).encode(errors="surrogateescape")
    return hashlib.sha256(text).hexdigest(), size_bytes, changed_s


def _raise(error: OSError) -> None:
    raise error


def entries(paths: Iterable[str], *, since_unix_s: float | None = None) -> list[Entry]:
    """Return an entry for each file that exists, sorted by path, within the bounds of one run."""
    found: dict[str, Entry] = {}
    left, named = MAX_TOTAL_BYTES, sorted(set(paths))
    if more := named[MAX_FILES:]:
        found[""] = unknown(f"{len(more)} more")
    for path in named[:MAX_FILES]:
        one = entry(path, since_unix_s=since_unix_s, most_bytes=left)
        if one is not None:
            found[one["path"]] = one
            left -= one["size_bytes"] or 0 if one["sha256"] else 0
    return [found[name] for name in sorted(found)]


def merged(lists: Iterable[Sequence[Entry]]) -> list[Entry]:
    """Return one entry for each path; two that do not agree make unknown what was used."""
    found: dict[str, Entry] = {}
    for one in (one for each in lists for one in each):
        known = found.setdefault(one["path"], one)
        if (known["sha256"], known["size_bytes"]) != (one["sha256"], one["size_bytes"]):
            found[one["path"]] = {**one, "sha256": None, "size_bytes": None}
    return [found[name] for name in sorted(found)]


def is_same_now(one: Mapping[str, Any]) -> bool:
    """Return True if the file of an entry is still what the run used."""
    if one.get("size_bytes") is None:
        return False
    now = entry(str(place_of(str(one.get("path")))))
    if now is None or now["size_bytes"] != one["size_bytes"]:
        return False
    return bool(now["sha256"] == one["sha256"] if one.get("sha256") else now["modified_s"] == one.get("modified_s"))


def version(used: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the digest of all files together, 16 hexadecimal digits; None if there are none.

    Names count without their folders, so that files that have moved are the same version.
    """
    lines = sorted(
        f"{Path(str(one['path'])).name}\0{one['sha256'] or (one['size_bytes'], one['modified_s'])}" for one in used
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] if lines else None


def _digest(path: str, found: os.stat_result) -> str:
    times = found.st_mtime_ns, found.st_ctime_ns
    if time.time() - max(times) / 1e9 < _SETTLED_S:
        return _read(path)
    return _known(path, found.st_dev, found.st_ino, found.st_size, times)


@functools.lru_cache(maxsize=20_000)
def _known(path: str, _device: int, _inode: int, _size: int, _times: tuple[int, int]) -> str:
    return _read(path)


def _read(path: str) -> str:
    digest, left = hashlib.sha256(), MAX_BYTES + 1
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        while left > 0 and (piece := file.read(min(_PIECE_BYTES, left))):
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()
