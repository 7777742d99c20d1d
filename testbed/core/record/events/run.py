"""Events of the run itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from testbed.core.record.events.base import (
    FEW,
    Count,
    Counts,
    Event,
    Number,
    Record,
    StepEvent,
    Text,
    Texts,
    WorkerEvent,
)


@dataclass(frozen=True, kw_only=True)
class Schedule(Event, name="schedule"):
    """The run entered another stage."""

    what: Text
    """Stage: network, measured, pilot, workers, busy, go, cluster, rootless, restart, schedule, kept or end.

    `restart`: again, at a larger dilation; `schedule`: changes were still due; `kept`: the model.
    """
    detail: Text
    """Message that the user sees."""


@dataclass(frozen=True, kw_only=True)
class Pilot(Event, name="pilot"):
    """A pilot tried a dilation; none of its steps counts."""

    dilation: Number
    """Dilation tried."""
    steps: Count
    """Steps of every rank, but the first."""
    step_s: Number
    """Mean step time of the slowest rank."""
    late_ratio: Number
    """Expected late share of time. As the verdict counts it; later steps are assumed to be like the last half."""
    queued_ratio: Number
    """Share of time that messages waited."""
    cpu_idle_ratio: Number | None
    """Idle share of CPUs; null: too short."""
    next_dilation: Number
    """Dilation chosen next."""
    why: Text
    """Reason; empty if kept."""


@dataclass(frozen=True, kw_only=True)
class Warm(WorkerEvent, name="warm"):
    """A worker is connected and warmed up; not recorded."""

    rank: Count


@dataclass(frozen=True, kw_only=True)
class Model(WorkerEvent, name="model"):
    """Model and strategy of the run, once."""

    rank: Count
    parameters: Count
    """Trainable parameters."""
    dense_bytes_step: Number
    """Bytes of all ranks per uncompressed ring step; kv_transfer: all keys and values as float16, per decoded byte."""
    metric_name: Text | None
    """Name of the metric, if there is one."""
    metric_target: Number | None
    """Value of the metric to reach."""
    higher_is_better: bool | None
    """True if larger is better."""
    routes: Texts | None
    collectives: Texts | None
    """Each bucket's route, and algorithm."""
    outlived: Counts
    """Ranks whose loss the run survives. For rank 0 the others wait until it restarts."""


@dataclass(frozen=True, kw_only=True)
class Start(WorkerEvent, name="start"):
    """A rank begins step 1, or its first after rejoining."""

    t_s: Number
    rank: Count
    late_s: Number
    """Time after the agreed moment."""


@dataclass(frozen=True, kw_only=True)
class PhaseTimes(Record):
    """Seconds by phase; all but `communicate` add up to the step."""

    forward: Number
    """Forward, and drawing the batch."""
    backward: Number
    """Backward."""
    compress: Number
    """Encoding of what is sent."""
    communicate: Number
    """Collective in flight; overlaps the others. Its end may be noted late while another thread holds the interpreter's
    lock: microseconds, or one compression of a bucket by a user's codec."""
    decompress: Number
    """Decoding of what was received."""
    optimizer: Number
    """Everything else. That is the update, zeroing gradients, reading the loss, and what a strategy computes for its
    update."""
    exposed_communication: Number
    """Waiting for others only."""


PHASES = tuple(field.name for field in fields(PhaseTimes))
"""Keys of `phase_s`."""


@dataclass(frozen=True, kw_only=True)
class Step(StepEvent, name="step"):
    """A rank took an optimizer step."""

    loss: Number | None
    """Loss of the rank's batch before it."""
    step_s: Number
    """Duration."""
    phase_s: PhaseTimes
    cpu_s: Number
    """CPU seconds of the training thread, and seconds that the accelerator of its node works after it."""
    late_s: Number | None
    behind_s: Number | None
    """Time by which the rank sent, and ended the step, later than its device would; null without pacing. What remains
    behind at the next send counts in that step's `late_s`."""
    late_device_s: Number | None
    """Time that the device has for what `late_s` counts; null without pacing."""
    queued_s: Number
    """Time that messages waited for a core."""
    payload_bytes: Count
    """Bytes sent, framing included."""
    samples: Count
    """Samples trained on."""


@dataclass(frozen=True, kw_only=True)
class Payload(WorkerEvent, name="payload"):
    """One backward of a user's script."""

    rank: Count
    elements: Count
    """Gradient entries reduced."""
    payload_bytes: Count
    """Bytes sent, framing included."""


@dataclass(frozen=True, kw_only=True)
class Hook(WorkerEvent, name="hook"):
    """A user's script compresses with `ddp_hook`."""

    rank: Count
    name: Text
    target: Text
    """Compressor's name as given, and class."""
    params: Annotated[dict[Text, Any], FEW]
    """Parameters, defaults included."""


@dataclass(frozen=True, kw_only=True)
class ScriptEnd(Event, name="script_end"):
    """A node's script ended, or the run before it."""

    rank: Count
    node: Text
    joined: bool
    """True if it joined torch's process group. One process of the script did."""
    how: Text
    """End, such as `ended with status 0`."""


@dataclass(frozen=True, kw_only=True)
class UsedFile(Record):
    """File or folder outside of Longhaul."""

    path: Text
    """Absolute, or relative to the repository. A folder's ends with a slash."""
    sha256: Text | None
    """Digest; null above 64 MiB, 10,000 files or 1 GiB in all, or if it changed."""
    size_bytes: Count | None
    """Size; null if it changed during the run."""
    modified_s: Number
    """Unix time of its last change."""


@dataclass(frozen=True, kw_only=True)
class Used(WorkerEvent, name="used"):
    """Files outside of Longhaul that were used.

    Those that were named before the run come first, and again at its end; then the modules that a rank had loaded.
    """

    rank: Count | None
    """Rank; null: named before the run."""
    files: Annotated[list[UsedFile], FEW]
    """Files by path."""

    @classmethod
    def of(cls, rank: int | None, entries: Iterable[Mapping[str, Any]]) -> Used:
        """Return the event of entries as `core.record.used_files` has them."""
        return cls(rank=rank, files=[UsedFile(**one) for one in entries])


@dataclass(frozen=True, kw_only=True)
class Evaluation(WorkerEvent, name="evaluation"):
    """The model was evaluated. It is computed next to the training and sent later, in the order of steps."""

    t_s: Number
    """End of the step that made the model."""
    rank: Count
    step: Count
    name: Text
    """Metric."""
    value: Number
    """Value of the metric."""


@dataclass(frozen=True, kw_only=True)
class Done(WorkerEvent, name="done"):
    """A rank took all steps and sent all evaluations."""

    t_s: Number
    rank: Count
    steps: Count
    """Steps of the run."""
    finish_s: Number
    """Time after the last step. No step contains it."""
    finish_payload_bytes: Count
    """Bytes sent then."""
    parameters_crc32: Count | None
    """CRC-32 of all parameters. They are in order."""


@dataclass(frozen=True, kw_only=True)
class Leaving(WorkerEvent, name="leaving"):
    """A worker ends, others continue; recorded as `left`."""

    rank: Count
    node: Text
    message: Text
    """Reason, one line."""


@dataclass(frozen=True, kw_only=True)
class Fault(WorkerEvent, name="fault"):
    """The run failed."""

    rank: Count | None
    node: Text | None
    message: Text
    """Reason, one line."""


@dataclass(frozen=True, kw_only=True)
class Left(Event, name="left"):
    """A worker was lost, and the run continues.

    It was killed, failed, or was excluded. If it is started again, another `start` follows.
    """

    rank: Count
    node: Text
    message: Text
    """Reason, one line."""
    late: bool
    """True if it restarted too late. Training had ended then."""


@dataclass(frozen=True, kw_only=True)
class Change(Event, name="change"):
    """An entry of `events=` took effect."""

    t_s: Number
    """Moment of effect."""
    what: Text
    """Kind, as in `testbed.core.spec.schedule`."""
    name: Text | None
    """Link; null for a node's change."""
    from_: Text | None
    """Direction's beginning; only for `set`."""
    to: Text | None
    node: Text | None
    """Node; null for a link's change."""
    asked_s: Number
    """Moment for which it was scheduled."""
    late_s: Number
    """`t_s` minus `asked_s`."""
    before: Annotated[dict[Text, Any], FEW]
    after: Annotated[dict[Text, Any], FEW]
    """Fields of the link's profile, in base units. Times are emulated."""
    cause: Text
    """Entry as the user wrote it."""
