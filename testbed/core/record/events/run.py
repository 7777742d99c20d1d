"""Events of the run itself: its stages, its workers, their steps, and how it ended."""

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
    """Name of the stage.

    One of `network`, `measured`, `pilot`, `workers`, `busy`, `go`, `cluster`, `rootless`, `restart` (again, at a larger
    dilation), `schedule` (changes were still due), `kept` (the model), or `end`."""
    detail: Text
    """Message that the user sees."""


@dataclass(frozen=True, kw_only=True)
class Pilot(Event, name="pilot"):
    """A dilation was tried on the run's first steps before it began (dilation=auto); none of them counts."""

    dilation: Number
    """Dilation that was tried."""
    steps: Count
    """Steps that every rank took, without the first."""
    step_s: Number
    """Mean emulated seconds of a step, each of its slowest rank."""
    late_ratio: Number
    """Expected late share of the run's time, as the verdict counts it.

    Later steps are assumed to be like the last half."""
    queued_ratio: Number
    """Share of the time that messages waited for a core, as the verdict counts it."""
    cpu_idle_ratio: Number | None
    """Idle share of all CPUs; null if the pilot was too short to see."""
    next_dilation: Number
    """Dilation that was chosen after it, for another pilot or for the run."""
    why: Text
    """Reason, in words; empty if the dilation is kept."""


@dataclass(frozen=True, kw_only=True)
class Warm(WorkerEvent, name="warm"):
    """A worker is connected to all peers and has taken its warm-up steps. Not recorded."""

    rank: Count


@dataclass(frozen=True, kw_only=True)
class Model(WorkerEvent, name="model"):
    """Model and strategy of the run, from rank 0, once."""

    rank: Count
    parameters: Count
    """Number of trainable parameters."""
    dense_bytes_step: Number
    """Bytes of all ranks in one step of uncompressed ring data parallelism.

    For kv_transfer all keys and values as float16, for each decoded byte."""
    metric_name: Text | None
    """Name of the metric; null if there is none, as are the next two."""
    metric_target: Number | None
    """Value that the metric is to reach."""
    higher_is_better: bool | None
    """True if a larger value of the metric is better."""
    routes: Texts | None
    """Compressor's route of each bucket; null if the strategy has no buckets."""
    collectives: Texts | None
    """Algorithm that carries each bucket; null if the strategy has none."""
    outlived: Counts
    """Ranks whose loss the run survives; for rank 0 the others wait until it restarts."""


@dataclass(frozen=True, kw_only=True)
class Start(WorkerEvent, name="start"):
    """Step 1 begins on a rank, or the first step after it rejoined."""

    t_s: Number
    rank: Count
    late_s: Number
    """Emulated seconds after the agreed moment."""


@dataclass(frozen=True, kw_only=True)
class PhaseTimes(Record):
    """Emulated seconds by phase. All but `communicate`, which overlaps them, add up to the step."""

    forward: Number
    """Forward, and drawing the batch."""
    backward: Number
    """Backward."""
    compress: Number
    """Encoding of what is sent."""
    communicate: Number
    """Time with a collective in flight. Its end may be noted late while another thread holds the interpreter's lock:
    microseconds, or one compression of a bucket by a user's codec."""
    decompress: Number
    """Decoding of what was received."""
    optimizer: Number
    """Everything else: the update, zeroing gradients, reading the loss, what a strategy computes for its update."""
    exposed_communication: Number
    """Time in which the worker only waited for others."""


PHASES = tuple(field.name for field in fields(PhaseTimes))
"""Keys of `phase_s`."""


@dataclass(frozen=True, kw_only=True)
class Step(StepEvent, name="step"):
    """A rank has taken one step of the optimizer."""

    loss: Number | None
    """Loss of the rank's batch before the step; null if the workload computes none."""
    step_s: Number
    """Emulated seconds that the step took."""
    phase_s: PhaseTimes
    cpu_s: Number
    """CPU seconds of the training thread."""
    late_s: Number | None
    """Emulated seconds that the rank sent later than its device would; null without a pacing device."""
    behind_s: Number | None
    """Emulated seconds behind the device at the step's end; null without a pacing device. What remains at the next
    send counts in that step's `late_s`."""
    queued_s: Number
    """Emulated seconds that the rank's messages waited for a core."""
    payload_bytes: Count
    """Bytes that the rank sent, framing included."""
    samples: Count
    """Samples that the rank trained on."""


@dataclass(frozen=True, kw_only=True)
class Payload(WorkerEvent, name="payload"):
    """One backward of a user's script, from its communication hook."""

    rank: Count
    elements: Count
    """Gradient entries that were reduced."""
    payload_bytes: Count
    """Bytes that the hook sent for them."""


@dataclass(frozen=True, kw_only=True)
class Hook(WorkerEvent, name="hook"):
    """A user's script compresses gradients with `ddp_hook`; before its first exchange, from each rank."""

    rank: Count
    name: Text
    """Name of the compressor, as the script gave it or as `compressor=` has it."""
    target: Text
    """Class of the compressor."""
    params: Annotated[dict[Text, Any], FEW]
    """Parameters of the compressor, defaults included."""


@dataclass(frozen=True, kw_only=True)
class ScriptEnd(Event, name="script_end"):
    """A node's script has ended, or the run ended before it."""

    rank: Count
    node: Text
    joined: bool
    """True if a process of the script has joined torch's process group."""
    how: Text
    """End of the script, such as `ended with status 0`."""


@dataclass(frozen=True, kw_only=True)
class UsedFile(Record):
    """File or folder outside of Longhaul's code and of installed packages."""

    path: Text
    """Absolute, or relative to the repository. A folder's ends with a slash."""
    sha256: Text | None
    """Digest; null above 64 MiB or 10,000 files, and for a file that changed during the run."""
    size_bytes: Count | None
    """Size; null for a file that changed while the run went on."""
    modified_s: Number
    """Time of its last change, seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class Used(WorkerEvent, name="used"):
    """Files outside of Longhaul's code that were used.

    Those that were named before the run come first, and again at its end; then the modules that a rank had loaded.
    """

    rank: Count | None
    """Rank; null for what was named before the run."""
    files: Annotated[list[UsedFile], FEW]
    """Files, sorted by path."""

    @classmethod
    def of(cls, rank: int | None, entries: Iterable[Mapping[str, Any]]) -> Used:
        """Return the event of entries as `core.record.used_files` has them."""
        return cls(rank=rank, files=[UsedFile(**one) for one in entries])


@dataclass(frozen=True, kw_only=True)
class Evaluation(WorkerEvent, name="evaluation"):
    """The model was evaluated. It is computed next to the training and sent later, in the order of steps."""

    t_s: Number
    """Moment at which the model became what was evaluated: the end of the step."""
    rank: Count
    step: Count
    name: Text
    """Name of the metric."""
    value: Number
    """Value of the metric."""


@dataclass(frozen=True, kw_only=True)
class Done(WorkerEvent, name="done"):
    """A rank has taken all steps and sent all evaluations."""

    t_s: Number
    rank: Count
    steps: Count
    """Number of steps of the run."""
    finish_s: Number
    """Emulated seconds that the strategy took after the last step; no step contains them."""
    finish_payload_bytes: Count
    """Bytes that it sent in this time."""
    parameters_crc32: Count | None
    """CRC-32 of all parameters in order."""


@dataclass(frozen=True, kw_only=True)
class Leaving(WorkerEvent, name="leaving"):
    """A worker ends because the others go on without it. Recorded as `left`."""

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
    """A worker was killed, failed, or was excluded, and the run continues without it.

    If it is started again, another `start` follows.
    """

    rank: Count
    node: Text
    message: Text
    """Reason, one line."""
    late: bool
    """True if it was started again and training had ended by then."""


@dataclass(frozen=True, kw_only=True)
class Change(Event, name="change"):
    """An entry of `events=` took effect."""

    t_s: Number
    """Moment at which it was in force."""
    what: Text
    """Kind of change, as in `testbed.core.spec.schedule`."""
    name: Text | None
    """Link; null for a node's change."""
    from_: Text | None
    """Direction of the link, with `to`; null unless `what` is `set`."""
    to: Text | None
    node: Text | None
    """Node; null for a link's change."""
    asked_s: Number
    """Moment for which it was scheduled."""
    late_s: Number
    """`t_s` minus `asked_s`."""
    before: Annotated[dict[Text, Any], FEW]
    """Fields of the link's profile before, in base units of emulated time."""
    after: Annotated[dict[Text, Any], FEW]
    """The same fields after."""
    cause: Text
    """Entry as the user wrote it."""
