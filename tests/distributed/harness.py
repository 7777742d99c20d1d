"""Plays the orchestrator over a Unix socket, so that the real `python -m testbed.worker run` is what is tested.

Ranks are forked from one process that has loaded torch, as a run's are.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from selectors import EVENT_READ, BaseSelector, DefaultSelector
from typing import Any

import yaml

from testbed.core.device.profile import Profile
from testbed.core.record.telemetry import Channel, Welcome
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.core.spec.topology import Topology
from testbed.orchestrator.emulation.containers.rendezvous_service import RendezvousService
from testbed.orchestrator.run.workers.listeners import WorkerListeners
from testbed.orchestrator.run.workers.messages import checked_message
from tests.distributed.forked import STOPS_AFTER, Forked
from tests.unit.worker.communication.collectives.test_collectives import topology as of_regions
from topologies import lan, two_regions

Workers = dict[int, "subprocess.Popen[bytes] | Forked"]
OnEvent = Callable[[dict[str, Any], Workers], int | None]
"""Returns a rank that has ended and is to be started again."""
ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "experiments" / "conf"
WORKER = ROOT / "testbed" / "worker" / "__main__.py"
HANG_S = 250.0
"""After which ranks that are not done have hung: a busy machine takes many times as long as an idle one, and tests have
300 s."""
TIMEOUT_S = 200.0
"""Of a collective, of ranks that meet, or of evaluations after the last step.

Ranks load torch for seconds first, and not all of them at once; evaluations yield to every other process."""
COMPRESSORS = ("fp16", "int8", "none", "powersgd", "sz3", "topk")
"""One of each kind; the law book holds every member to its laws on gloo."""
SMALL = {"_target_": "tests.distributed.small_digits.SmallDigits", "learning_rate": 0.15}
"""The workload of a spec that asks for none."""
SMALL_BUCKETS = {"bucket_size": "8 KiB"}
"""Parameters of strategies with buckets for that workload, which would have a single one by default."""
_APART = ("kv_transfer", "pipetransformer")
STRATEGIES = tuple(sorted(path.stem for path in (CONF / "strategy").glob("*.yaml") if path.stem not in _APART))
"""Those that train, each class once."""


def part(kind: str, name: str, params: dict[str, Any] | None = None) -> Part:
    """A plug-in at the defaults of its configuration, but for `params`."""
    settings = yaml.safe_load((CONF / kind / f"{name}.yaml").read_text()) | (params or {})
    settings.pop("run", None)
    return Part(name, settings.pop("_target_"), settings)


def topology(route: str, workers: int) -> Topology:
    """One on which payloads that cannot be summed take `route`: it follows from delay and rate, nothing is emulated."""
    # Gathering takes fewer messages, so that it wins where they are slow; two regions need two workers.
    return two_regions.build(workers=workers) if route == "gather" and workers > 1 else lan.build(workers=workers)


def make_spec(
    strategy: str = "ddp",
    compressor: str = "none",
    workers: int = 2,
    *,
    route: str = "gather",
    regions: Sequence[int] = (),
    **given: Any,
) -> RunSpec:
    """
    Args:
        regions: workers of each, in place of those of `route`.
        given: fields; `workload`, by name, `small_digits` where it is not given, and the parameters of plug-ins.
    """
    fields: dict[str, Any] = {"steps": 5, "batch_size": 32, "evaluate_every": 1000, "timeout_s": TIMEOUT_S} | given
    if isinstance(fields.get("transform"), dict):  # as JSON
        fields["transform"] = Part(**fields["transform"])
    name, params = fields.pop("workload", None), fields.pop("workload_params", {})
    workload = part("workload", name or "digits", params if name or "_target_" in params else SMALL | params)
    training = part("strategy", strategy)
    if workload.target == SMALL["_target_"]:
        training.params.update({key: size for key, size in SMALL_BUCKETS.items() if key in training.params})
    training.params.update(fields.pop("strategy_params", {}))
    return RunSpec(
        topology=of_regions(tuple(regions)) if regions else topology(route, workers),
        workload=workload,
        strategy=training,
        compressor=part("compressor", compressor, fields.pop("compressor_params", None)),
        device=part("device", "native"),
        **fields,
    )


@contextmanager
def port_of_ones_own(*, and_next: bool = False) -> Iterator[int]:
    """A port of loopback for rank 0 to listen at, which nobody else on the machine is given meanwhile.

    It is bound here and nobody listens, so that rank 0 may: both allow its reuse.

    Args:
        and_next: the one after it is one's own too.
    """
    with ExitStack() as held:
        for _ in range(100):
            holder = held.enter_context(_holder(0))
            port: int = holder.getsockname()[1]
            try:
                if and_next:
                    held.enter_context(_holder(port + 1))
            except (OSError, OverflowError):
                continue  # taken, or there is none
            yield port
            return
        raise RuntimeError("no two free ports in a row")


def _holder(port: int) -> socket.socket:
    holder = socket.socket()
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
    except BaseException:
        holder.close()
        raise
    return holder


def outputs(workers: Sequence[Forked], limit_s: float = HANG_S, dead: Collection[int] = ()) -> list[bytes]:
    """What all ranks say until they end; all of them are ended.

    Args:
        dead: ranks that are to fail.

    Raises:
        AssertionError: a rank failed or is not done within `limit_s`; shows the log of the first one.
    """
    said: list[bytes] = []
    end_s = time.monotonic() + limit_s
    try:
        for rank, worker in enumerate(workers):
            try:
                out, log = worker.communicate(timeout=max(0.0, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                raise AssertionError(
                    f"rank {rank} hung for {limit_s:g} s: {worker.communicate()[1].decode()}"
                ) from None
            assert rank in dead or worker.returncode == 0, f"rank {rank}: {log.decode()[-3000:]}"
            said.append(out)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    return said


@dataclass
class Outcome:
    """What all workers said, and how they ended."""

    events: list[dict[str, Any]] = field(default_factory=list)
    status: dict[int, int] = field(default_factory=dict)
    logs: dict[int, str] = field(default_factory=dict)

    def of(self, kind: str, rank: int | None = None) -> list[dict[str, Any]]:
        return [e for e in self.events if e["event"] == kind and (rank is None or e["rank"] == rank)]

    def losses(self, rank: int) -> list[float]:
        return [e["loss"] for e in self.of("step", rank)]

    def payloads(self, rank: int) -> list[int]:
        return [e["payload_bytes"] for e in self.of("step", rank)]


def run(
    spec: RunSpec,
    folder: Path,
    *,
    limit_s: float = HANG_S,
    on_event: OnEvent | None = None,
    absent: frozenset[int] | set[int] = frozenset(),
    grace_s: float = 0.0,
    python_path: Path = ROOT,
    profile: Profile | None = None,
    stops: Mapping[int, Collection[int]] | None = None,
    script: Path = WORKER,
    accelerators: int = 0,
) -> Outcome:
    """Run all workers of `spec` on loopback to their end.

    Args:
        profile: how long phases last; None: as long as they take here.
        on_event: sees each event as it comes; what it raises ends the conversation.
        absent: ranks that are not started.
        python_path: where classes of others lie, in addition to this tree.
        grace_s: how long workers may take to end by themselves once the conversation is over.
        stops: steps after which ranks stop themselves until `on_event`, which hears of the step, sends a signal. A rank
            that went on could be far beyond the step, or done, when a busy machine lets this process send it.
        script: what a rank runs.
        accelerators: how many devices ranks share.

    Raises:
        AssertionError: some rank is not done within `limit_s`; names it and shows its log.
    """
    path = str(folder / "s.sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(spec.workers)
    with port_of_ones_own() as port:
        logs = {rank: folder / f"rank{rank}.log" for rank in range(spec.workers) if rank not in absent}
        held = stops or {}
        where = path, python_path, script
        workers = {rank: _start(rank, log, *where, held.get(rank, ())) for rank, log in logs.items()}
        kept = folder if spec.keeps_model or spec.keeps_server else None
        conversation = _Conversation(spec, listener, port, on_event, kept)
        conversation.profile = None if profile is None else profile.to_json()
        conversation.accelerators = accelerators

        def start(rank: int) -> Forked:
            taken = max((event["step"] for event in conversation.events if _is_step_of(event, rank)), default=0)
            return _start(rank, logs[rank], *where, [step for step in held.get(rank, ()) if step > taken])

        conversation.start = start
        outcome = Outcome(conversation.events)
        try:
            conversation.hold(workers, time.monotonic() + limit_s)
        finally:
            conversation.end()
            hung = _end(workers, grace_s)
            for rank, worker in workers.items():
                outcome.status[rank] = worker.wait()
                outcome.logs[rank] = logs[rank].read_text(errors="replace")
    told = "\n".join(f"rank {rank}:\n{outcome.logs[rank][-2000:]}" for rank in hung)
    assert not hung, f"hung after {limit_s} s: rank {', '.join(map(str, hung))}\n{told}"
    return outcome


def _is_step_of(event: dict[str, Any], rank: int) -> bool:
    return bool(event["event"] == "step" and event["rank"] == rank)


def _start(rank: int, log: Path, socket_path: str, python_path: Path, script: Path, stops: Collection[int]) -> Forked:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}:{python_path}",
        "OMP_NUM_THREADS": "1",  # as in a node; ranks with a thread for each core would wait for each other's
        "LONGHAUL_SOCKET": socket_path,
        "LONGHAUL_NODE": str(rank),
        STOPS_AFTER: " ".join(map(str, stops)),
    }
    return Forked(script, ["run"], environment=environment, cwd=log.parent, log=log)


def _end(workers: Workers, grace_s: float) -> list[int]:
    """Kill the workers that do not end by themselves; return their ranks."""
    give_up_s = time.monotonic() + grace_s
    while time.monotonic() < give_up_s and any(worker.poll() is None for worker in workers.values()):
        time.sleep(0.1)
    hung = [rank for rank, worker in workers.items() if worker.poll() is None]
    for rank in hung:
        workers[rank].send_signal(signal.SIGKILL)
    return hung


class _Conversation:
    """The orchestrator's end of the socket."""

    def __init__(
        self, spec: RunSpec, listener: socket.socket, port: int, on_event: OnEvent | None, kept: Path | None
    ) -> None:
        """
        Args:
            kept: Folder for what outlives a rank, in which ranks meet too, as in an emulated run; None: at rank 0.
        """
        self.spec, self.listener, self.port, self.on_event = spec, listener, port, on_event
        self.kept = kept
        self._meeting = WorkerListeners(RendezvousService(spec.workers).serve)
        for rank in range(spec.workers if kept else 0):
            self._meeting.open_for(str(rank), self.place(rank))
        self.channels: list[Channel] = []
        self.events: list[dict[str, Any]] = []
        self.start: Callable[[int], Forked] | None = None
        self.profile: dict[str, Any] | None = None
        self.accelerators = 0
        self._known: set[int] = set()
        self._t0_s = 0.0
        self._selector = DefaultSelector()
        self._selector.register(listener, EVENT_READ, None)
        self._warm = 0

    def place(self, rank: int) -> Path:
        """Return the socket of a rank at the rendezvous."""
        assert self.kept is not None
        return self.kept / f"{rank}.meet"

    def hold(self, workers: Workers, deadline_s: float) -> None:
        """Talk until all workers have ended and all they said is read."""
        while time.monotonic() < deadline_s:
            over = all(worker.poll() is not None for worker in workers.values())
            heard = self._listen(workers, timeout_s=0.02)
            if over and not heard:
                return

    def end(self) -> None:
        for channel in self.channels:
            channel.connection.close()
        self.listener.close()
        self._meeting.close()
        self._selector.close()

    def _listen(self, workers: Workers, timeout_s: float) -> bool:
        ready = self._selector.select(timeout=timeout_s)
        for key, _ in ready:
            if key.data is None:
                channel = Channel(self.listener.accept()[0])
                self.channels.append(channel)
                self._selector.register(channel.connection, EVENT_READ, channel)
            else:
                for message in _lines(key.data, self._selector):
                    self._answer(message, key.data, workers)
        return bool(ready)

    def _answer(self, message: dict[str, Any], channel: Channel, workers: Workers) -> None:
        if message["event"] == "hello":
            rank = int(message["node"])
            _welcome(self, channel, rank, is_back=rank in self._known)
            self._known.add(rank)
            return
        checked_message(message, message["rank"])  # as whoever runs them does
        self.events.append(message)
        if message["event"] == "warm":
            self._warm += 1
            if self._warm == self.spec.workers:
                self._t0_s = time.monotonic() + 0.05
            if self._warm >= self.spec.workers:
                for each in self.channels if self._warm == self.spec.workers else [channel]:
                    each.send({"event": "go", "t0_s": self._t0_s})
        again = None if self.on_event is None else self.on_event(message, workers)
        if again is not None:
            assert self.start is not None
            workers[again].wait()
            workers[again] = self.start(again)


def _lines(channel: Channel, selector: BaseSelector) -> list[dict[str, Any]]:
    messages = []
    try:
        first = channel.receive()
    except ConnectionError:
        first = None
    if first is None:
        selector.unregister(channel.connection)
        return []
    messages.append(first)
    while b"\n" in channel._pending:
        following = channel.receive()
        assert following is not None
        messages.append(following)
    return messages


def _welcome(run: _Conversation, channel: Channel, rank: int, *, is_back: bool) -> None:
    channel.send_welcome(
        Welcome(
            spec=run.spec.to_json(),
            rank=rank,
            world_size=run.spec.workers,
            interface="lo",
            master_address="127.0.0.1",
            master_port=run.port,
            rendezvous=str(run.place(rank)) if run.kept else "",
            folder=str(run.kept or ""),
            profile=run.profile,
            accelerators=run.accelerators,
            is_back=is_back,
        )
    )
