"""Form of `summary.json`: its keys, the allowed values, and checks of a file that was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.core.spec.typed import fits

SCHEMA_VERSION = 1
STATUSES = ("completed", "failed", "interrupted", "killed")
VERDICTS = ("valid", "suspect", "invalid")

SUMMARY_KEYS: dict[str, tuple[str, ...] | None] = {
    "schema_version": None,
    "run_id": None,
    "status": None,
    "verdict": None,
    "reasons": None,
    "unknowns": None,
    "kind": None,
    "topo": None,
    "strategy": None,
    "compressor": None,
    "hooks": None,
    "workload": None,
    "user_code": None,
    "used_files": None,
    "device": None,
    "workers": None,
    "workers_at_end": None,
    "dilation": None,
    "tried_dilations": None,
    "attempts": None,
    "scale": None,
    "seed": None,
    "steps": None,
    "left_out": ("count", "steps", "reasons"),
    "time_s": None,
    "wall_s": None,
    "step_time_s": ("mean", "p50", "p95", "exchange_p50"),
    "phase_s": (
        "forward",
        "backward",
        "compress",
        "communicate",
        "decompress",
        "optimizer",
        "exposed_communication",
    ),
    "bytes": ("payload", "wire_total", "wire_wan", "dense"),
    "compression_ratio": None,
    "metric": ("name", "value", "best", "target", "time_to_target_s"),
    "links": None,
}
"""Every key of `summary.json`, in order, with the keys of the nested ones.

Missing is null, never 0 and never absent.
"""

LINK_KEYS = ("name", "from", "to", "wan", "wire_bytes", "rate_bit_s", "rtt_s", "loss_ratio", "changes")


def empty_summary() -> dict[str, Any]:
    """Every key, all null."""
    summary: dict[str, Any] = {key: dict.fromkeys(nested) if nested else None for key, nested in SUMMARY_KEYS.items()}
    return {**summary, "schema_version": SCHEMA_VERSION, "reasons": [], "unknowns": [], "links": []}


def compressor_label(summary: Mapping[str, Any]) -> str | None:
    """Return which compressor a run had: "by the script: topk density=0.01" if a user's script chose it by a hook.

    Parameters that are null or "auto" say nothing and are left out.
    """
    hooks = [one for one in summary.get("hooks") or () if isinstance(one, Mapping)]
    if not hooks:
        name = summary.get("compressor")
        return name if isinstance(name, str) else None
    return f"by the script: {', '.join(dict.fromkeys(map(_hook_label, hooks)))}"


def _hook_label(hook: Mapping[str, Any]) -> str:
    params = hook.get("params")
    given = params if isinstance(params, Mapping) else {}
    texts = (f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in given.items())
    told = (text for text, value in zip(texts, given.values(), strict=True) if value not in (None, "auto"))
    return " ".join([str(hook.get("name")), *told])


def left_out_line(summary: Mapping[str, Any]) -> str | None:
    """Return a line on the steps that figures and verdict leave out; None if there are none."""
    left_out = summary.get("left_out")
    if not isinstance(left_out, Mapping) or not left_out.get("count"):
        return None
    reasons = "; ".join(map(str, left_out.get("reasons") or ("no reason is recorded",)))
    return f"{left_out['count']} of {summary.get('steps')} steps left out: {reasons}"


def version_fault(summary: dict[str, Any]) -> str | None:
    """Why a summary is not for this program, or None. Another version's keys may mean something else."""
    version = summary.get("schema_version")
    if isinstance(version, int) and not isinstance(version, bool):
        known = version == SCHEMA_VERSION
        return None if known else f"of schema version {str(version)[:20]}, this program reads {SCHEMA_VERSION}"
    return f"of no schema version, this program reads {SCHEMA_VERSION}"


_LINK_FORM: dict[str, Any] = {
    **dict.fromkeys(("name", "from", "to"), str | None),
    **dict.fromkeys(("rate_bit_s", "rtt_s", "loss_ratio"), dict[str, float | None] | None),
    "wire_bytes": float | None,
    "changes": int | None,
}


def form_fault(summary: dict[str, Any]) -> str | None:
    """Why a summary cannot be read, or None. What it lacks counts as null; `summary_faults` is the strict check."""
    if not isinstance(summary.get("status"), str):
        return "it has no status"
    for key, nested in SUMMARY_KEYS.items():
        if nested and not isinstance(summary.get(key), dict | None):
            return f"its {key!r} is no object"
    for key in ("reasons", "unknowns", "links"):
        if not isinstance(summary.get(key), list | None):
            return f"its {key!r} is no list"
    for link in summary.get("links") or ():
        if not isinstance(link, dict) or not all(fits(link.get(key), form) for key, form in _LINK_FORM.items()):
            return "one of its 'links' is none"
    return None


def summary_faults(summary: dict[str, Any]) -> list[str]:
    """What is wrong with a summary's form; empty if nothing."""
    faults = [f"summary lacks {key!r}" for key in SUMMARY_KEYS if key not in summary]
    faults += [f"summary has {key!r}, which the interface does not name" for key in summary if key not in SUMMARY_KEYS]
    for key, nested in SUMMARY_KEYS.items():
        if nested and key in summary and set(summary[key]) != set(nested):
            faults.append(f"summary's {key!r} must hold exactly {', '.join(nested)}")
    for link in summary.get("links") or []:
        if set(link) != set(LINK_KEYS):
            faults.append(f"a link of the summary must hold exactly {', '.join(LINK_KEYS)}")
    if summary.get("status") not in STATUSES:
        faults.append(f"status {summary.get('status')!r} is none of {', '.join(STATUSES)}")
    if summary.get("verdict") not in VERDICTS:
        faults.append(f"verdict {summary.get('verdict')!r} is none of {', '.join(VERDICTS)}")
    return faults
