"""Strict reading of JSON files of users."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError
from testbed.core.user_files.text import read_user_text, shown

MAX_FILE_BYTES = 20_000_000


def read_json(path: Path) -> Any:
    """Return what a JSON file holds, without repeated keys and without NaN or infinity.

    Raises:
        InputError: The file cannot be read, or is none.
    """
    try:
        return json.loads(
            read_user_text(path, MAX_FILE_BYTES), object_pairs_hook=_without_repeats, parse_constant=_refuse
        )
    except RecursionError as error:
        raise InputError(f"{path}: is nested too deeply") from error
    except ValueError as error:
        raise InputError(f"{path}: cannot be read as JSON: {error}") from error


def _without_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {shown(repeated)} is given twice")
    return found


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number; leave the layer out of the measurement, or measure it again")
