"""What to do: one run as frozen data, in base units, with a hash.

The orchestrator writes it to `spec.json`; workers receive the same object. It can be built without Hydra:

    RunSpec(topology=two_regions.build(workers=4), workload=Part("digits", "pkg.module.Digits"), ..., steps=80)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from testbed.core.errors import raise_input_faults
from testbed.core.spec import connections, redirects
from testbed.core.spec.link_profile import MTU_BYTES
from testbed.core.spec.schedule import Background, Change, outermost
from testbed.core.spec.topology import Topology
from testbed.core.spec.typed import made
from testbed.core.units import format_size

TCP_PROFILES = ("tuned", "stock", "reno", "bbr")
SHAPERS = ("auto", "netem", "nfqueue")
CAPTURES = ("none", "wan", "wan-packets")
CHECKPOINTS = ("none", "last")
RUNTIMES = ("runc", "docker")
PROCESSOR, CUDA, NCCL = ACCELERATORS = ("none", "cuda", "cuda_nccl")
"""Values of `accelerator`: the processor, devices that ranks may share, or one for each of them, by NCCL."""
NATIVE = "testbed.core.device.Native"
"""Target of the device that computes: where ranks have an accelerator, that one."""
PROGRAMS = {"longhaul.program.Script": "script", "longhaul.program.Hand": "hand"}
"""Targets of workloads that are not trained by our loop: a user's own script, or nothing at all."""
MAX_DILATED_RTT_S = 5.0
"""Largest wall seconds of a round trip, since no time-out while connections start stretches (decision 0009)."""
MIN_MEMORY_BYTES = 16_000_000
DEFAULT_METRICS_PORT = 9464


@dataclass(frozen=True)
class Part:
    """A plug-in by name: its class as "package.module.Class" and its parameters.

    Targets may be given by any name they have had, those among parameters too; a part holds the present ones, so that
    whoever compares or imports them sees no others.
    """

    name: str
    target: str
    params: dict[str, Any] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    """Absolute paths in which modules of the user's are looked for, first the first. Not part of the hash."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "folders", tuple(self.folders))
        object.__setattr__(self, "target", redirects.present(self.target))
        object.__setattr__(self, "params", redirects.in_params(self.params, redirects.present))

    def first_published(self) -> dict[str, Any]:
        """Return its data as hashes have them: first published targets, without parameters that came later."""
        params = redirects.as_recorded(self.target, self.params)
        return {"name": self.name, "target": redirects.first_published(self.target), "params": params}


PARTS = ("workload", "strategy", "compressor", "device", "transform")
"""The fields of a spec that are parts."""

UNCHANGED = Part("none", "testbed.worker.transforms.none.Unchanged")
"""The transform of a model that keeps its layers."""
UNCOMPRESSED = Part("none", "compressors.none.Uncompressed")
_LATER = (("transform", UNCHANGED), ("accelerator", PROCESSOR), ("connections", None))
"""Fields that a hash leaves out at these values, so that runs recorded before the fields existed keep theirs."""


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run.

    Raises:
        InputError: with every fault at once.
    """

    topology: Topology
    workload: Part
    strategy: Part
    compressor: Part
    device: Part
    transform: Part = UNCHANGED
    steps: int | None = None
    """Optimizer steps; exactly one of `steps` and `epochs` is given."""
    epochs: float | None = None
    batch_size: int = 32
    """Samples of one worker in one step."""
    evaluate_every: int = 20
    """Steps between evaluations; the last step is always evaluated."""
    target: float | None = None
    """Metric value for `time_to_target_s`; None takes the workload's own."""
    data_hash: str | None = None
    """Of the workload's data where machines may differ in them; found by asking the workload, not given."""
    data_licence: str | None = None
    """Licence of data that are fetched, with whom to name; found by asking the workload. Not part of the hash."""
    start_from: str | None = None
    """Path of a model that a run has kept, with whose parameters and buffers this one begins. Not part of the hash
    where `start_hash` is known."""
    start_hash: str | None = None
    """SHA-256 of that file; found by reading it, not given."""
    checkpoint: str = "none"
    """"last": the model after the last step is kept in the run's directory. Not part of the hash."""
    seed: int = 0
    """From 0 to below 2**31, so that numbers derived from it fit in 64 bits."""
    dilation: float = 1.0
    auto_dilation: bool = False
    """`dilation` was, or is still to be, chosen for the machine the run is made on; it is not part of the hash then."""
    guessed_dilation: bool = False
    """It is chosen by reckoning alone, and not tried on the run before it begins. Not part of the hash."""
    scale: float = 1.0
    """S: a replay's bytes and the topology's rates are divided by S; see core.spec.scale."""
    runtime: str = "runc"
    accelerator: str = PROCESSOR
    """Device on which nodes compute; not part of the hash where that is the processor."""
    shaper: str = "auto"
    tcp: str = "tuned"
    connections: int | None = None
    """TCP connections to each peer, among which a message is cut; None: as many as the collective has, one of gloo."""
    capture: str = "none"
    """"wan": packet headers of every WAN link; "wan-packets": likewise, with segmentation offloads off."""
    memory_limit: dict[str, int] = field(default_factory=dict)
    """Most bytes of a node's container, by node; those that are not named share the machine's memory evenly."""
    events: tuple[Change, ...] = ()
    """In the order of their times."""
    background: tuple[Background, ...] = ()
    timeout_s: float = 120.0
    """A collective that takes longer, in emulated seconds, fails and names the rank that waited."""
    max_wall_s: float | None = None
    """A replay that takes longer at least is refused; None: any time. Not part of the hash."""
    metrics_port: int = DEFAULT_METRICS_PORT
    """0 takes a free port and prints it. Not part of the hash."""

    def __post_init__(self) -> None:
        raise_input_faults(self._faults())

    @property
    def topo(self) -> str:
        return self.topology.name

    @property
    def program(self) -> str:
        """What runs in the nodes: "training", "script" or "hand"."""
        return PROGRAMS.get(self.workload.target, "training")

    @property
    def module_folders(self) -> tuple[str, ...]:
        """Folders of the user's in which modules of any part are looked for; absolute paths."""
        return tuple(dict.fromkeys(folder for part in PARTS for folder in getattr(self, part).folders))

    @property
    def keeps_model(self) -> bool:
        return self.checkpoint == "last"

    @property
    def keeps_server(self) -> bool:
        """Whether rank 0 leaves its state for one that is started in its place."""
        return bool(self.strategy.params.get("checkpoint"))

    @property
    def asked_of_models(self) -> list[str]:
        """What was said of models in files, as it was given; only a training of ours can do either."""
        start = [] if self.start_from is None else [f"start_from={self.start_from}"]
        return [*start, *(["checkpoint=last"] if self.keeps_model else [])]

    @property
    def outermost_topology(self) -> Topology:
        """The topology at its fastest and farthest, by what events will make of it."""
        return outermost(self.topology, self.events)

    @property
    def workers(self) -> int:
        return len(self.topology.nodes)

    def _faults(self) -> Iterator[str]:
        if (self.steps is None) == (self.epochs is None) and self.program == "training":
            yield f"steps={self.steps} epochs={self.epochs}: give exactly one of the two"
        if self.steps is not None and self.steps < 1:
            yield f"steps={self.steps}: must be at least 1"
        if self.epochs is not None and not self.epochs > 0:
            yield f"epochs={self.epochs}: must be above 0"
        if self.batch_size < 1:
            yield f"batch_size={self.batch_size}: must be at least 1"
        if self.evaluate_every < 1:
            yield f"evaluate_every={self.evaluate_every}: must be at least 1"
        if not 0 <= self.seed < 2**31:
            yield f"seed={self.seed}: must be from 0 to below 2**31"
        yield from self._dilation_faults()
        yield from self._cap_faults()
        yield from connections.faults(self.connections, self.topology, self.strategy.params.get("collective"))
        if not self.scale >= 1:
            yield f"scale={self.scale}: must be at least 1"
        if not self.timeout_s > 0:
            yield f"timeout_s={self.timeout_s}: must be above 0"
        if self.max_wall_s is not None and not self.max_wall_s > 0:
            yield f"max_wall_s={self.max_wall_s}: must be above 0"
        if not 0 <= self.metrics_port <= 65535:
            yield f"metrics_port={self.metrics_port}: must be from 0 (any free one) to 65535"
        if self.runtime == "docker":
            yield from self._docker_faults()
        if self.program != "training":
            if self.accelerator != PROCESSOR:
                yield f"accelerator={self.accelerator}: workload={self.workload.name} is given no devices; leave it out"
            for asked in self.asked_of_models:
                yield f"{asked}: the model of workload={self.workload.name} is its own; leave it out"
        for key, value, known in (
            ("checkpoint", self.checkpoint, CHECKPOINTS),
            ("runtime", self.runtime, RUNTIMES),
            ("accelerator", self.accelerator, ACCELERATORS),
            ("shaper", self.shaper, SHAPERS),
            ("tcp", self.tcp, TCP_PROFILES),
            ("capture", self.capture, CAPTURES),
        ):
            if value not in known:
                yield f"{key}={value}: unknown; known: {', '.join(known)}"
        yield from self._memory_faults()
        ends_of_link = {link.name: (link.a, link.b) for link in self.topology.wan_links}
        nodes = {node.name: node for node in self.topology.nodes}
        for change in self.events:
            yield from change.faults(ends_of_link, nodes)
        for traffic in self.background:
            yield from traffic.faults(ends_of_link)
        for (link, source), count in Counter((b.link, b.source) for b in self.background).items():
            if count > 1:
                yield f"background: link {link} from {source} is named {count} times"

    def _dilation_faults(self) -> Iterator[str]:
        if self.guessed_dilation and self.accelerator != PROCESSOR:
            yield (
                f"dilation=guess: of accelerator={self.accelerator} neither links nor cores are reckoned before a"
                " trial; use dilation=auto, or give a number"
            )
        if not self.dilation >= 1:
            yield f"dilation={self.dilation}: must be at least 1"
        elif self.dilation > 1:
            rtt_s = self.outermost_topology.farthest_rtt_s * self.dilation
            if rtt_s > MAX_DILATED_RTT_S:
                yield (
                    f"dilation={self.dilation:g}: the longest round trip would take {rtt_s:.3g} s of wall time; it may"
                    f" take {MAX_DILATED_RTT_S:g} s, since some of TCP's times do not stretch"
                )

    def _cap_faults(self) -> Iterator[str]:
        if self.topology.flow_cap_bit_s is not None and self.background:
            yield "topo.flow_cap: background traffic would be capped too; leave out one of the two"
        if self.topology.mtu_bytes != MTU_BYTES and self.background:
            yield f"topo.mtu={self.topology.mtu_bytes}: background traffic has {MTU_BYTES}; leave out one of the two"
        if self.topology.flow_cap_bit_s is not None and self.tcp == "reno":
            yield "topo.flow_cap: tcp=reno cannot cap a flow; use tcp=tuned, bbr or stock"

    def _docker_faults(self) -> Iterator[str]:
        if self.accelerator != PROCESSOR:
            yield f"accelerator={self.accelerator}: nodes of runtime=docker are given no devices; use runtime=runc"
        if self.program == "hand":
            yield "runtime=docker: longhaul exec enters containers of runc alone; use runtime=runc, or docker exec"
        if self.start_from is not None:
            yield f"runtime=docker: its workers see no earlier runs, so none begins with start_from={self.start_from}"

    def _memory_faults(self) -> Iterator[str]:
        known = {node.name for node in self.topology.nodes}
        for node, limit_bytes in self.memory_limit.items():
            if node not in known:
                yield f"memory_limit: {node}: is no node of topology {self.topo}"
            if limit_bytes < MIN_MEMORY_BYTES:
                asked, least = format_size(limit_bytes), format_size(MIN_MEMORY_BYTES)
                yield f"memory_limit: {node}: {asked}, in which no container starts; give {least} or more"

    @property
    def hash(self) -> str:
        """Of everything that can change a result: port and patience cannot, and a chosen dilation is not to.

        Where a class lies cannot either, so targets count by the names they were first published under.
        """
        data = dataclasses.asdict(self) | {part: getattr(self, part).first_published() for part in PARTS}
        data["topology"] = self.topology.to_json()
        del data["metrics_port"], data["max_wall_s"], data["checkpoint"], data["guessed_dilation"], data["data_licence"]
        if self.auto_dilation:
            del data["dilation"]
        if self.start_hash is not None or self.start_from is None:
            del data["start_from"]
        for key, nothing in (*_LATER, ("data_hash", None), ("start_hash", None), ("memory_limit", {})):
            if getattr(self, key) == nothing:
                del data[key]
        text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        data = dataclasses.asdict(self) | {"topology": self.topology.to_json()}
        for part in PARTS:
            if not data[part]["folders"]:
                del data[part]["folders"]  # as in records from before there were any
        for key, nothing in (("guessed_dilation", False), ("data_licence", None), *_LATER[1:]):
            if getattr(self, key) == nothing:
                del data[key]  # as in records from before it could be otherwise
        return {"hash": self.hash, **data}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RunSpec:
        """Return the spec of a `spec.json`, which may be somebody else's.

        Raises:
            TypeError, KeyError, AttributeError: A field is missing, or none of its kind.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        fields = {key: value for key, value in data.items() if key in known}
        fields["topology"] = Topology.from_json(fields["topology"])
        for part in PARTS:
            if part in fields:
                fields[part] = made(Part, fields[part])
        fields["events"] = tuple(made(Change, change) for change in fields.get("events", ()))
        fields["background"] = tuple(made(Background, traffic) for traffic in fields.get("background", ()))
        return made(cls, fields)
