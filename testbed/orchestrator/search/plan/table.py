"""What `longhaul plan` prints: the best plans, what others would choose, and why some cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from testbed.core.parallelism.comparison import Comparison, Predicted
from testbed.core.parallelism.search import Rejected
from testbed.orchestrator.terminal.spoken import MISSING, spoken_size, spoken_time

_MAX_REASONS = 8
_COLUMNS = (
    "pp",
    "dp",
    "tp",
    "micro-batch",
    "schedule",
    "cuts",
    "placement",
    "step",
    "of it waits",
    "AMP says",
    "memory",
)
_LEFT = ("schedule", "cuts", "placement")


def plan_table(found: Comparison, *, heading: str, top: int) -> RenderableType:
    parts: list[RenderableType] = [Text(heading, style="bold")]
    if found.ranked:
        parts.append(_ranked(found, top))
    parts.append(_choices(found))
    parts += [
        Text(f"plan={name} is none: {one.what}: {'; '.join(one.reasons)}")
        for name, one in found.choices.items()
        if isinstance(one, Rejected)
    ]
    if found.rejected:
        parts.append(Text("\n".join(_refusals(found.rejected))))
    return Group(*parts)


def _ranked(found: Comparison, top: int) -> Table:
    shown = found.ranked[:top]
    table = _table(f"the {len(shown)} best of {len(found.ranked)} plans, by the corrected model", "place")
    order = sorted(range(len(found.ranked)), key=lambda index: _published(found.ranked[index]))
    places = {index: place for place, index in enumerate(order, 1)}
    for index, one in enumerate(shown):
        cells = _cells(one)
        if one.published_s is not None:
            cells[_COLUMNS.index("AMP says")] += f" ({places[index]}.)"
        table.add_row(str(index + 1), *cells)
    return table


def _choices(found: Comparison) -> Table:
    table = _table("what each way of choosing takes", "plan=")
    for name, one in found.choices.items():
        if isinstance(one, Rejected):
            table.add_row(name, *[MISSING] * len(_COLUMNS))
        else:
            table.add_row(name, *_cells(one))
    return table


def _table(title: str, first: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    table.add_column(first)
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in _LEFT else "right")
    return table


def _cells(one: Predicted) -> list[str]:
    plan, cost = one.plan, one.cost
    waits_s = cost.total_s - cost.pipe_s
    memory = spoken_size(max(cost.memory_bytes)) + (" too much" if one.memory_faults else "")
    return [
        *(str(degree) for degree in (plan.pp, plan.dp, plan.tp, plan.micro_batch)),
        plan.schedule,
        " ".join(map(str, plan.cuts)),
        " | ".join(" ".join(map(str, plan.position_ranks(position))) for position in range(plan.pp)),
        spoken_time(cost.total_s),
        f"{100 * waits_s / cost.total_s:.0f}%" if cost.total_s else MISSING,
        spoken_time(one.published_s),
        memory,
    ]


def _published(one: Predicted) -> float:
    return float("inf") if one.published_s is None else one.published_s


def _refusals(rejected: tuple[Rejected, ...]) -> Iterator[str]:
    """The first of them, and how many there are by what is in the way."""
    in_memory = sum(any(reason.startswith("memory") for reason in one.reasons) for one in rejected)
    yield f"{len(rejected)} rejected, {in_memory} of them for memory:"
    for one in rejected[:_MAX_REASONS]:
        yield f"  {one.what}: {'; '.join(one.reasons)}"
    if len(rejected) > _MAX_REASONS:
        yield f"  and {len(rejected) - _MAX_REASONS} more; --json names all"
