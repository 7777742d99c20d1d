"""The page of truth: each published measurement, its prediction, and its emulation where there is one."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterable, Sequence

from experiments.benchmarks.real_wan.published import MODELS
from experiments.benchmarks.real_wan.tables import emulated_ratios, summary
from experiments.benchmarks.truth import published, training
from experiments.benchmarks.truth.published import GROUPED, LINKS, Row, Streams
from experiments.common.tables import Found, disturbed, table

NOT_EMULATED = "not yet emulated"
_ALL_REDUCE = (
    "nodes",
    "link",
    "MiB",
    "measured, ms",
    "predicted, ms",
    "error: %",
    "emulated, ms",
    "error: %",
    "verdict",
)
_PREDICTED = ("predicted, ms", "error: %")
_BOTH = ("nodes", "link", "MiB", "Gloo measured, ms", *_PREDICTED, "NCCL measured, ms", *_PREDICTED, "emulated")
_SUMMARY = ("measured", "rows", "within 3 %", "median error", "worst", "emulated")
_DILOCO = ("rate", "measured, ms", "ideal ring, ms", "error: %", "closed form, ms", "error: %", "emulated")
_DDP = ("rate", "measured, ms", "ring alone: %", "and buffers: %", "ring, by DiLoCo's factor: %", "and buffers: %")
_STREAMS = ("path", "round trip, ms", "streams", "measured, Mbit/s", "predicted, Mbit/s", "error: %", "emulated")
_NEAR = 0.03
LIBRARIES = {"Gloo": "gloo", "NCCL": "nccl"}
"""Libraries by their names in tables."""


def truth_table(points: Sequence[Found], crossed: Sequence[Found]) -> str:
    """All tables; only emulated columns need points.

    Args:
        crossed: Points of `real_wan`.
    """
    parts = [
        f"**All of it**\n\n{_summary(points)}",
        f"**(a) Gloo, all-reduce**\n\n{_all_reduces('gloo', points)}",
        f"**(b) NCCL, all-reduce**\n\n{_all_reduces('nccl', points)}",
        f"**(b) Point to point**, both libraries\n\n{_both(published.sends)}",
        f"**(c) DiLoCo's exchange**, four L40S, tbf\n\n{_diloco()}",
        f"**(c) A step of DDP**, computing included\n\n{_ddp()}",
        f"**(d) Trainings between continents**\n\n{_between_continents(crossed)}",
        f"**(e) Broadcast and reduce**\n\n{_chains()}",
        f"**(e) Grouped synchronisation**, NCCL: seconds measured / predicted (error: %)\n\n{_grouped()}",
        f"**(e) TCP streams side by side**\n\n{_streams(published.streams())}",
        f"**(e) All-reduces without shaping**, NCCL, four L40S\n\n{_sizes()}",
    ]
    return "\n\n".join(parts)


def _summary(points: Sequence[Found]) -> str:
    rows = []
    for name, library in LIBRARIES.items():
        errors = [row.error for row in published.all_reduces(library) if row.is_shaped]
        emulated = sum(point["asked"]["library"] == library for point in points)
        rows.append([f"{name}, all-reduce, shaped", *_spread(errors), f"{emulated} of {len(errors)}"])
    sets = {f"{name}, point to point": _errors(published.sends(library)) for name, library in LIBRARIES.items()}
    sets |= {f"{name}, broadcast and reduce": _errors(published.chains(library)) for name, library in LIBRARIES.items()}
    sets |= {
        "DiLoCo's exchange": [training.diloco(link).error for link in LINKS],
        "DDP, with buffers and DiLoCo's factor": [training.ddp(link).error for link in LINKS],
        "grouped synchronisation": _errors(published.grouped()),
        "TCP streams between clouds": [one.error for one in published.streams() if one.path.startswith("cloud")],
    }
    return table(_SUMMARY, [*rows, *([name, *_spread(errors), "none"] for name, errors in sets.items())])


def _spread(errors: Sequence[float]) -> list[str]:
    near = sum(abs(error) <= _NEAR for error in errors)
    worst = max(errors, key=abs)
    return [str(len(errors)), str(near), f"{statistics.median(map(abs, errors)):.1%}", f"{worst * 100:+.1f} %"]


def _errors(rows: Iterable[Row]) -> list[float]:
    return [row.error for row in rows]


def _all_reduces(library: str, points: Sequence[Found]) -> str:
    made = {
        (point["asked"]["nodes"], point["asked"]["link"], point["asked"]["size_mib"]): point
        for point in points
        if point["asked"]["library"] == library
    }
    return table(
        _ALL_REDUCE,
        [
            [*_place(row), *_milliseconds(row), *_emulated(row, made.get((row.nodes, row.link, row.size_mib)))]
            for row in published.all_reduces(library)
        ],
    )


def _emulated(row: Row, point: Found | None) -> list[str]:
    if point is None:
        return [NOT_EMULATED, "-", "-"]
    found = point["result"]
    exposed_s = found["exposed_s"]
    verdict = f"{found['verdict']}, k {found['dilation']:g}{disturbed(point)}"
    return [f"{1e3 * exposed_s:.0f}", _percent(exposed_s / row.measured_s - 1), verdict]


def _place(row: Row) -> list[str]:
    return [str(row.nodes), row.link, str(row.size_mib)]


def _milliseconds(row: Row) -> list[str]:
    return [f"{1e3 * row.measured_s:.0f}", f"{1e3 * row.predicted_s:.0f}", _percent(row.error)]


def _percent(error: float) -> str:
    return f"{100 * error:+.1f}"


def _both(rows: Callable[[str], list[Row]]) -> str:
    """Return a table of what both libraries took for the same."""
    pairs = zip(rows("gloo"), rows("nccl"), strict=True)
    return table(
        _BOTH, [[*_place(gloo), *_milliseconds(gloo), *_milliseconds(nccl), NOT_EMULATED] for gloo, nccl in pairs]
    )


def _chains() -> str:
    parts = []
    for operation in ("broadcast", "reduce"):
        only = functools.partial(_of_operation, operation)
        parts.append(f"{operation.capitalize()}:\n\n{_both(only)}")
    return "\n\n".join(parts)


def _of_operation(operation: str, library: str) -> list[Row]:
    return [row for row in published.chains(library) if row.operation == operation]


def _diloco() -> str:
    rows = []
    for link in LINKS:
        found = training.diloco(link)
        ideal, form = (
            [f"{1e3 * seconds:.0f}", _percent(seconds / found.measured_s - 1)]
            for seconds in (found.ideal_s, found.form_s)
        )
        rows.append([link, f"{1e3 * found.measured_s:.0f}", *ideal, *form, NOT_EMULATED])
    return table(_DILOCO, rows)


def _ddp() -> str:
    rows = []
    for link in LINKS:
        errors = [
            _percent(training.ddp(link, with_buffers=with_buffers, by_diloco=by_diloco).error)
            for by_diloco in (False, True)
            for with_buffers in (False, True)
        ]
        rows.append([link, f"{1e3 * training.ddp(link).measured_s:.0f}", *errors, NOT_EMULATED])
    return table((*_DDP, "emulated"), rows)


def _between_continents(crossed: Sequence[Found]) -> str:
    errors = [
        found / MODELS[model].ratios[run] - 1
        for (model, run), found in emulated_ratios(crossed).items()
        if run in MODELS[model].ratios
    ]
    said = "None is emulated yet."
    if errors:
        near = sum(abs(error) <= 0.1 for error in errors)
        worst = _percent(max(errors, key=abs))
        said = f"Emulated are {len(errors)} ratios, {near} of them within 10 %; the worst is off by {worst} %."
    return f"{summary()}\n\n{said}"


def _grouped() -> str:
    """Return a row for each way and link, and in its cells measured, predicted and the error."""
    cells = {(row.operation, row.link, row.nodes, row.size_mib): row for row in published.grouped()}
    columns = sorted({(nodes, size_mib) for _, _, nodes, size_mib in cells}, key=lambda column: column[::-1])
    heads = (f"{size_mib} MiB, {nodes} nodes" for nodes, size_mib in columns)
    rows = [
        [GROUPED[operation], link, *(_seconds(cells[operation, link, *column]) for column in columns), NOT_EMULATED]
        for operation, link in dict.fromkeys(key[:2] for key in cells)
    ]
    return table(("calls", "link", *heads, "emulated"), rows)


def _seconds(row: Row) -> str:
    return f"{row.measured_s:.2f} / {row.predicted_s:.2f} ({_percent(row.error)})"


def _streams(found: Iterable[Streams]) -> str:
    return table(
        _STREAMS,
        [
            [
                *(one.path, f"{1e3 * one.round_trip_s:.2f}", str(one.streams)),
                *(f"{one.measured_bit_s / 1e6:.0f}", f"{one.predicted_bit_s / 1e6:.0f}", _percent(one.error)),
                NOT_EMULATED,
            ]
            for one in found
        ],
    )


def _sizes() -> str:
    return table(
        ("MiB", "measured, ms", "predicted, ms", "error: %", "emulated"),
        [
            [
                *(str(size_mib), f"{1e3 * measured_s:.2f}", f"{1e3 * predicted_s:.2f}"),
                *(_percent(predicted_s / measured_s - 1), NOT_EMULATED),
            ]
            for size_mib, measured_s, predicted_s in training.unshaped()
        ],
    )
