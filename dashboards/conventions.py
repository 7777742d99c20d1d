"""Rules that a dashboard's JSON keeps: what a schema cannot say, and what Grafana itself would not complain about.

After those of Grafana's dashboard-linter, and some of our own: metrics exist, and every query can be answered from the
archive, where a run ends long before the range does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

from dashboards.interpolate import Target, panels, targets, used_variables
from testbed.core.record.metrics import METRICS

Json = Mapping[str, Any]
Rule = Callable[[Json], Iterator[str]]

_SERIES = {metric.series: metric for metric in METRICS.values()}
_SELECTOR = re.compile(r"\b(?P<name>longhaul_\w+)(?:\{(?P<matchers>[^}]*)\})?(?P<window>\[[^\]]*\])?")
_SUBQUERY = "[$__range:"
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
_COMMON_LABELS = {"run", "topo", "compressor"}
_COLUMNS = 24
_BUILT_IN = re.compile(r"__\w+")


def faults(dashboard: Json) -> list[str]:
    """What is wrong with a dashboard; empty if nothing."""
    return [f"{dashboard.get('uid')}: {name}: {fault}" for name, rule in RULES.items() for fault in rule(dashboard)]


def data_source_is_the_variable(dashboard: Json) -> Iterator[str]:
    for panel in panels(dashboard):
        for holder in (panel, *(panel.get("targets") or ())):
            if (holder.get("datasource") or {}).get("uid") != "${datasource}":
                yield f"{panel['title']}: does not take its data from $datasource"
    for variable in _variables(dashboard):
        if variable["type"] == "query" and (variable.get("datasource") or {}).get("uid") != "${datasource}":
            yield f"variable {variable['name']}: does not take its values from $datasource"


def panels_say_what_they_show(dashboard: Json) -> Iterator[str]:
    for panel in panels(dashboard):
        for key in ("title", "description"):
            if not str(panel.get(key) or "").strip():
                yield f"panel {panel['id']} has no {key}"
        if not ((panel.get("fieldConfig") or {}).get("defaults") or {}).get("unit"):
            yield f"{panel['title']}: has no unit"
        if not panel.get("targets"):
            yield f"{panel['title']}: asks for nothing"
    titles = Counter(panel["title"] for panel in panels(dashboard))
    yield from (f"{count} panels are called {title}" for title, count in titles.items() if count > 1)


def rates_span_the_interval(dashboard: Json) -> Iterator[str]:
    for target in targets(dashboard):
        for found in re.finditer(r"\b(rate|irate|increase)\([^\[]*\[([^\]]*)\]", target.expr):
            if found[2] != "$__rate_interval":
                yield f"{_where(target)}: {found[1]} over {found[2]}, not $__rate_interval"


def counters_are_not_read_raw(dashboard: Json) -> Iterator[str]:
    """As they are only where the count itself is an axis, or in a subquery a clock."""
    for target in targets(dashboard):
        for found in _selectors(target):
            metric = _SERIES.get(found["name"])
            is_raw = metric is not None and metric.kind == "counter" and not found["window"]
            if is_raw and target.kind != "xychart" and _SUBQUERY not in target.expr:
                yield f"{_where(target)}: {found['name']} as it is"


def metrics_exist(dashboard: Json) -> Iterator[str]:
    for target in targets(dashboard):
        for found in _selectors(target):
            metric = _SERIES.get(found["name"])
            if metric is None:
                yield f"{_where(target)}: nobody writes {found['name']}"
                continue
            unknown = set(_MATCHER.findall(found["matchers"] or "")) - _COMMON_LABELS - set(metric.labels)
            yield from (f"{_where(target)}: {found['name']} has no label {label}" for label in sorted(unknown))


def queries_follow_the_choice(dashboard: Json) -> Iterator[str]:
    """Every selector by topology; by run too, unless it is what runs are compared with."""
    for target in targets(dashboard):
        for found in _selectors(target):
            matchers = found["matchers"] or ""
            is_baseline = 'compressor="none"' in matchers
            wanted = ['topo=~"$topo"', *([] if is_baseline else ['run=~"$run"', 'compressor=~"$compressor"'])]
            yield from (f"{_where(target)}: {found['name']} without {w}" for w in wanted if w not in matchers)


def instant_queries_look_back(dashboard: Json) -> Iterator[str]:
    """Asked at the range's end, when an archived run is long over."""
    for target in targets(dashboard):
        if target.instant and _SUBQUERY not in target.expr:
            bare = [found["name"] for found in _selectors(target) if found["window"] != "[$__range]"]
            yield from (f"{_where(target)}: {name} at the end of the range, not over it" for name in bare)


def variables_are_defined(dashboard: Json) -> Iterator[str]:
    defined = {variable["name"] for variable in _variables(dashboard)}
    texts = [(_where(target), f"{target.expr} {target.legend}") for target in targets(dashboard)]
    texts += [(panel["title"], f"{panel['title']} {panel.get('description')}") for panel in panels(dashboard)]
    texts += [(f"variable {v['name']}", str(v.get("query") or "")) for v in _variables(dashboard)]
    for where, text in texts:
        unknown = {name for name in used_variables(text) if not _BUILT_IN.fullmatch(name)} - defined
        yield from (f"{where}: ${name} is defined nowhere" for name in sorted(unknown))


def variables_follow_the_time_range(dashboard: Json) -> Iterator[str]:
    for variable in _variables(dashboard):
        if variable["type"] == "query" and variable.get("refresh") != 2:
            yield f"variable {variable['name']}: keeps its values when the time range changes"


def ids_are_unique(dashboard: Json) -> Iterator[str]:
    ids = Counter(panel.get("id") for panel in dashboard.get("panels") or ())
    yield from (f"{count} panels have id {number}" for number, count in ids.items() if count > 1 or not number)
    for panel in panels(dashboard):
        letters = Counter(target.get("refId") for target in panel.get("targets") or ())
        twice = [letter for letter, count in letters.items() if count > 1 or not letter]
        yield from (f"{panel['title']}: more than one query is {letter}" for letter in twice)


def panels_do_not_overlap(dashboard: Json) -> Iterator[str]:
    placed = [(panel["title"], panel["gridPos"]) for panel in dashboard.get("panels") or ()]
    for title, at in placed:
        if at["x"] < 0 or at["x"] + at["w"] > _COLUMNS:
            yield f"{title}: goes beyond the {_COLUMNS} columns"
    for (one, a), (other, b) in combinations(placed, 2):
        is_beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        is_apart = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        if not is_beside and not is_apart:
            yield f"{one} and {other} overlap"


def the_range_is_the_archive_s(dashboard: Json) -> Iterator[str]:
    """A fixed one, in UTC, so that the x axis reads as elapsed time."""
    if dashboard.get("timezone") != "utc":
        yield f"time zone is {dashboard.get('timezone')}, not utc"
    if not str((dashboard.get("time") or {}).get("from")).startswith("2020-01-01T00:00:00"):
        yield "does not begin where archived runs do"


def _variables(dashboard: Json) -> list[Json]:
    return list((dashboard.get("templating") or {}).get("list") or ())


def _selectors(target: Target) -> Iterator[re.Match[str]]:
    return _SELECTOR.finditer(target.expr)


def _where(target: Target) -> str:
    return f"{target.panel}, query {target.ref_id}"


RULES: dict[str, Rule] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        data_source_is_the_variable,
        panels_say_what_they_show,
        rates_span_the_interval,
        counters_are_not_read_raw,
        metrics_exist,
        queries_follow_the_choice,
        instant_queries_look_back,
        variables_are_defined,
        variables_follow_the_time_range,
        ids_are_unique,
        panels_do_not_overlap,
        the_range_is_the_archive_s,
    )
}
