"""A run directory on its way between machines: every file with its SHA-256, and one over all of them.

An archive is plain dictionaries, texts and bytes, so that whatever carries Python objects carries it, also between
clones that differ: {"run_id", "files": {relative path: {"sha256", "zlib"}}, "sha256"}.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from testbed.core.errors import RunError
from testbed.core.files import open_regular_bytes
from testbed.core.kinds import shown
from testbed.core.record.run_directory import RUN_ID, RunDir
from testbed.orchestrator.machine.ownership import give_to_caller

ARRIVING = ".arriving-"
"""Begins the names of folders whose files are still being written."""
_LEVEL = 6
MAX_BYTES, MAX_FILES = 8_000_000_000, 100_000
"""Bounds of a run's files once they are unpacked."""
_MAX_RATIO, _SMALL_BYTES = 100, 64_000_000
"""A file that is not small comes packed to no less than a hundredth; the sender leaves alike bytes as they are."""
_MAX_NAME_BYTES, _MAX_DEPTH = 255, 32
_PIECE_BYTES = 1 << 20


def pack(run: RunDir) -> dict[str, Any]:
    """
    Raises:
        RunError: there is something else than files and folders in it.
    """
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(run.path.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        name = path.relative_to(run.path).as_posix()
        if path.is_symlink() or not path.is_file():
            raise RunError(f"{run.run_id}/{name}: is no regular file, and cannot be sent")
        with open_regular_bytes(path) as file:
            content = file.read()
        packed = zlib.compress(content, _LEVEL)
        if len(content) > _most_bytes(packed):
            packed = zlib.compress(content, 0)
        files[name] = {"sha256": hashlib.sha256(content).hexdigest(), "zlib": packed}
    return {"run_id": run.run_id, "files": files, "sha256": _sum_over(run.run_id, files)}


def unpack(archive: Mapping[str, Any], runs_root: Path) -> RunDir:
    """The run, in its place among others once every file is there and is what was sent.

    One that is there already is left as it is: the archive came twice.

    Raises:
        RunError: something is missing, damaged, larger than a run's files are, or would lie outside the run's
            directory.
    """
    run_id, files = str(archive.get("run_id")), archive.get("files") or {}
    _require_whole(run_id, files, str(archive.get("sha256")))
    run = RunDir(runs_root / run_id)
    if run.path.exists():
        return run
    arriving = Path(tempfile.mkdtemp(dir=runs_root, prefix=ARRIVING))
    try:
        left_bytes = MAX_BYTES
        for name, file in files.items():
            path = arriving / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as target:
                left_bytes -= _unpack(f"{run_id}/{name}", file, target, left_bytes)
        arriving.chmod(0o755)  # a temporary folder is its maker's alone
        os.replace(arriving, run.path)
    except BaseException:
        shutil.rmtree(arriving, ignore_errors=True)
        raise
    give_to_caller(run.path)
    return run


def _require_whole(run_id: str, files: Any, expected: str) -> None:
    if not RUN_ID.fullmatch(run_id):
        raise RunError(f"a run came back that is called {shown(run_id)!r}, which is no run id")
    if not isinstance(files, Mapping) or len(files) > MAX_FILES or not all(map(_is_file, files.values())):
        raise RunError(f"{run_id}: came back in another form than runs are sent, or with more than {MAX_FILES} files")
    if strange := [name for name in files if not _is_name(name)]:
        raise RunError(
            f"{run_id}: came back with a file {shown(strange[0])!r} outside its directory, or of no such name"
        )
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents}
    if both := folders.intersection(files):
        raise RunError(f"{run_id}: came back with {shown(min(both))!r} as a file and as a folder")
    if _sum_over(run_id, files) != expected:
        raise RunError(f"{run_id}: came back with other files than were sent")
    if "summary.json" not in files:
        raise RunError(f"{run_id}: came back without summary.json: it was not finalized")


def _is_file(file: Any) -> bool:
    return isinstance(file, Mapping) and isinstance(file.get("sha256"), str) and isinstance(file.get("zlib"), bytes)


def _is_name(name: Any) -> bool:
    """Return True for a relative path that leads nowhere else, and that file systems take."""
    if not isinstance(name, str) or not name or "\0" in name:
        return False
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name or name == "." or len(path.parts) > _MAX_DEPTH:
        return False
    try:
        return all(len(part.encode()) <= _MAX_NAME_BYTES for part in path.parts)
    except UnicodeEncodeError:
        return False


def _sum_over(run_id: str, files: Mapping[str, Mapping[str, Any]]) -> str:
    """Of the names and sums of all files: none can be missing or be another's."""
    named = [run_id, sorted((name, str(file["sha256"])) for name, file in files.items())]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


def _most_bytes(packed: bytes) -> int:
    return max(_SMALL_BYTES, _MAX_RATIO * len(packed))


def _unpack(name: str, file: Mapping[str, Any], target: BinaryIO, left_bytes: int) -> int:
    """Write a file piece by piece; return its size."""
    stream, digest, size_bytes = zlib.decompressobj(), hashlib.sha256(), 0
    most_bytes, packed = min(left_bytes, _most_bytes(file["zlib"])), file["zlib"]
    try:
        while not stream.eof and (piece := stream.decompress(packed, _PIECE_BYTES)):
            packed = stream.unconsumed_tail
            size_bytes += len(piece)
            if size_bytes > most_bytes:
                raise RunError(f"{name}: came back with more bytes than a run's files have: more than {most_bytes}")
            digest.update(piece)
            target.write(piece)
    except zlib.error as error:
        raise RunError(f"{name}: came back damaged: {error}") from error
    if not stream.eof or stream.unused_data:
        raise RunError(f"{name}: came back damaged: it is cut, or goes on after its end")
    if digest.hexdigest() != file["sha256"]:
        raise RunError(f"{name}: came back damaged: its SHA-256 is another than when it was sent")
    return size_bytes


def remove_halves(runs_root: Path) -> None:
    """What was arriving when somebody was killed; only for who knows that nothing is arriving now."""
    for path in runs_root.glob(f"{ARRIVING}*"):
        shutil.rmtree(path, ignore_errors=True)
