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
from typing import Any

from testbed.core.errors import RunError
from testbed.core.record.run_directory import RUN_ID, RunDir
from testbed.orchestrator.machine.ownership import give_to_caller

ARRIVING = ".arriving-"
"""Begins the names of folders whose files are still being written."""
_LEVEL = 6


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
        content = path.read_bytes()
        files[name] = {"sha256": hashlib.sha256(content).hexdigest(), "zlib": zlib.compress(content, _LEVEL)}
    return {"run_id": run.run_id, "files": files, "sha256": _sum_over(run.run_id, files)}


def unpack(archive: Mapping[str, Any], runs_root: Path) -> RunDir:
    """The run, in its place among others once every file is there and is what was sent.

    One that is there already is left as it is: the archive came twice.

    Raises:
        RunError: something is missing, damaged, or would lie outside the run's directory.
    """
    run_id, files = str(archive["run_id"]), archive["files"]
    _require_whole(run_id, files, str(archive["sha256"]))
    run = RunDir(runs_root / run_id)
    if run.path.exists():
        return run
    arriving = Path(tempfile.mkdtemp(dir=runs_root, prefix=ARRIVING))
    try:
        for name, file in files.items():
            path = arriving / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_content(f"{run_id}/{name}", file))
        arriving.chmod(0o755)  # a temporary folder is its maker's alone
        os.replace(arriving, run.path)
    except BaseException:
        shutil.rmtree(arriving, ignore_errors=True)
        raise
    give_to_caller(run.path)
    return run


def _require_whole(run_id: str, files: Mapping[str, Mapping[str, Any]], expected: str) -> None:
    if not RUN_ID.fullmatch(run_id):
        raise RunError(f"a run came back that is called {run_id!r}, which is no run id")
    if _sum_over(run_id, files) != expected:
        raise RunError(f"{run_id}: came back with other files than were sent")
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or str(path) != name:
            raise RunError(f"{run_id}: came back with a file {name!r} outside its directory")
    if "summary.json" not in files:
        raise RunError(f"{run_id}: came back without summary.json: it was not sealed")


def _sum_over(run_id: str, files: Mapping[str, Mapping[str, Any]]) -> str:
    """Of the names and sums of all files: none can be missing or be another's."""
    named = [run_id, sorted((name, str(file["sha256"])) for name, file in files.items())]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


def _content(name: str, file: Mapping[str, Any]) -> bytes:
    try:
        content = zlib.decompress(file["zlib"])
    except zlib.error as error:
        raise RunError(f"{name}: came back damaged: {error}") from error
    if hashlib.sha256(content).hexdigest() != file["sha256"]:
        raise RunError(f"{name}: came back damaged: its SHA-256 is another than when it was sent")
    return content


def remove_halves(runs_root: Path) -> None:
    """What was arriving when somebody was killed; only for who knows that nothing is arriving now."""
    for path in runs_root.glob(f"{ARRIVING}*"):
        shutil.rmtree(path, ignore_errors=True)
