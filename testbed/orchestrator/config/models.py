"""Models that runs have kept: found for another run to begin with, and taken over from a worker."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from testbed.core.errors import InputError, RunError
from testbed.core.files import is_regular, open_regular_bytes
from testbed.core.record.run_directory import RUN_ID, RunDir


def located(asked: str | None, runs_root: Path) -> tuple[str | None, list[str]]:
    """The path of the file that `start_from=asked` means, and what is wrong with what was asked.

    Args:
        asked: a run's id, its directory, or the file.
    """
    try:
        return None if asked is None else str(_located(asked, runs_root)), []
    except InputError as error:
        return None, list(error.faults)


def _located(asked: str, runs_root: Path) -> Path:
    is_id = RUN_ID.fullmatch(asked) is not None
    path = runs_root / asked if is_id else Path(asked)
    if is_id and not path.is_dir():
        raise InputError(f"start_from={asked}: no such run in {runs_root}; longhaul list names them")
    if path.is_dir():
        found = RunDir(path.resolve()).model
        if not is_regular(found):
            raise InputError(f"start_from={asked}: it holds no {found.name}; make that run again with checkpoint=last")
        return found
    if not path.is_file():
        raise InputError(f"start_from={asked}: no such run, directory or file")
    return path.resolve()


def take_over(source: Path, target: Path) -> str:
    """Copy the model that a worker has left; the target is there whole or not at all.

    Returns:
        What it is, for the record.

    Raises:
        RunError: there is none, or something else in its place.
    """
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w+b") as copy:
            with open_regular_bytes(source) as file:
                shutil.copyfileobj(file, copy)
            copy.seek(0)
            digest = hashlib.file_digest(copy, "sha256").hexdigest()
            size_bytes = os.fstat(copy.fileno()).st_size
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except (FileNotFoundError, ValueError) as error:
        Path(temporary).unlink(missing_ok=True)
        raise RunError(f"checkpoint=last: rank 0 has left no model: {error}") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return f"{target.name}, {size_bytes} bytes, SHA-256 {digest}"
