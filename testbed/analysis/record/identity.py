"""Identity of a run by its record: kind, code, verdict, seed."""

from __future__ import annotations

import contextlib

from testbed.analysis.record.record import Record
from testbed.core.record.summary import compressor_label

UNKNOWN = "unknown"
_CLUSTER = "cluster"
"""The stage that a run on machines that are there begins with; an emulated one has others."""


def kind_of(record: Record) -> str:
    """Emulated, measured or simulated; of a run without a summary what the rest says, and if nothing, `UNKNOWN`."""
    said = (record.summary or {}).get("kind")
    if said:
        return str(said)
    # runs on a cluster and predictions write none
    return "emulated" if record.network else _kind_by_events(record)


def _kind_by_events(record: Record) -> str:
    """By the first stage of the run, behind which nothing is read."""
    with contextlib.suppress(OSError, ValueError):
        for event in record.run.read_events():
            if event.get("event") == "schedule":
                return "measured" if event.get("what") == _CLUSTER else "emulated"
    return UNKNOWN


def spoken_kind(kind: str) -> str:
    return "of unknown kind" if kind == UNKNOWN else kind


def code_of(record: Record) -> str:
    return str(record.provenance.get("code_hash") or "unknown")


def user_code_of(record: Record) -> str | None:
    """Return the digest of the user's files that ran, their version; None where none did or the record is older."""
    found = (record.summary or {}).get("user_code")
    return found if isinstance(found, str) else None


def script_compressor(record: Record) -> str | None:
    """Return "by the script: topk density=0.01" if a user's script compressed by a hook; None otherwise."""
    summary = record.summary or {}
    return compressor_label(summary) if summary.get("hooks") else None


def verdict_of(record: Record) -> str:
    return str((record.summary or {}).get("verdict") or "unfinished")


def seed_of(record: Record) -> int:
    seed = record.spec.seed if record.spec else (record.summary or {}).get("seed")
    return seed if isinstance(seed, int) else 0
