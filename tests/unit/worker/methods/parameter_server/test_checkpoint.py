"""What a server leaves in a file for one that is started in its place, and what is refused in place of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from testbed.core.errors import RunError
from testbed.worker.communication.communicator import Communicator
from testbed.worker.methods.parameter_server import checkpoint


def _state() -> dict[str, Any]:
    tensors = [torch.arange(6.0).view(2, 3), torch.tensor(7)]
    return {"step": 4, "values": tensors, "samples": {0: 8, 1: 16}, "left": {"1": "it died"}, "alpha": None}


def test_what_was_left_last_is_found_to_the_bit(tmp_path: Path) -> None:
    path = tmp_path / "server.pt"
    checkpoint.keep_state({"step": 3}, path)
    checkpoint.keep_state(_state(), path)
    found = checkpoint.load(path)
    assert all(torch.equal(one, other) for one, other in zip(found.pop("values"), _state()["values"], strict=True))
    assert found == {key: value for key, value in _state().items() if key != "values"}
    assert [one.name for one in tmp_path.iterdir()] == ["server.pt"]


def test_one_that_was_not_written_to_its_end_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.pt"
    checkpoint.keep_state({"step": 3}, path)

    def torn(data: Any, file: Any) -> None:
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", torn)
    with pytest.raises(RunError, match=f"strategy.checkpoint=true: {path} could not be written: .*No space left"):
        checkpoint.keep_state(_state(), path)
    assert checkpoint.load(path) == {"step": 3}


class _Strange:
    """Which reading would have to run code for."""


def test_what_is_no_state_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "server.pt"
    with pytest.raises(RunError, match=f"{path} is not there: the server died before its first round had begun"):
        checkpoint.load(path)
    checkpoint.keep_state(_state(), path)
    whole = path.read_bytes()
    torch.save({"longhaul_server": 1, "state": {"step": _Strange()}}, tmp_path / "strange")
    torch.save({"tensors": {}}, tmp_path / "other")
    strange, other = ((tmp_path / name).read_bytes() for name in ("strange", "other"))
    for found in (whole[: len(whole) // 2], whole[:-1], b"", b"no archive", strange, other):
        path.write_bytes(found)
        with pytest.raises(RunError, match=f"{path} is no state that a server has left"):
            checkpoint.load(path)


def test_ranks_that_share_no_directory_leave_nothing() -> None:
    comm = cast(Communicator, SimpleNamespace(rendezvous=SimpleNamespace(folder=None)))
    with pytest.raises(RunError, match="rank 0 has no folder that outlives it"):
        checkpoint.place_of(comm)
