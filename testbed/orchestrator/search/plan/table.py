"""What `longhaul plan` prints: the best plans, what others would choose, and why some cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from testbed.core.parallelism.comparison import Comparison, Predicted
from testbed.core.parallelism.search import Rejected
from testbed.core.units import column_unit, significant
from testbed.orchestrator.terminal.spoken import MISSING

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
Units = Mapping[str, tuple[float, str]]
"""One unit for each column that has any: how many base units it has, and its name."""


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
    units = _units(shown)
    table = _table(f"the {len(shown)} best of {len(found.ranked)} plans, by the corrected model", "place", units)
    order = sorted(range(len(found.ranked)), key=lambda index: _published(found.ranked[index]))
    places = {index: place for place, index in enumerate(order, 1)}
    for index, one in enumerate(shown):
        cells = _cells(one, units)
        if one.published_s is not None:
            cells[_COLUMNS.index("AMP says")] += f" ({places[index]}.)"
        table.add_row(str(index + 1), *cells)
    return table


def _choices(found: Comparison) -> Table:
    units = _units([one for one in found.choices.values() if isinstance(one, Predicted)])
    table = _table("what each way of choosing takes", "plan=", units)
    for name, one in found.choices.items():
        if isinstance(one, Rejected):
            table.add_row(name, *[MISSING] * len(_COLUMNS))
        else:
            table.add_row(name, *_cells(one, units))
    return table


def _units(shown: Sequence[Predicted]) -> Units:
    return {
        "step": column_unit((one.cost.total_s for one in shown), "time"),
        "AMP says": column_unit((one.published_s for one in shown if one.published_s is not None), "time"),
        "memory": column_unit((max(one.cost.memory_bytes) for one in shown), "size"),
    }


def _table(title: str, first: str, units: Units) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    table.add_column(first)
    for column in _COLUMNS:
        heading = f"{column} ({units[column][1]})" if column in units else column
        table.add_column(heading, justify="left" if column in _LEFT else "right")
    return table


def _cells(one: Predicted, units: Units) -> list[str]:
    plan, cost = one.plan, one.cost
    waits_s = cost.total_s - cost.pipe_s
    memory = significant(max(cost.memory_bytes) / units["memory"][0]) + (" too much" if one.memory_faults else "")
    published = MISSING if one.published_s is None else significant(one.published_s / units["AMP says"][0])
    return [
        *(str(degree) for degree in (plan.pp, plan.dp, plan.tp, plan.micro_batch)),
        plan.schedule,
        " ".join(map(str, plan.cuts)),
        " | ".join(" ".join(map(str, plan.position_ranks(position))) for position in range(plan.pp)),
        significant(cost.total_s / units["step"][0]),
        f"{100 * waits_s / cost.total_s:.0f}%" if cost.total_s else MISSING,
        published,
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
