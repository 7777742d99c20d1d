"""The table of composed rounds: what they come to beside the same clients at once, and how far off that is."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.benchmarks.composed.measure import AT_ONCE, IN_SEQUENCE
from experiments.common.tables import Found, disturbed, number, table

MAX_ERROR = 0.05
_SAME_CLIENTS = 1e-3
"""By which share of their seconds the clients of two runs may differ, if they are the same."""
_HEADS = (
    *("workload", "Mbit/s", "16 at once, s (emulated)", "four times four, s (emulated)"),
    *("the same by the arithmetic: %", "composed, s (simulated)", "error: %", f"within {MAX_ERROR:.0%}"),
)


def composed(points: Sequence[Found]) -> str:
    cases = sorted({(point["asked"]["workload"], point["asked"]["rate_mbit_s"]) for point in points})
    rows, errors = [], []
    for case in cases:
        of_case = {
            point["asked"]["workers"]: point
            for point in points
            if (point["asked"]["workload"], point["asked"]["rate_mbit_s"]) == case
        }
        off = error(of_case)
        errors += [] if off is None else [abs(off)]
        rows.append(_row(case, of_case, off))
    worst = f"Worst error: {max(errors):.1%}, of {len(errors)} cases." if errors else "No case could be judged."
    return f"{table(_HEADS, rows)}\n\n{worst}"


def error(of_case: dict[int, Found]) -> float | None:
    """Of the composed time against that of the clients at once; None where `refusal` says why."""
    if refusal(of_case) is not None:
        return None
    at_once, in_sequence = (of_case[workers]["result"] for workers in (AT_ONCE, IN_SEQUENCE))
    return float(in_sequence["composed_s"] / at_once["measured_s"] - 1)


def refusal(of_case: dict[int, Found]) -> str | None:
    """Why two runs, by their workers, cannot be compared."""
    if missing := [str(workers) for workers in (AT_ONCE, IN_SEQUENCE) if workers not in of_case]:
        return f"not measured with {' and '.join(missing)} workers"
    results = {workers: of_case[workers]["result"] for workers in (AT_ONCE, IN_SEQUENCE)}
    for workers, result in results.items():
        if result["verdict"] == "invalid":
            return f"refused: {workers} workers, invalid: {'; '.join(result['reasons'])}"
    one, other = results.values()
    if one["rounds"] != other["rounds"] or abs(one["clients_s"] / other["clients_s"] - 1) > _SAME_CLIENTS:
        return "refused: not the same clients"
    return None


def _row(case: tuple[str, float], of_case: dict[int, Found], off: float | None) -> list[str]:
    def cell(workers: int, key: str) -> str:
        return number(of_case[workers]["result"][key], ".3f") if workers in of_case else "-"

    made = "-"
    if IN_SEQUENCE in of_case:
        result = of_case[IN_SEQUENCE]["result"]
        made = number(result["as_made_s"] / result["measured_s"] - 1, "+.1f", 100)
    verdict = refusal(of_case) or ("yes" if off is not None and abs(off) <= MAX_ERROR else "no")
    marks = "".join(dict.fromkeys(disturbed(point) for point in of_case.values()))
    return [
        *(case[0] + marks, f"{case[1]:g}"),
        *(cell(AT_ONCE, "measured_s"), cell(IN_SEQUENCE, "measured_s"), made, cell(IN_SEQUENCE, "composed_s")),
        *(number(off, "+.1f", 100), verdict),
    ]
