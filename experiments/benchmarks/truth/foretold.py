"""Predictions of measurements that were kept back: written once, from a commit, before anybody looked.

    python -m experiments.benchmarks.truth.foretold COMMIT

COMMIT is the one whose code predicts; the file names it, and a hash of that code. What is in the tree is never changed.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

from experiments.benchmarks.truth import published, training
from experiments.benchmarks.truth.published import LINKS, SHAPED, SIZES_MIB, UNSHAPED, Row, aws, form_s
from experiments.common import sources
from experiments.common.benchmark import RESULTS
from experiments.common.harness import rounded
from testbed.core.costs.sockets import LIBRARIES, MIB
from testbed.core.errors import InputError
from testbed.core.record.run_directory import write_json

FILE = RESULTS / "truth-predictions.json"
NODES, INTERVALS = (16, 32), (1, 32, 128)
_COMMIT_DIGITS = 40
_ABOUT = {
    "collectives": "seconds on the clusters of gloo-nccl-tc.json and broadcast-reduce-tc.json; known_errors: of the"
    " same closed form, by the number of nodes that was published",
    "diloco": "seconds on the cluster of diloco-tbf.json; exchange_form_s: closed form alone; exchange_s: as published"
    " at intervals of 8, and what the steps below are predicted by; mean_step_s: over whole intervals",
}


def predictions(commit: str) -> dict[str, Any]:
    """Return the content of the file."""
    modules = [f"experiments.benchmarks.truth.{name}" for name in ("foretold", "published", "training")]
    code = sources.hash_of(sources.files([*modules, "testbed.core.costs.sockets"], ("experiments.benchmarks.truth.",)))
    return {
        "commit": commit,
        "code_hash": code,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "about": _ABOUT,
        "collectives": _collectives(),
        "diloco": [_diloco(link, interval) for link in LINKS for interval in INTERVALS],
    }


def _collectives() -> list[dict[str, Any]]:
    return [
        _collective(operation, library, nodes, link, size_mib)
        for operation in ("all_reduce", "broadcast", "reduce")
        for library in LIBRARIES
        for nodes in NODES
        for link in (*SHAPED, UNSHAPED)
        for size_mib in SIZES_MIB
    ]


def _collective(operation: str, library: str, nodes: int, link: str, size_mib: int) -> dict[str, Any]:
    def is_alike(row: Row) -> bool:
        return (row.operation, row.link, row.size_mib) == (operation, link, size_mib)

    known = [row for row in (*published.all_reduces(library), *published.chains(library)) if is_alike(row)]
    return {
        "operation": operation,
        "library": library,
        "nodes": nodes,
        "link": link,
        "size_mib": size_mib,
        "predicted_s": form_s(library, operation, size_mib * MIB, aws(nodes, link)),
        "known_errors": {str(row.nodes): round(row.error, 4) for row in known},
    }


def _diloco(link: str, interval: int) -> dict[str, Any]:
    form_s, inner_s = training.exchange_s(link), training.inner_step_s(link)
    exchange_s = training.diloco(link).measured_s
    return {
        "rate": link,
        "sync_every": interval,
        "exchange_form_s": form_s,
        "exchange_s": exchange_s,
        "inner_step_s": inner_s,
        "sync_step_s": inner_s + exchange_s,
        "mean_step_s": inner_s + exchange_s / interval,
    }


def main(arguments: list[str]) -> None:
    """Write the file.

    Raises:
        InputError: No full hash of a commit was given, or the file exists.
    """
    if len(arguments) != 1 or len(arguments[0]) != _COMMIT_DIGITS:
        raise InputError(f"{' '.join(arguments) or 'nothing'}: give the {_COMMIT_DIGITS} digits of a commit")
    if FILE.exists():
        raise InputError(f"{FILE}: exists; predictions are written once")
    write_json(FILE, rounded(predictions(arguments[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
