"""One prediction, and how far it can be believed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from testbed.analysis.simulator.model.constants import Constants
from testbed.analysis.simulator.model.network import Network
from testbed.analysis.simulator.model.step_plan import StepPlan
from testbed.analysis.simulator.model.traffic import Traffic, traffic
from testbed.analysis.simulator.timeline.steps import StepTimes, follow
from testbed.analysis.simulator.validation import Standing
from testbed.core.costs.run_costs import of_one_connection
from testbed.core.costs.sockets import least_part_bytes, libraries
from testbed.core.device.host_costs import HostCosts
from testbed.core.device.profile import Profile
from testbed.core.errors import raise_input_faults
from testbed.core.spec.run_spec import RunSpec
from testbed.core.spec.topology import Topology

KIND = "simulated"
_HIDDEN = 0.05
"""Of a step: less exposed communication does not bound it."""
_BUSY = 0.5
"""Of the exposed communication that a link's rate explains, where it is said to be what bounds a step."""


@dataclass(frozen=True)
class Prediction:
    """Times and bytes of one step once steps are alike; bytes are those of all ranks together."""

    spec: RunSpec
    plan: StepPlan
    times: StepTimes
    traffic: Traffic
    bound_by: str
    standing: Standing
    constants: Constants
    device_times: str
    """Basis of the device's times: measured, assumed or scaled."""
    unknowns: tuple[str, ...] = ()
    """Phrases that say what is not known of these times."""
    library: str | None = None
    """Library whose closed form all-reduces took; None: the testbed's own collectives."""

    @property
    def dense_bytes(self) -> float:
        return 2 * (self.spec.workers - 1) * 4 * self.plan.parameters

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "spec_hash": self.spec.hash,
            "topology": self.spec.topo,
            "workers": self.spec.workers,
            "regions": len({node.region for node in self.spec.topology.nodes}),
            "workload": dataclasses.asdict(self.spec.workload),
            "strategy": dataclasses.asdict(self.spec.strategy),
            "compressor": dataclasses.asdict(self.spec.compressor),
            "transform": dataclasses.asdict(self.spec.transform),
            "device": dataclasses.asdict(self.spec.device),
            "device_times": self.device_times,
            "unknowns": list(self.unknowns),
            "step_s": self.times.step_s,
            "first_step_s": self.times.first_step_s,
            "compute_s": self.plan.compute_s,
            "work_s": self.plan.work_s,
            "exposed_communication_s": self.times.exposed_s,
            "payload_bytes_step": self.traffic.payload_bytes,
            "dense_bytes_step": self.dense_bytes,
            "wan_bytes_step": self.traffic.wan_wire_bytes,
            "wan_links": [dataclasses.asdict(link) for link in self.traffic.wan],
            "bound_by": self.bound_by,
            "validation": self.standing.to_json(),
            "constants": dataclasses.asdict(self.constants),
            "library": self.library,
        }


def predict(
    spec: RunSpec,
    step: StepPlan,
    constants: Constants,
    standing: Standing,
    device: Profile,
    *,
    library: str | None = None,
) -> Prediction:
    """Return the prediction of one steady-state step.

    Args:
        step: what `plan` makes of the spec and its profiles.
        device: the profile of its device, for where its times are from.
        library: as `Network` takes it.

    Raises:
        InputError: the spec asks for what the simulator does not know.
    """
    raise_input_faults([*faults(spec), *([] if library is None else _library_faults(spec, step, library))])
    connections, _ = of_one_connection(spec, step.algorithm)
    nccl, gloo = libraries(spec)
    network = Network(
        spec.topology,
        constants,
        tcp=spec.tcp,
        dilation=spec.dilation,
        library=library,
        nccl=nccl,
        gloo=gloo,
        host=HostCosts.of(spec.device),
        connections=connections,
        least_part_bytes=least_part_bytes(spec.scale),
    )
    times = follow(step, network)
    sent = traffic(step, spec.topology, constants)
    bound_by = _bound_by(step, times, sent, spec.topology)
    unknowns = device.unknowns
    if library is not None and not network.has_hops_alike:
        unknowns += (f"{library}: a ring over unlike links; taken as if all were as slow as the slowest",)
    return Prediction(spec, step, times, sent, bound_by, standing, constants, device.basis, unknowns, library)


def faults(spec: RunSpec) -> list[str]:
    """Return a line for each reason why no such run can be simulated, whatever its profile."""
    found = []
    if spec.program != "training":
        found.append(f"workload={spec.workload.name}: only our own training can be simulated")
    if spec.events:
        found.append("events: the simulator knows no changes of links; leave them out")
    if spec.background:
        found.append("background: the simulator knows no traffic of others; leave it out")
    return found


def _library_faults(spec: RunSpec, step: StepPlan, library: str) -> list[str]:
    """Return a line for each thing that a step does and of which no closed form of the library is known."""
    asked = f"--library {library}"
    if step.is_halved or step.second_order is not None:
        return [f"{asked}: strategy={spec.strategy.name} needs more than all-reduces; known are ddp, torch_ddp, lamb"]
    found = []
    if spec.connections is not None:
        found.append(f"{asked}: connections={spec.connections}: the library has its own; leave it out")
    if step.algorithm != "gloo":
        found.append(f"{asked}: strategy.collective={step.algorithm} is the testbed's own; leave it out")
    if kinds := {one.kind for bucket in step.buckets for one in bucket.collectives} - {"all_reduce"}:
        found.append(
            f"{asked}: compressor={spec.compressor.name} sends by {', '.join(sorted(kinds))}, known is all_reduce;"
            " use a compressor that sums, as none or fp16"
        )
    return found


def _bound_by(step: StepPlan, times: StepTimes, sent: Traffic, topology: Topology) -> str:
    if times.exposed_s < _HIDDEN * times.step_s:
        return "computing"
    busiest = max(sent.wan, key=lambda link: link.carrying_s, default=None)
    if busiest is not None and busiest.carrying_s >= max(sent.access_s, _BUSY * times.exposed_s):
        return f"the rate of {busiest.name} from {busiest.source}"
    if sent.access_s >= _BUSY * times.exposed_s:
        return "the rate of the access links"
    if not topology.wan_links:
        return "messages of the hosts" if step.second_order is None else "ranks that wait for one another"
    farthest = max(topology.wan_links, key=lambda link: link.rtt_s)
    return f"round trips, the longest over {farthest.name}" if farthest.rtt_s else "messages of the hosts"
