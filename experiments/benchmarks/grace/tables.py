"""GRACE's benchmark: which cells compression wins here and in the released data, and how alike the orders are."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from experiments.benchmarks.grace.measure import AFTER_BACKWARD, CODECS
from experiments.benchmarks.grace.published import BY_RATE, CELLS, CELLS_WON, LEFT_OUT, RATIOS
from experiments.common.papers.grace import DENSE, METHODS, MODELS, MPI_SAMPLES_S, WORKERS
from experiments.common.tables import Found, number, table

Cell = tuple[str, float]
"""Model, and rate in Gbit/s."""
_MEASURED, _FREE = "a core", "free"


def ratios(points: Sequence[Found], codec: str, baseline: str | None = None) -> dict[Cell, dict[str, float]]:
    """Dense step over each method's, by cell, of the methods that were published for it.

    Args:
        codec: one of `CODECS`.
        baseline: `AFTER_BACKWARD`; None: the faster of that and of dense gradients sent with these codecs' speed.
    """
    steps = {(p["asked"]["model"], p["asked"]["method"]): p["result"]["step_s"] for p in points}
    found: dict[Cell, dict[str, float]] = {}
    for (model, rate), published in RATIOS.items():
        if (model, DENSE) not in steps:
            continue
        dense = steps[model, DENSE][f"{rate:g}"]
        dense_s = min(dense[codec], dense[AFTER_BACKWARD]) if baseline is None else dense[baseline]
        found[model, rate] = {
            method: dense_s / steps[model, method][f"{rate:g}"][codec]
            for method in published
            if (model, method) in steps
        }
    return found


def rank_correlation(ours: Mapping[str, float], theirs: Mapping[str, float]) -> float | None:
    """Spearman's, over what both have; None where one of them is constant or there are fewer than three."""
    both = [name for name in ours if name in theirs]
    if len(both) < 3:
        return None
    left, right = (_ranks([side[name] for name in both]) for side in (ours, theirs))
    if len(set(left)) == 1 or len(set(right)) == 1:
        return None
    return statistics.correlation(left, right)


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal ones share the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]


def won(by_method: Mapping[str, float]) -> int:
    return sum(ratio > 1 for ratio in by_method.values())


def grace(points: Sequence[Found]) -> str:
    measured = ratios(points, _MEASURED)
    if not any(measured.values()):
        return "Nothing to compare yet: dense steps are missing, or all others."
    return "\n\n".join([_totals(points), _summary(points), _each(points), _codecs(points)])


def _totals(points: Sequence[Found]) -> str:
    here = {cell: by_method for cell, by_method in ratios(points, _MEASURED).items() if by_method}
    cells = sum(map(len, here.values()))
    theirs = sum(won({name: RATIOS[cell][name] for name in by_method}) for cell, by_method in here.items())
    ours = {codec: sum(map(won, ratios(points, codec).values())) for codec in CODECS}
    late = sum(map(won, ratios(points, _MEASURED, AFTER_BACKWARD).values()))
    parts = ", ".join(f"{wins} of {of} at {rate}" for rate, (of, wins) in BY_RATE.items())
    return (
        f"Compression wins {ours['a core']} of {cells} cells with codecs as fast as a core,"
        f" {ours['ten times']} with codecs 10x faster, {ours['free']} with free ones; {late} against dense gradients"
        f" sent after backward. In the released data it wins {theirs} of them, and {CELLS_WON} of all {CELLS}"
        f" ({parts})."
        f" Left out: {', '.join(LEFT_OUT)}, and other ratios."
    )


def _summary(points: Sequence[Found]) -> str:
    by_codec = {codec: ratios(points, codec) for codec in CODECS}
    late = ratios(points, _MEASURED, AFTER_BACKWARD)
    rows = []
    for cell, measured in by_codec[_MEASURED].items():
        published = {name: RATIOS[cell][name] for name in measured}
        alike = sum((measured[name] > 1) == (published[name] > 1) for name in measured)
        rows.append(
            [
                *(cell[0], f"{cell[1]:g}", str(len(measured)), str(won(published))),
                *(str(won(found[cell])) for found in by_codec.values()),
                *(str(won(late[cell])), str(alike)),
                *(number(rank_correlation(by_codec[codec][cell], published)) for codec in CODECS),
                *map(_best, (published, measured)),
            ]
        )
    heads = (
        *("model", "Gbit/s", "cells", "won: released"),
        *(f"won: {codec}" for codec in CODECS),
        *("won over dense after backward", "same side"),
        *(f"Spearman: {codec}" for codec in CODECS),
        *("best: released", "best: a core"),
    )
    return table(heads, rows)


def _best(by_method: Mapping[str, float]) -> str:
    if not by_method:
        return "-"
    name = max(by_method, key=lambda method: by_method[method])
    return f"{name} ({by_method[name]:.2f})"


def _each(points: Sequence[Found]) -> str:
    """A row for each method, in the order of the released table."""
    measured, free = ratios(points, _MEASURED), ratios(points, _FREE)

    def cell(method: str, of: Cell) -> str:
        if method not in measured[of]:
            return "-"
        return f"{measured[of][method]:.2f} / {free[of][method]:.2f} ({RATIOS[of][method]:.2f})"

    rows = [[method, *(cell(method, of) for of in measured)] for method in METHODS]
    said = "Dense step over the method's: codecs as fast as a core / free (released)"
    heads = ("method", *(f"{model}, {rate:g} Gbit/s" for model, rate in measured))
    return f"{said}\n\n{table(heads, rows)}"


def beyond_computing_s(method: str) -> float | None:
    """What the released throughput of ResNet-50 at 10 Gbit/s leaves in a step for codecs, and for what of communication
    is not hidden; None where there is none."""
    published = RATIOS["ResNet-50", 10].get(method)
    if published is None:
        return None
    model = MODELS["ResNet-50"]
    return WORKERS * model.batch_size / (published * MPI_SAMPLES_S) - model.step_s


def _codecs(points: Sequence[Found]) -> str:
    """What a step's codecs take, of a core, for all gradients, beside what GRACE's can have taken."""
    codec_s = {(p["asked"]["model"], p["asked"]["method"]): p["result"]["codec_s"] for p in points}
    models = list(dict.fromkeys(model for model, _ in codec_s))
    rows = [
        [
            method,
            *(number(codec_s.get((model, method)), ".3g", 1e3) for model in models),
            number(beyond_computing_s(method), ".0f", 1e3),
        ]
        for method in METHODS
    ]
    heads = ("method", *models, "released: ResNet-50's step beyond computing, 10 Gbit/s")
    return f"Codecs in a step, ms of a core\n\n{table(heads, rows)}"
