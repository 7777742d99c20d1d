"""A server whose state outlives it, so that another one goes on from where it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from testbed.worker.server import server_file
from testbed.worker.server.server import Begun, Server
from testbed.worker.server.service import Service
from testbed.worker.workload import Batch


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
    path = server_file.place_of(context.comm)
    if context.comm.is_back:
        state = server_file.load(path)
        begun = Begun(**state["begun"])
        server = service.server(held_out, begun.round)
        server.take_over(state["server"], begun)
        context.optimizer.load_state_dict(state["optimizer"])
        taken = state["step"] - (not begun.is_last)  # the step that begins a round was not at its end
    else:
        server = service.server(held_out)

    def keep() -> None:
        assert server.begun is not None, "a round has begun"
        state = {"step": step(), "begun": asdict(server.begun)}
        state |= {"server": server.state_dict(), "optimizer": context.optimizer.state_dict()}
        server_file.keep(state, path)

    server.keep = keep
    return server, taken
