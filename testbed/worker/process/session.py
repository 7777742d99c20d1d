"""A worker's life: hello, welcome, connect, warm up, go, train, done. The orchestrator is told what goes wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from testbed.core.device.profile import Profile
from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, Left, LonghaulError, RunError
from testbed.core.record.events.run import Fault, Leaving, Warm
from testbed.core.record.telemetry import KEPT_MODEL, SOCKET_IN_NODE, Channel, Welcome, connect
from testbed.core.spec.run_spec import PROCESSOR, RunSpec
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.connections import Connections
from testbed.worker.communication.rendezvous import Rendezvous
from testbed.worker.device.paces import Paces
from testbed.worker.process.loaded_files import used

if TYPE_CHECKING:
    from testbed.worker.device.accelerator import Accelerator


# How a rank comes back in mid-run: without a process group, which nobody can join later, to what was put down.


def come_back(
    *, rank: int, world_size: int, address: str, port: int, timeout_s: float, service: str = ""
) -> Communicator:
    """A communicator for a strategy that outlives this rank; arguments as of `Communicator.connect`.

    Raises:
        Left: the others are gone.
    """
    comm = Communicator(rank, world_size, timeout_s)
    comm.address, comm.is_back = address, True
    try:
        comm.rendezvous = Rendezvous(
            *(rank, 0), address=address, port=port, store="", timeout_s=timeout_s, service=service
        )
    except (RuntimeError, OSError) as error:
        raise Left(f"rank {rank}: rejoined, and no server is at {service or f'{address}:{port}'}: {error}") from error
    return comm


Emit = Callable[[dict[str, Any]], None]


class Orders:
    """Reads what the orchestrator says, in a thread of its own. The worker ends when the orchestrator is gone."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.busy, self.rest, self.go = threading.Event(), threading.Event(), threading.Event()
        self.t0_s = 0.0
        self.paces = Paces()
        self.leaving = False
        self.thread = threading.Thread(target=self._read, name="orders", daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            for message in self._channel.messages():
                if message["event"] == "busy":
                    self.busy.set()
                elif message["event"] == "rest":
                    self.rest.set()
                elif message["event"] == "pace":
                    self.paces.order(int(message["step"]), float(message["dilation"]))
                elif message["event"] == "go":
                    lead_s = message.get("lead_s")
                    self.t0_s = float(message["t0_s"]) if lead_s is None else time.monotonic() + float(lead_s)
                    self.go.set()
                    self.rest.set()
                    self.busy.set()  # whoever waits for the one may hear the others first
        except Exception:  # whatever it was: without this thread the worker would wait for its order forever
            traceback.print_exc()
        if not self.leaving:
            _leave("the orchestrator is gone", EXIT_FAILED)


def run() -> int:
    """Be one rank of a run; return the exit status."""
    node = os.environ.get("LONGHAUL_NODE", "")
    channel = connect(os.environ.get("LONGHAUL_SOCKET", SOCKET_IN_NODE))
    channel.send({"event": "hello", "node": node})
    return live(channel, node)


def live(channel: Channel, node: str, interface: str | None = None, accelerator: Accelerator | None = None) -> int:
    """From the welcome to the end; return the exit status.

    Args:
        node: what faults name.
        interface: in place of the welcome's.
        accelerator: that this rank computes on; None: the processor.
    """
    message = channel.receive()
    if message is None:
        _leave("the orchestrator closed the socket before it said welcome", EXIT_FAILED)
    welcome, emit = Welcome(**message), channel.send
    if interface is not None:
        welcome = dataclasses.replace(welcome, interface=interface)
    try:
        _train(welcome, emit, Orders(channel), accelerator)
    except Left as error:
        _tell(emit, Leaving(rank=welcome.rank, node=node, message=str(error)).to_json())
        _leave(f"rank {welcome.rank}: {error}", error.exit_status)
    except BaseException as error:
        traceback.print_exc()
        text = str(error) if isinstance(error, LonghaulError) else f"{type(error).__name__}: {error}"
        for told in used(welcome.rank):  # it may be the code of the user that failed, in this version
            _tell(emit, told.to_json())
        _tell(emit, Fault(rank=welcome.rank, node=node, message=text).to_json())
        # Threads of gloo may be stuck in a collective that will never end; the ordinary way out would wait for them.
        _leave(
            f"rank {welcome.rank}: ended by a fault",
            error.exit_status if isinstance(error, LonghaulError) else EXIT_FAILED,
        )
    return EXIT_COMPLETED


def _train(welcome: Welcome, emit: Emit, orders: Orders, accelerator: Accelerator | None) -> None:
    # torch takes seconds to import, and the orchestrator already knows that this worker lives.
    import torch

    torch.set_num_threads(1)
    from testbed.worker.communication.shutdown import shut_down
    from testbed.worker.device.accelerator import Accelerator
    from testbed.worker.device.device_meter import DeviceMeter
    from testbed.worker.model import checkpoint
    from testbed.worker.training import capabilities
    from testbed.worker.training.loop import Training
    from testbed.worker.training.parts import build_parts
    from testbed.worker.training.warm_up import TURNS

    spec = RunSpec.from_json(welcome.spec)
    parts = build_parts(spec)
    faults = list(_mismatches(spec, welcome))
    if faults:
        raise RunError(*faults)
    is_on_device = spec.accelerator != PROCESSOR
    accelerator = Accelerator.of_node(spec.accelerator) if is_on_device else accelerator or Accelerator()
    comm = connected(spec, welcome, accelerator)
    assert comm.rendezvous is not None, "whoever has connected has met the others"
    comm.rendezvous.folder = Path(welcome.folder) if welcome.folder else None
    shut_down()
    if is_on_device:
        is_shared = welcome.world_size > welcome.accelerators
        number = TURNS + welcome.rank % welcome.accelerators
        accelerator.meter = DeviceMeter(accelerator.event, comm.rendezvous.turn(number) if is_shared else None)
    profile = None if welcome.profile is None else Profile.from_json(welcome.profile)
    training = Training(spec, parts, comm, emit, profile)
    training.paces = orders.paces
    training.bind()
    if welcome.rank == 0:
        emit(training.describe().to_json())
    turn = comm.rendezvous.turn(welcome.rank % TURNS)  # what each needs for a moment, hundreds at once do not have
    alone = contextlib.nullcontext() if turn is None else turn.held()
    training.warm_up(orders.busy, orders.rest, build_parts(spec).compressor, alone)
    if not orders.go.is_set():  # it was told to rest, and others wait until it does
        emit(Warm(rank=comm.rank).to_json())
        orders.go.wait()
    done = training.run(orders.t0_s)
    if spec.keeps_model and welcome.rank == 0:
        checkpoint.keep(capabilities.kept(parts.transform, training.model), Path(welcome.folder) / KEPT_MODEL)
    for told in used(welcome.rank):
        emit(told.to_json())
    emit(done.to_json())
    orders.leaving = True
    comm.close(together=not training.outlived)


def connected(spec: RunSpec, welcome: Welcome, accelerator: Accelerator) -> Communicator:
    """Return the communicator of a rank, whether it begins with the others or comes back later.

    Raises:
        RunError: The others did not come in time.
        Left: It came back, and the others are gone.
    """
    place: dict[str, Any] = {
        "rank": welcome.rank,
        "world_size": welcome.world_size,
        "address": welcome.master_address,
        "port": welcome.master_port,
        "timeout_s": spec.timeout_s * spec.dilation,
        "service": welcome.rendezvous,
    }
    if welcome.is_back:
        comm = come_back(**place)
        comm.accelerator = accelerator
        return comm
    place |= {"interface": welcome.interface, "connections": Connections.of(spec), "accelerator": accelerator}
    return Communicator.connect(**place)


def _mismatches(spec: RunSpec, welcome: Welcome) -> list[str]:
    if spec.workers == welcome.world_size:
        return []
    return [f"rank {welcome.rank}: the spec has {spec.workers} workers, the welcome says {welcome.world_size}"]


def _tell(emit: Emit, message: dict[str, Any]) -> None:
    try:
        emit(message)
    except OSError:
        sys.stderr.write("the orchestrator is gone; it was not told\n")


def _leave(reason: str, status: int) -> NoReturn:
    sys.stderr.write(f"{reason}\n")
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(status)
