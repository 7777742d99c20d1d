"""Build the content of `summary.json` from the files of a run directory alone.

A run that ended, failed or was killed long ago is summarised by this one function, so nothing here asks a live object.
Whatever the record lacks is null: never 0, never left out. docs/run-directory.md says what every key means.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from testbed.core.errors import BROKEN
from testbed.core.files import finite
from testbed.core.record.events.run import PHASES
from testbed.core.record.network_form import network_fault
from testbed.core.record.run_directory import RunDir
from testbed.core.record.spoiled_steps import LeftOut, SpoiledSteps
from testbed.core.record.summary import SUMMARY_KEYS, empty_summary, summary_faults
from testbed.core.record.used_files import KEYS as USED_KEYS
from testbed.core.record.used_files import merged, version
from testbed.core.spec.run_spec import PROGRAMS
from testbed.orchestrator.observation.summary_links import Direction, links, nodes_of, sent
from testbed.orchestrator.observation.verdict.unknowns import of_device, unseeded

_DENSE_ELEMENT_BYTES = 4


def summarise(
    run: RunDir,
    *,
    status: str,
    reasons: list[str],
    verdict: str,
    wall_s: float | None,
    unknowns: Sequence[str] = (),
    kind: str = "emulated",
) -> dict[str, Any]:
    """Everything `summary.json` holds.

    Args:
        status: one of `records.STATUSES`.
        verdict: one of `records.VERDICTS`, with `reasons` for it.
        unknowns: what the verdict does not rest on; what `network.json` and the device's profile say of that is added.
        wall_s: wall-clock seconds from the command to its end; None where nobody measured it.

    Raises:
        ValueError: status or verdict is none of the known ones.
    """
    spec = run.read_json(run.spec) or {}
    network = _told(run, run.network)
    network = {} if network_fault(network) else network
    record = _Record.read(run)
    workers = len(nodes_of(spec)) or None
    steps = record.common_steps(workers or 0)
    summary = empty_summary()
    summary.update(_identity(run.run_id, spec, workers))
    summary.update(status=status, verdict=verdict, reasons=list(reasons), kind=kind, wall_s=wall_s)
    summary["hooks"] = record.hooks or None
    if record.has_events:
        summary.update(tried_dilations=record.tried_dilations, attempts=record.attempts)
    used = merged(record.used)
    summary.update(user_code=version(used), used_files=used if record.has_events else None)
    is_ours = "strategy" not in spec or spec["strategy"]["name"] not in PROGRAMS.values()
    if record.hooks:  # what ran is named, whatever the key was
        summary["compressor"] = "+".join(dict.fromkeys(hook["name"] for hook in record.hooks))
    summary["unknowns"] = [*unknowns, *unseeded(spec, network), *of_device(_told(run, run.provenance))]
    summary["steps"] = len(steps) if record.has_events and is_ours else None
    summary["workers_at_end"] = workers - len(record.left) if workers and record.has_events else None
    summary["time_s"] = record.end_s(steps) if steps else record.end_of_run_s
    remaining = [step for step in steps if step not in record.left_out.steps]
    if record.knows_disturbances:
        summary["left_out"] = record.left_out.to_json()
    of_exchanges = _distribution(record.step_durations_s(record.exchanges(remaining)))["p50"]
    summary["step_time_s"] = {**_distribution(record.step_durations_s(remaining)), "exchange_p50": of_exchanges}
    summary["phase_s"] = record.phase_means_s(remaining)
    summary["links"] = [] if kind == "measured" else links(spec, network, record)
    summary["bytes"] = sent(spec, record, steps, summary["links"])
    summary["compression_ratio"] = _ratio(summary["bytes"]["dense"], summary["bytes"]["payload"])
    summary["metric"] = _metric(spec, record)
    summary = {key: _without_non_finite(value) for key, value in summary.items()}
    if faults := summary_faults(summary):
        raise ValueError(f"{run.run_id}: " + "; ".join(faults))
    return summary


def _told(run: RunDir, path: Path) -> dict[str, Any]:
    """Return the object of an optional file; an empty one where it is missing or cannot be read."""
    try:
        return run.read_json(path) or {}
    except (OSError, ValueError):
        return {}


class _Evaluation(NamedTuple):
    t_s: float
    rank: int
    name: str
    value: float | None


@dataclass
class _Record:
    """The events that the summary needs, sorted out in one pass."""

    has_events: bool = False
    steps: dict[int, dict[int, dict[str, Any]]] = field(default_factory=dict)
    """By rank, then by step."""
    evaluations: list[_Evaluation] = field(default_factory=list)
    model: dict[str, Any] = field(default_factory=dict)
    wire_bytes: dict[Direction, Any] = field(default_factory=dict)
    hook_bytes: int | None = None
    """What a user's script sent by its hook, all ranks."""
    hook_elements: dict[int, int] = field(default_factory=dict)
    """Gradient entries it reduced, by rank."""
    hooks: list[dict[str, Any]] = field(default_factory=list)
    used: list[list[dict[str, Any]]] = field(default_factory=list)
    tried_dilations: list[float] = field(default_factory=list)
    """Dilations that pilots tried, in order."""
    attempts: int = 1
    changed: list[tuple[str | None, str | None]] = field(default_factory=list)
    """Link and source of each event of `events=`; the source is null for both directions."""
    end_of_run_s: float | None = None
    left: set[int] = field(default_factory=set)
    """Ranks that the run went on without, and that have not come back."""
    missed: set[int] = field(default_factory=set)
    """Ranks that have left, whether or not they came back."""
    knows_disturbances: bool = False
    """True if the record tells what foreign processes took."""
    left_out: LeftOut = field(default_factory=LeftOut)

    @classmethod
    def read(cls, run: RunDir) -> _Record:
        record, spoiled = cls(), SpoiledSteps()
        for event in run.read_events():
            record.has_events = True
            # A run that broke may have written broken events; it is summarised all the same, without them.
            with contextlib.suppress(*BROKEN):
                spoiled.add(event)
            with contextlib.suppress(*BROKEN):
                record._add(event)
        record.left_out = spoiled.left_out()
        return record

    def _add(self, event: dict[str, Any]) -> None:
        kind, t_s = event["event"], float(event["t_s"])
        if kind == "step":
            self.steps.setdefault(int(event["rank"]), {})[int(event["step"])] = event
        elif kind == "left":
            self.left.add(int(event["rank"]))
            self.missed.add(int(event["rank"]))
        elif kind == "start":
            self.left.discard(int(event["rank"]))
        elif kind == "evaluation":
            name = _text(event["name"])
            self.evaluations.append(_Evaluation(t_s, int(event["rank"]), name, finite(event["value"])))
        elif kind == "host":
            self.knows_disturbances |= "foreign_cpu_s" in event
        elif kind == "model":
            name = event["metric_name"]  # none where nothing is learnt
            self.model = {**event, "metric_name": None if name is None else _text(name)}
            self.model["metric_target"] = finite(event.get("metric_target"))
        elif kind == "payload":
            self.hook_bytes = (self.hook_bytes or 0) + int(event["payload_bytes"])
            rank = int(event["rank"])
            self.hook_elements[rank] = self.hook_elements.get(rank, 0) + int(event["elements"])
        elif kind == "change":
            link, begin = (None if event[key] is None else _text(event[key]) for key in ("name", "from"))
            self.changed.append((link, begin))
        elif kind == "used":
            self.used.append([{key: one[key] for key in USED_KEYS} for one in event["files"]])
        elif kind == "hook":
            hook = {key: event[key] for key in ("name", "target", "params")}
            self.hooks += [hook] if hook not in self.hooks else []
        elif kind == "pilot":
            self.tried_dilations.append(float(event["dilation"]))
        elif kind == "schedule" and event["what"] == "restart":
            self.attempts = 2
        elif kind == "schedule" and event["what"] == "end":
            self.end_of_run_s = t_s
        elif kind == "link" and t_s >= 0:
            name, source, target = (_text(event[key]) for key in ("name", "from", "to"))
            self.wire_bytes[name, source, target] = finite(event["wire_bytes"])

    def changes(self, link: str, source: str) -> int:
        """Return how often events changed a direction of a link, or took the link down or up."""
        return sum(name == link and begin in (source, None) for name, begin in self.changed)

    def common_steps(self, workers: int) -> list[int]:
        """Numbers of the steps that every rank finished, but for those that have left meanwhile, in order."""
        stayed = [set(self.steps.get(rank, {})) for rank in range(workers) if rank not in self.missed]
        return sorted(set.intersection(*stayed)) if stayed else []

    def of_step(self, step: int) -> Iterator[dict[str, Any]]:
        """The step's events of all ranks."""
        for events in self.steps.values():
            if step in events:
                yield events[step]

    def end_s(self, steps: list[int]) -> float | None:
        """When the slowest rank ended the last of `steps`."""
        return max((event["t_s"] for event in self.of_step(steps[-1])), default=None) if steps else None

    def exchanges(self, steps: list[int]) -> list[int]:
        """Return the steps in which a rank sent something: of strategies that exchange rarely a few."""
        return [step for step in steps if any(event.get("payload_bytes") for event in self.of_step(step))]

    def step_durations_s(self, steps: list[int]) -> list[float]:
        """Of every step, the first ones too, the time its slowest rank took: a synchronous step is as long as that."""
        slowest = (
            max((s for event in self.of_step(step) if (s := finite(event.get("step_s"))) is not None), default=None)
            for step in steps
        )
        return [step_s for step_s in slowest if step_s is not None]

    def phase_means_s(self, steps: list[int]) -> dict[str, float | None]:
        """Mean seconds a rank spent in each phase of one step, over all ranks and steps."""
        found: dict[str, list[float]] = {phase: [] for phase in PHASES}
        for step in steps:
            for event in self.of_step(step):
                given = event.get("phase_s")
                phases = given if isinstance(given, dict) else {}
                for phase in PHASES:
                    if (seconds := finite(phases.get(phase))) is not None:
                        found[phase].append(seconds)
        return {phase: math.fsum(values) / len(values) if values else None for phase, values in found.items()}

    def payload_bytes(self, steps: list[int]) -> int | float | None:
        values = [finite(event.get("payload_bytes")) for step in steps for event in self.of_step(step)]
        known = [value for value in values if value is not None]
        return sum(known) if known and len(known) == len(values) else self.hook_bytes

    def dense_bytes(self, steps: list[int], workers: int) -> float | None:
        """What uncompressed ring data parallel would have sent, all ranks."""
        if self.hook_elements:
            return 2 * (workers - 1) * _DENSE_ELEMENT_BYTES * max(self.hook_elements.values())
        dense_bytes_step = finite(self.model.get("dense_bytes_step"))
        return None if dense_bytes_step is None or not steps else dense_bytes_step * len(steps)


def _identity(run_id: str, spec: dict[str, Any], workers: int | None) -> dict[str, Any]:
    parts = {key: (spec.get(key) or {}).get("name") for key in ("strategy", "compressor", "workload", "device")}
    return {
        "run_id": run_id,
        "topo": (spec.get("topology") or {}).get("name"),
        **parts,
        "workers": workers,
        "dilation": spec.get("dilation"),
        "scale": spec.get("scale"),
        "seed": spec.get("seed"),
    }


def _distribution(values: list[float]) -> dict[str, float | None]:
    if not values:
        return dict.fromkeys(("mean", "p50", "p95"))
    ordered = sorted(values)
    return {
        "mean": math.fsum(ordered) / len(ordered),
        "p50": _percentile(ordered, 0.50),
        "p95": _percentile(ordered, 0.95),
    }


def _percentile(ordered: list[float], share: float) -> float:
    """Linear between the two nearest ranks."""
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def _ratio(dense: float | None, payload: float | None) -> float | None:
    return dense / payload if dense is not None and payload else None


def _metric(spec: dict[str, Any], record: _Record) -> dict[str, Any]:
    name = record.model.get("metric_name")
    if name is None and record.evaluations:
        name = record.evaluations[0].name
    target = spec.get("target")
    if target is None:
        target = record.model.get("metric_target")
    higher_is_better = record.model.get("higher_is_better")
    found = [evaluation for evaluation in record.evaluations if evaluation.name == name]
    # Where several ranks evaluate (local training), the lowest speaks for the run, so that one curve is judged.
    first_rank = min((evaluation.rank for evaluation in found), default=None)
    found = sorted((e for e in found if e.rank == first_rank), key=lambda evaluation: evaluation.t_s)
    points = [(e.t_s, e.value) for e in found if e.value is not None]
    metric: dict[str, Any] = {**dict.fromkeys(SUMMARY_KEYS["metric"] or ()), "name": name, "target": target}
    metric["value"] = found[-1].value if found else None
    if points and higher_is_better is not None:
        sign = 1.0 if higher_is_better else -1.0
        metric["best"] = max((value for _, value in points), key=lambda value: sign * value)
        if target is not None:
            reached = (t_s for t_s, value in points if sign * value >= sign * target)
            metric["time_to_target_s"] = next(reached, None)
    return metric


def _text(value: object) -> str:
    """
    Raises:
        TypeError: it is no text.
    """
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is no text")
    return value


def _without_non_finite(data: Any) -> Any:
    """JSON has no NaN: a loss that ran away is a missing value."""
    if isinstance(data, dict):
        return {key: _without_non_finite(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_without_non_finite(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data
