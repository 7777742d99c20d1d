"""A server's state in a file that outlives it, in its node's directory; reading it runs no code of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from testbed.core.errors import RunError
from testbed.worker.communication.communicator import Communicator
from testbed.worker.interfaces.workload import Batch
from testbed.worker.methods.parameter_server.server import Begun, Server
from testbed.worker.methods.parameter_server.service import Service
from testbed.worker.model.checkpoint import read_archive

_NAME = "server.pt"
_FORMAT, _VERSION = "longhaul_server", 1


def place_of(comm: Communicator) -> Path:
    """
    Raises:
        RunError: There is no such directory, and nothing would be left of it.
    """
    folder = None if comm.rendezvous is None else comm.rendezvous.folder
    if folder is None:
        raise RunError("strategy.checkpoint=true: rank 0 has no folder that outlives it")
    return folder / _NAME


def keep_state(state: dict[str, Any], path: Path) -> None:
    """Replace what is there, so that it is the one or the other at all times.

    Args:
        state: plain data and tensors.

    Raises:
        RunError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as file:
            torch.save({_FORMAT: _VERSION, "state": state}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:  # torch's writer of archives raises the second
        said = str(error).splitlines()[0]
        raise RunError(f"strategy.checkpoint=true: {path} could not be written: {said}") from error


def load(path: Path) -> dict[str, Any]:
    """What `keep` wrote last.

    Raises:
        RunError: there is none, or something else in its place; names the file.
    """
    try:
        with path.open("rb") as file:
            data = read_archive(file)
    except FileNotFoundError:
        raise RunError(
            f"strategy.checkpoint=true: {path} is not there: the server died before its first round had begun"
        ) from None
    except Exception as error:  # whatever a file that is something else makes torch raise
        raise RunError(_no_state(path, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")) from error
    if not isinstance(data, dict) or data.get(_FORMAT) != _VERSION or not isinstance(data.get("state"), dict):
        raise RunError(_no_state(path, "it holds something else"))
    found: dict[str, Any] = data["state"]
    return found


def _no_state(path: Path, why: str) -> str:
    return f"strategy.checkpoint=true: {path} is no state that a server has left ({why[:200]})"


# A server whose state outlives it, so that another one goes on from where it was.


def lasting_server(service: Service, held_out: Batch | None, step: Callable[[], int]) -> tuple[Server, int]:
    """One that writes its state before each model that it sends, in place of another one if rank 0 has come back.

    Args:
        held_out: what models are tried on.
        step: that is being taken.

    Returns:
        The server, and the step that rank 0 has taken last; -1: none.

    Raises:
        RunError: nothing can be written, or the last one has left nothing that can be read.
    """
    context, taken = service.context, -1
    path = place_of(context.comm)
    if context.comm.is_back:
        state = load(path)
        begun = Begun(**state["begun"])
        server = service.server(held_out, begun.round)
        server.take_over(state["server"], begun)
        rates = [group["lr"] for group in context.optimizer.param_groups]
        context.optimizer.load_state_dict(state["optimizer"])
        for group, rate in zip(context.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate  # the loop sets that of each step, from what the optimizer began with
        taken = state["step"] - (not begun.is_last)  # the step that begins a round was not at its end
    else:
        server = service.server(held_out)

    def keep() -> None:
        assert server.begun is not None, "a round has begun"
        state = {"step": step(), "begun": asdict(server.begun)}
        state |= {"server": server.state_dict(), "optimizer": context.optimizer.state_dict()}
        keep_state(state, path)

    server.keep = keep
    return server, taken
