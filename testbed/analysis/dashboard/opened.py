"""A dashboard as it is when somebody opens it: its time range, its variables, what its queries answer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dashboards.emptiness import EXCUSES
from dashboards.interpolate import Target, any_of, duration, initial, interpolate, legend_of
from testbed.analysis.dashboard.frames import Frame, series_frame, table_frame
from testbed.analysis.dashboard.prometheus_queries import PrometheusClient, Series
from testbed.core.errors import InputError

Json = Mapping[str, Any]
Chosen = dict[str, str | list[str]]

_LABEL_VALUES = re.compile(r"label_values\((?P<selector>.+),\s*(?P<label>\w+)\)")
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600)
_MANY_RUNS = 50
_POINTS, _POINTS_OF_MANY = 300, 150


@dataclass(frozen=True)
class Opened:
    """One dashboard; `end_s` is the range's, `data_end_s` that of the longest run in it."""

    dashboard: Json
    source: PrometheusClient
    variables: Chosen
    begin_s: float
    end_s: float
    data_end_s: float

    @property
    def range_s(self) -> float:
        return self.end_s - self.begin_s

    @property
    def step_s(self) -> float:
        """Of queries over the range: so that a line has a few points for each of its pixels, and fewer of many runs."""
        runs = self.variables.get("run") or ()
        points = _POINTS_OF_MANY if isinstance(runs, list) and len(runs) > _MANY_RUNS else _POINTS
        wanted_s = (self.data_end_s - self.begin_s) / points
        return float(next((step_s for step_s in _STEPS_S if step_s >= wanted_s), _STEPS_S[-1]))

    def asked(self, expr: str) -> str:
        """A query as it is sent."""
        return interpolate(expr, self.variables, self.range_s, self.step_s)

    def ask(self, target: Target) -> list[Series]:
        """Raises:
        QueryError: Prometheus refused it.
        """
        expr = self.asked(target.expr)
        if target.instant:
            return self.source.at(expr, self.end_s)
        return self.source.over(expr, self.begin_s, self.data_end_s, self.step_s)


def frames_of(target: Target, found: Sequence[Series], *, is_only: bool) -> list[Frame]:
    if target.format == "table":
        return [table_frame(target.ref_id, found, is_only=is_only)]
    return [series_frame(target.ref_id, one, legend_of(target.legend, one.labels)) for one in found]


def open_dashboard(dashboard: Json, source: PrometheusClient, *, take_all: bool = False) -> Opened:
    """As it opens; with a range that holds all of the runs, of those it has on offer.

    Args:
        take_all: where one run is chosen, choose all that there are.

    Raises:
        InputError: the archive has no run.
        QueryError: it could not be asked.
    """
    begin_s, ends_s = _ranges(dashboard)
    limits = begin_s, ends_s[-1]
    chosen = dict(_chosen(dashboard, source, limits, take_all))
    scope = any_of([chosen["run"]] if isinstance(chosen["run"], str) else chosen["run"])
    longest = f'count_over_time(longhaul_run_info{{run=~"{scope}"}}[{duration(limits[1] - begin_s)}])'
    # a sample each second, of each run from its first step to its last
    seconds = max((series.points[-1][1] for series in source.at(longest, limits[1])), default=0.0)
    if not seconds:
        raise InputError(f"{source.url}: no run to show; is it the archive that longhaul dashboard makes?")
    last_s = min(math.ceil(begin_s + seconds), limits[1])
    return Opened(dashboard, source, chosen, begin_s, next(end_s for end_s in ends_s if end_s >= last_s), last_s)


def _ranges(dashboard: Json) -> tuple[float, list[float]]:
    """Where the archive's range begins, and the ends on offer, ascending."""
    opens = dashboard["time"]
    offered = [opens, *((dashboard.get("timepicker") or {}).get("quick_ranges") or ())]
    ends = {_unix_s(one["to"]) for one in offered if one["from"] == opens["from"]}
    return _unix_s(opens["from"]), sorted(ends)


def _unix_s(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise InputError(f"time {text}: only a fixed time is known here") from error


def _chosen(
    dashboard: Json, source: PrometheusClient, limits: tuple[float, float], take_all: bool
) -> Iterator[tuple[str, str | list[str]]]:
    found: Chosen = dict(initial(dashboard))
    for variable in (dashboard.get("templating") or {}).get("list") or ():
        name = variable["name"]
        if name not in found:
            continue
        if variable["type"] == "query":
            found[name] = _of_query(variable, source, found, limits, take_all)
        yield name, found[name]


def _of_query(
    variable: Json, source: PrometheusClient, found: Chosen, limits: tuple[float, float], take_all: bool
) -> list[str]:
    """All values, as a list, or the first of them where one is chosen; what nobody has is matched by nothing."""
    query = variable["query"]
    asked = _LABEL_VALUES.fullmatch(str(query["query"] if isinstance(query, Mapping) else query))
    if asked is None:
        raise InputError(f"variable {variable['name']}: only label_values(selector, label) is known here")
    selector = interpolate(asked["selector"], found, limits[1] - limits[0])
    values = sorted(source.label_values(asked["label"], selector, *limits), reverse=variable.get("sort") == 2)
    return values if variable.get("multi") or take_all else values[:1]


# Why a panel's query may have no answer, as a look at the data says.


def excuse_of(opened: Opened, target: Target) -> str:
    """Empty if it must have an answer.

    Raises:
        QueryError: Prometheus refused to say.
    """
    for excuse in EXCUSES:
        if excuse.is_for(target.expr) and not opened.source.at(opened.asked(excuse.evidence), opened.end_s):
            return excuse.why
    return ""
