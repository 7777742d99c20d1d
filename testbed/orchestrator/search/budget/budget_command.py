"""`longhaul budget`: which links a training needs with each strategy and compressor, what it sends, what that costs.

Nothing is emulated but what `--check` asks for.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT, raise_input_faults
from testbed.orchestrator.machine.lock import require_free
from testbed.orchestrator.search.budget import check as checks
from testbed.orchestrator.search.budget.pairs import Pair, resolved, search
from testbed.orchestrator.search.budget.request import BudgetRequest, read
from testbed.orchestrator.search.budget.table import budget_table, check_table
from testbed.orchestrator.terminal.terminal import show, tell

GB = 1e9
MOST = 100
"""Largest number of measurements, and of points that are emulated."""
STEPS = 1000
"""In place of an epoch, where there is none."""
_ENVELOPE = {"low": min, "estimate": max, "high": max}
"""Over round trips: what is sent may follow the links."""


def budget(
    words: Sequence[str],
    runs_root: Path,
    *,
    check: int = 0,
    repeats: int = 3,
    as_json: bool = False,
    share: bool = False,
) -> int:
    """Print what was found and return the exit status.

    Args:
        check: so many of the points are emulated, and held against what was predicted.
        repeats: how often computing is measured.

    Raises:
        InputError, MachineError: with every fault at once.
    """
    flags = (("check", check, 0), ("repeats", repeats, 1))
    faults = [f"--{key} {found}: must be at least {least}" for key, found, least in flags if found < least]
    raise_input_faults(
        [*faults, *(f"--{key} {found}: must be at most {MOST}" for key, found, _ in flags if found > MOST)]
    )
    asked = read(words)
    if check:
        require_free(share=share)
    pairs = resolved(asked, runs_root)
    content = _content(asked, pairs, search(pairs, asked, repeats), repeats)
    if not as_json:
        show(budget_table(content))
    status = EXIT_INPUT if all(pair.refused for pair in pairs) else EXIT_COMPLETED
    with _told_at_the_end(content) if as_json else contextlib.nullcontext():
        if check:
            chosen = checks.chosen(content, check)
            content["checks"], checked = checks.perform(
                asked, pairs, chosen, runs_root, share=share, on_error_stream=as_json
            )
            status = status or checked
            if not as_json:
                show(check_table(content["checks"]))
    return status


@contextlib.contextmanager
def _told_at_the_end(content: dict[str, Any]) -> Iterator[None]:
    """Also where no check can be made, or one is stopped: what was computed took minutes."""
    try:
        yield
    finally:
        tell(json.dumps(content, indent=2, allow_nan=False))


def _content(asked: BudgetRequest, pairs: Sequence[Pair], answer: dict[str, Any], repeats: int) -> dict[str, Any]:
    """All of it as JSON. Pairs that do come first, by what they send; then those that do not, then those refused."""
    spec = next((pair.spec for pair in pairs if pair.spec is not None), None)
    assert spec is not None  # otherwise all are refused alike, which is a fault of the input
    rows = [_row(pair, found or {}, asked) for pair, found in zip(pairs, answer["pairs"], strict=True)]
    return {
        "kind": answer["kind"],
        "target_step_s": asked.target_step_s,
        "price_per_gb": asked.price_per_gb,
        "topology": spec.topo,
        "workers": spec.workers,
        "workload": spec.workload.name,
        "batch_size": spec.batch_size,
        "device": spec.device.name,
        "measurements": max(2, repeats),
        "validation": answer["validation"],
        "pairs": sorted(rows, key=_order),
    }


def _row(pair: Pair, found: dict[str, Any], asked: BudgetRequest) -> dict[str, Any]:
    row: dict[str, Any] = {**pair.names, "values": pair.point.plain, "refused": list(pair.refused)}
    if pair.refused:
        return row
    steps = pair.epoch_steps or STEPS
    sent = [point["wan_bytes_step"] for point in found["points"]]
    gb = {key: most([one[key] for one in sent]) * steps / GB for key, most in _ENVELOPE.items()}
    price = asked.price_per_gb
    cost = None if price is None else {key: value * price for key, value in gb.items()}
    return {
        **row,
        **{key: value for key, value in found.items() if key != "refused"},
        "per": "epoch" if pair.epoch_steps else f"{STEPS} steps",
        "steps": steps,
        "gb": gb,
        "cost": cost,
    }


def _order(row: dict[str, Any]) -> tuple[int, float]:
    if row["refused"]:
        return 2, 0.0
    does = any(point["rate_bit_s"]["estimate"] is not None for point in row["points"])
    return (0 if does else 1), row["gb"]["estimate"]
