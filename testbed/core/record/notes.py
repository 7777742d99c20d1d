"""What a worker may say: its messages are checked before anything believes them.

A worker runs a user's code. It may report its own steps; it may not speak for the kernel's counters, for another
rank, or for the end of the run.
"""

from __future__ import annotations

from typing import Any

from testbed.core.record.fields import count as _count
from testbed.core.record.fields import counts as _counts
from testbed.core.record.fields import factorised as _factorised
from testbed.core.record.fields import factors as _factors
from testbed.core.record.fields import flag as _flag
from testbed.core.record.fields import named_numbers as _named_numbers
from testbed.core.record.fields import number as _number
from testbed.core.record.fields import numbers as _numbers
from testbed.core.record.fields import or_none as _or_none
from testbed.core.record.fields import phases as _phases
from testbed.core.record.fields import reasons as _reasons
from testbed.core.record.fields import rows as _rows
from testbed.core.record.fields import text as _text
from testbed.core.record.fields import texts as _texts

Message = dict[str, Any]


_STEP = {
    "t_s": _number,
    "step": _count,
    "loss": _or_none(_number),
    "step_s": _number,
    "phase_s": _phases,
    "payload_bytes": _count,
    "samples": _count,
    "cpu_s": _number,
    "late_s": _or_none(_number),
    "queued_s": _number,
}
FIELDS: dict[str, dict[str, Any]] = {
    "warm": {},
    "model": {
        "parameters": _count,
        "dense_bytes_step": _number,
        "metric_name": _or_none(_text),
        "metric_target": _or_none(_number),
        "higher_is_better": _or_none(_flag),
    },
    "start": {"late_s": _number},
    "step": _STEP,
    "payload": {"payload_bytes": _count, "elements": _count},
    "evaluation": {"t_s": _number, "step": _count, "name": _text, "value": _number},
    "tuning": {
        "t_s": _number,
        "step": _count,
        "what": _text,
        "size_bytes": _count,
        "buckets": _count,
        "step_s": _number,
        "trial": _count,
    },
    "plan": {"t_s": _number, "step": _count, "factors": _factors, "groups": _counts},
    "transform": {
        "t_s": _number,
        "step": _count,
        "parameters_before": _count,
        "parameters": _count,
        "factorised": _factorised,
        "kept": _reasons,
    },
    "freeze": {
        "t_s": _number,
        "step": _count,
        "epoch": _count,
        "frozen": _count,
        "layers": _count,
        "parameters_before": _count,
        "parameters": _count,
        "gradient_norms": _or_none(_numbers),
    },
    "cache": {
        "t_s": _number,
        "step": _count,
        "epoch": _count,
        "whole": _count,
        "part": _count,
        "none": _count,
        "cached_samples": _count,
        "size_bytes": _count,
    },
    "round": {
        "t_s": _number,
        "step": _count,
        "round": _count,
        "clients": _count,
        "train_loss": _number,
        "model_bytes": _count,
        "update_bytes": _count,
        "alpha": _or_none(_number),
        "left": _reasons,
    },
    "federated_round": {
        "t_s": _number,
        "step": _count,
        "round": _count,
        "asked": _count,
        "came": _count,
        "available": _count,
        "late": _count,
        "dropped": _count,
        "waited_s": _number,
        "expected_s": _or_none(_number),
        "longest_worker_s": _number,
        "all_clients_s": _number,
        "longest_client_s": _number,
        "clients": _counts,
        "ranks": _counts,
        "elapsed_s": _numbers,
    },
    "secure_round": {
        "t_s": _number,
        "step": _count,
        "round": _count,
        "workers": _count,
        "survivors": _counts,
        "dropped": _reasons,
        "shares_s": _number,
        "recovery_s": _number,
        "share_bytes": _count,
        "masked_bytes": _count,
        "answer_bytes": _count,
    },
    "fedbuff_version": {
        "t_s": _number,
        "step": _count,
        "version": _count,
        "clients": _counts,
        "workers": _count,
        "staleness_mean": _number,
        "staleness_max": _count,
        "train_loss": _number,
        "model_bytes": _count,
        "update_bytes": _count,
        "all_clients_s": _number,
        "longest_client_s": _number,
        "left": _reasons,
    },
    "region_round": {
        "t_s": _number,
        "step": _count,
        "round": _count,
        "region": _text,
        "clients": _count,
        "train_loss": _number,
        "model_bytes": _count,
        "update_bytes": _count,
        "sent_bytes": _count,
        "left": _reasons,
    },
    "gate": {
        "t_s": _number,
        "step": _count,
        "round": _count,
        "direction": _text,
        "compress": _flag,
        "why": _text,
        "raw_s": _or_none(_number),
        "compressed_s": _or_none(_number),
    },
    "mixing": {
        "t_s": _number,
        "step": _count,
        "graph": _text,
        "edges": _count,
        "wan_edges": _count,
        "most_neighbours": _count,
        "spectral_gap": _number,
        "consensus_step_size": _number,
    },
    "pipeline": {
        "t_s": _number,
        "step": _count,
        "pp": _count,
        "dp": _count,
        "tp": _count,
        "micro_batch": _count,
        "micro_batches": _count,
        "schedule": _text,
        "cuts": _counts,
        "placement": _counts,
    },
    "kv_text": {
        "t_s": _number,
        "step": _count,
        "text": _count,
        "tokens": _count,
        "found": _counts,
        "set_up_bytes": _count,
        "near_bytes": _count,
        "up_bytes": _count,
        "down_bytes": _count,
        "round_trips": _count,
        "round_trips_ahead": _count,
        "first_token_s": _number,
        "token_s": _or_none(_number),
        "questions": _count,
        "right": _count,
    },
    "kv_quality": {
        "t_s": _number,
        "step": _count,
        "text": _count,
        "token_match": _number,
        "kl_nats": _number,
        "relative_error": _number,
        "cosine": _number,
        "mass_recall": _number,
        "overlap": _number,
        "exact_right": _count,
    },
    "link_probe": {
        "t_s": _number,
        "step": _count,
        "regions": _texts,
        "alpha_s": _rows,
        "rate_bit_s": _rows,
        "pairs": _count,
        "sent_bytes": _count,
        "took_s": _number,
    },
    "chosen_plan": {
        "t_s": _number,
        "step": _count,
        "way": _text,
        "place": _count,
        "pp": _count,
        "dp": _count,
        "tp": _count,
        "micro_batch": _count,
        "schedule": _text,
        "cuts": _counts,
        "placement": _counts,
        "predicted_s": _number,
        "parts_s": _named_numbers,
        "published_s": _or_none(_number),
        "memory_bytes": _counts,
        "memory_faults": _texts,
    },
    "consensus": {"t_s": _number, "step": _count, "distance": _number},
    "last_model": {"t_s": _number, "step": _count, "round": _count, "model_bytes": _count, "left": _reasons},
    "damping": {"t_s": _number, "step": _count, "name": _text, "asked": _number, "taken": _number},
    "done": {"steps": _count, "parameters_crc32": _or_none(_count)},
    "leaving": {"message": _text},
    "fault": {"message": _text},
}
"""Of each message the fields it must have; others are kept as they are."""
_OPTIONAL = {"t_s": _number, "outlived": _counts}


def checked_message(message: Message, rank: int) -> Message:
    """The message with the rank of the channel it came by.

    Raises:
        ValueError: it is not one that a worker may send, or a field is missing or of another kind.
    """
    event = message.get("event")
    if not isinstance(event, str) or event not in FIELDS:
        raise ValueError(f"an event {event!r:.80}, which no worker sends")
    for name, check in {**_OPTIONAL, **FIELDS[event]}.items():
        if name not in message and name in _OPTIONAL and name not in FIELDS[event]:
            continue
        if name not in message or not check(message[name]):
            raise ValueError(f"{event!r} with {name}={message.get(name)!r:.80}")
    return {**message, "rank": rank}
