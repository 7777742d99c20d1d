"""`torchrun ... -m testbed.worker torchrun key=value ...`: a rank on a machine that is there, with nothing emulated.

Rank 0 starts an orchestrator beside itself, which makes the spec, keeps the record and is told of everything by every
rank over TCP, as it is over a socket in a node. Two ports of rank 0's machine are used, `--port` for that and the next
one for the ranks to meet; `torchrun`'s own is left alone.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.core.errors import InputError, LonghaulError, MachineError
from testbed.core.packages import lacking_packages
from testbed.core.record.telemetry import connect_over_network
from testbed.core.spec.run_spec import CUDA, PROCESSOR
from testbed.worker.process.session import live

if TYPE_CHECKING:
    from testbed.worker.device.accelerator import Accelerator

CLONE = Path(__file__).resolve().parents[3]
PORT = 29600
WAIT_S = 600.0
"""For an orchestrator, which measures a step before it listens where the device asks for it."""
_GET_ADDRESS = 0x8915  # SIOCGIFADDR


@dataclass(frozen=True)
class Place:
    """Of a rank, as `torchrun` tells it."""

    rank: int
    ranks: int
    address: str
    """Of rank 0's machine."""
    job: str
    local_rank: int = 0
    """Its number on its machine."""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Place:
        """
        Raises:
            InputError: it was not started by `torchrun`.
        """
        needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR")
        lacking = [name for name in needed if not environment.get(name)]
        if lacking:
            raise InputError(
                f"{', '.join(lacking)}: not set; start it as torchrun --nproc-per-node 2 -m testbed.worker torchrun"
                " key=value ..."
            )
        rank, ranks, address = (environment[name] for name in needed)
        job, local_rank = environment.get("TORCHELASTIC_RUN_ID", ""), environment.get("LOCAL_RANK", "0")
        return cls(int(rank), int(ranks), address, job, int(local_rank))


def interface_towards(address: str) -> str:
    """The interface whose address this machine has when it speaks to another one.

    Raises:
        InputError: there is none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # sends nothing
            own = socket.inet_aton(probe.getsockname()[0])
        except OSError as error:
            raise InputError(f"MASTER_ADDR={address}: cannot be reached from this machine: {error}") from error
        for _, name in socket.if_nameindex():
            try:
                found = ioctl(probe, _GET_ADDRESS, struct.pack("256s", name.encode()))[20:24]
            except OSError:
                continue  # it has no address
            if found == own or (own[0] == found[0] == 127):
                return name
    raise InputError(f"MASTER_ADDR={address}: no interface has the address it is spoken to with; give --interface")


def require_other_side(clone: Path = CLONE) -> None:
    """
    Raises:
        MachineError: this is the worker alone, as the extra `worker` brings it, and so no place for rank 0.
    """
    lacking = lacking_packages()
    lacking += [path for path in ("experiments/conf",) if not (clone / path).is_dir()]
    if lacking:
        raise MachineError(
            f"rank 0 makes the spec and keeps the record, for which this machine lacks {', '.join(lacking)};"
            " let a machine with a clone and `make setup` be rank 0 (--node-rank 0):"
            " the worker alone serves for all other ranks"
        )


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65535:
        raise argparse.ArgumentTypeError(f"{text}: must be a port from 1 to 65534, since the next one is used too")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torchrun ... -m testbed.worker torchrun", description=__doc__.split("\n")[0])
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as of longhaul run")
    parser.add_argument("--port", type=_port, default=PORT, help="of rank 0's machine; the next one is used too")
    parser.add_argument("--interface", help="that ranks speak over; found by the way to MASTER_ADDR if it is left out")
    parser.add_argument(
        "--accelerator",
        choices=(PROCESSOR, CUDA),
        default=PROCESSOR,
        help="what ranks compute on, one each, with NCCL between them; alike on all machines",
    )
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where rank 0 keeps the record")
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="FILE",
        help="a Python file of which a topology may name a function",
    )
    return parser


def join(arguments: list[str]) -> int:
    """Be the rank that the environment says; return the exit status."""
    asked = _parser().parse_args(arguments)
    try:
        place = Place.read(os.environ)
        interface = asked.interface or interface_towards(place.address)
        accelerator = _accelerator(asked.accelerator, place.local_rank)
        if place.rank == 0:
            require_other_side()
    except LonghaulError as error:
        for fault in error.faults:
            sys.stderr.write(f"{fault}\n")
        return error.exit_status
    orchestrator = _orchestrator(place, asked) if place.rank == 0 else None
    if orchestrator is not None and (status := orchestrator.poll()) is not None:
        return status  # it has said why
    host = socket.gethostname()
    try:
        channel = connect_over_network(place.address, asked.port, WAIT_S)
    except OSError as error:
        sys.stderr.write(f"rank {place.rank}: rank 0 listens at {place.address}:{asked.port} not yet: {error}\n")
        return InputError.exit_status
    name = None if accelerator is None else accelerator.name
    channel.send({"event": "hello", "rank": place.rank, "host": host, "job": place.job, "accelerator": name})
    status = live(channel, host, interface, accelerator)
    if orchestrator is None:
        return status
    channel.connection.close()
    return orchestrator.wait() or status


def _accelerator(kind: str, local_rank: int) -> Accelerator | None:
    if kind == PROCESSOR:
        return None
    from testbed.worker.device.accelerator import Accelerator  # imports torch, which others do once they are heard of

    return Accelerator.of_rank(kind, local_rank)


def _orchestrator(place: Place, asked: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Once it listens, or has ended. It outlives this rank, in a session of its own, until the record is sealed: it
    hears that all ranks are gone."""
    command = [sys.executable, "-m", "testbed.orchestrator.cluster", place.address, str(asked.port)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(CLONE), os.getenv("PYTHONPATH")]))}
    ready, told = os.pipe()
    with open(ready, "rb") as listening:
        command += [str(place.ranks), place.job, str(Path(asked.runs).resolve()), str(told), asked.accelerator]
        command += [*(f"--trust={file}" for file in asked.trust), *asked.overrides]
        process = subprocess.Popen(command, env=environment, start_new_session=True, pass_fds=[told])
        os.close(told)
        if not listening.read():
            process.wait()
    return process
