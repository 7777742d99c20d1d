"""A model in a file: kept at the end of one run, and what another begins with.

The file is what `torch.save` makes of {"longhaul_model": 1, "tensors": {name: tensor}}; reading it runs no code of it.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from testbed.core.errors import InputError, RunError, raise_input_faults

_FORMAT, _VERSION = "longhaul_model", 1
_MAX_NAMED = 20
"""Tensors in one fault."""

_preloaded: dict[tuple[str, str | None], dict[str, Tensor]] = {}
"""By path and checksum; workers are forked with it."""


def keep(state: Mapping[str, Any], path: Path) -> None:
    """Write a model's state.

    Raises:
        RunError: it is not of tensors alone.
    """
    if strange := [name for name, value in state.items() if not isinstance(value, Tensor)]:
        raise RunError(f"checkpoint=last: tensors alone can be kept, and {', '.join(strange)} is none")
    # clones, since of a view all that it is a view of would be written
    tensors = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in state.items()}
    torch.save({_FORMAT: _VERSION, "tensors": tensors}, path)


def preload(path: str, sha256: str | None) -> None:
    """Have `load` find it in memory: nodes do not see the file.

    Raises:
        InputError: as of `load`.
    """
    _preloaded[path, sha256] = _read(path, sha256)[0]


def load(model: nn.Module, path: str, sha256: str | None = None) -> None:
    """Give `model` the parameters and buffers that the file holds.

    Args:
        sha256: that the file must have; None: any.

    Raises:
        InputError: the file cannot be read, is none that `keep` wrote or not the one that was asked for, or holds
            other tensors than the model has; all faults of its tensors at once, and the model is as it was.
    """
    known = _preloaded.get((path, sha256))
    tensors = _read(path, sha256)[0] if known is None else known
    state = model.state_dict()
    raise_input_faults(f"start_from={path}: {fault}" for fault in _faults(tensors, state))
    model.load_state_dict(tensors)


def checksum(path: str) -> str:
    """SHA-256 of a file that `keep` wrote.

    Raises:
        InputError: it cannot be read, or is no such file.
    """
    return _read(path, None)[1]


def _read(path: str, sha256: str | None) -> tuple[dict[str, Tensor], str]:
    try:
        with Path(path).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            if sha256 not in (None, found):
                raise InputError(f"start_from={path}: it has changed: its SHA-256 was {sha256} and is {found}")
            file.seek(0)
            data = _loaded(file, path)
    except OSError as error:
        raise InputError(f"start_from={path}: {error.strerror or error}") from error
    tensors = data.get("tensors") if isinstance(data, dict) and data.get(_FORMAT) == _VERSION else None
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in tensors.items()
    ):
        raise InputError(f"start_from={path}: {_no_model('it holds something else')}")
    return tensors, found


def _loaded(file: Any, path: str) -> Any:
    try:
        return read_archive(file)
    except Exception as error:  # whatever a file that is something else makes torch raise
        said = (str(error).splitlines() or [""])[0]
        raise InputError(f"start_from={path}: {_no_model(f'{type(error).__name__}: {said[:120]}')}") from error


def read_archive(file: BinaryIO) -> Any:
    """Return what `torch.save` has written, without running code of it.

    Raises:
        ValueError: Its parts would take more memory than the file has bytes: `torch.save` packs nothing.
        Exception: whatever else a file that is something else makes torch raise.
    """
    size_bytes = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        unpacked_bytes = sum(part.file_size for part in archive.infolist())
    if unpacked_bytes > size_bytes:
        raise ValueError(f"an archive of {size_bytes} bytes, of which {unpacked_bytes} would come")
    file.seek(0)
    return torch.load(file, map_location="cpu", weights_only=True)


def _no_model(why: str) -> str:
    return f"no model that a run has kept ({why}); checkpoint=last keeps one"


def _faults(tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> Iterator[str]:
    if missing := [name for name in state if name not in tensors]:
        yield f"it lacks {_listed(missing)}, which the model has"
    if extra := [name for name in tensors if name not in state]:
        yield f"it has {_listed(extra)}, which the model has not"
    for name, value in tensors.items():
        if name in state and _form(value) != _form(state[name]):
            yield f"{name} is {_form(value)}, the model's is {_form(state[name])}"
        elif value.is_floating_point() and not value.isfinite().all():
            yield f"{name} has numbers that are not finite"


def _form(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def _listed(names: list[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
