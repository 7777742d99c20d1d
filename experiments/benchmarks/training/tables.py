"""Tables of whole runs: what training on the emulator takes against what it should."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from experiments.benchmarks.training.pacing import PHASES
from experiments.common.tables import Found, by, disturbed, grouped, median, number, percent_off, table

_LEAST_PHASE_S = 0.01
"""Shorter phases are timed by when a sleeping process wakes up, not by their device."""
_RUN_HEADS = ("k", "late: %", "waiting for cores: %", "verdict")


def _of_runs(results: Sequence[Found]) -> list[str]:
    verdicts = sorted({result["verdict"] for result in results})
    shares = (number(median(results, key), ".2f", 100) for key in ("late_share", "queued_share"))
    return [f"{median(results, 'dilation'):g}", *shares, ", ".join(verdicts)]


def pacing(points: Sequence[Found]) -> str:
    def worst_phase(results: Sequence[Found]) -> str:
        """The largest error of the median of any phase that lasts."""
        errors = [
            statistics.median(result["measured"][phase] / result["modelled"][phase] for result in results) - 1
            for phase in PHASES
            if results[0]["modelled"][phase] > _LEAST_PHASE_S
        ]
        return number(max(errors, key=abs, default=None), "+.2f", 100)

    rows = [
        [
            str(workers),
            str(len(results)),
            worst_phase(results),
            number(median(results, "step_over_parts") - 1, "+.2f", 100),
            f"{median(results, 'step_s'):.3f}",
            f"{median(results, 'exposed_s'):.3f}",
            *_of_runs(results),
        ]
        for (workers,), results in grouped(points, "workers").items()
    ]
    heads = ("workers", "of", "worst phase: %", "step against its parts: %", "step, s", "exposed, s", *_RUN_HEADS)
    return table(heads, rows)


def scaling(points: Sequence[Found]) -> str:
    def row(point: Found) -> list[str]:
        result = point["result"]
        return [
            str(point["asked"]["workers"]) + disturbed(point),
            f"{result['step_s']:.3f}",
            f"{result['exposed_s']:.3f}",
            f"{result['closed_form_s']:.3f}",
            f"{result['exposed_s'] / result['closed_form_s']:.2f}",
            f"{result['sent_bytes'] / 1e6:.3f}",
            percent_off(result["sent_bytes"], result["theory_bytes"]),
            f"{result['wire_over_payload']:.3f}",
            *_of_runs([result]),
        ]

    heads = (
        *("workers", "step, s", "exposed, s", "closed form, s", "exposed / closed form", "sent a worker, MB"),
        *("against theory: %", "wire / payload", *_RUN_HEADS),
    )
    return table(heads, map(row, sorted(points, key=by("workers"))))


def run_dilation(points: Sequence[Found]) -> str:
    groups = grouped(points, "tcp", "k")
    rows = []
    for (tcp, k), results in groups.items():
        base = groups.get((tcp, 1))
        steps = median(results, "step_s")
        same = base is not None and all(result["losses"] == base[0]["losses"] for result in results)
        rows.append(
            [
                tcp,
                f"{k:g}",
                " ".join(f"{result['step_s']:.4f}" for result in results),
                percent_off(steps, median(base, "step_s")) if base else "-",
                "the same" if same else "others",
                *_of_runs(results)[1:],
            ]
        )
    return table(("tcp", "k", "step, s, each repeat", "against k=1: %", "losses", *_RUN_HEADS[1:]), rows)


def collectives(points: Sequence[Found]) -> str:
    flat = {
        point["asked"]["workers"]: point["result"]["exposed_s"]
        for point in points
        if point["asked"]["algorithm"] == "gloo"
    }

    def row(point: Found) -> list[str]:
        asked, result = point["asked"], point["result"]
        base = flat.get(asked["workers"])
        return [
            str(asked["workers"]),
            asked["algorithm"] + disturbed(point),
            str(result["links_used"]),
            number(result["worst_error"], "+.2f", 100),
            number(result["idle_links_bytes"], ".2f", 1e-6),
            number(result["wan_bytes_step"], ".2f", 1e-6),
            f"{result['exposed_s']:.3f}",
            number(None if base is None else result["exposed_s"] / base, ".2f"),
            *_of_runs([result]),
        ]

    heads = (
        *("workers", "algorithm", "WAN links used", "bytes of the worst link against theory: %"),
        *("on the others, MB", "WAN bytes a step, MB", "exposed, s", "time / gloo's", *_RUN_HEADS),
    )
    return table(heads, map(row, sorted(points, key=by("workers", "algorithm"))))


TABLES: dict[str, Callable[[Sequence[Any]], str]] = {
    "pacing": pacing,
    "scaling": scaling,
    "run_dilation": run_dilation,
    "collectives": collectives,
}
