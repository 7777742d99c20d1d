"""A dashboard's queries as Grafana would send them: for whoever checks or draws a dashboard without a Grafana server.

The standard library alone, so that any side may import it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SCRAPE_S = 1.0
"""`timeInterval` of the data sources in provisioning/: one sample a second."""
ANY = ".+"
"""What a dashboard's `All` stands for where its variable has no list: placed as it is, not quoted."""

_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)\}|(?P<plain>[A-Za-z_]\w*))")
_SPECIAL = re.compile(r"[$^*{}\[\]'+?.()|]")


@dataclass(frozen=True)
class Target:
    """One query of one panel."""

    dashboard: str
    """Its uid."""
    panel_id: int
    panel: str
    """Its title."""
    kind: str
    """The panel's type, as `timeseries`."""
    ref_id: str
    expr: str
    legend: str
    """With `{{label}}` for labels; see `legend_of`."""
    instant: bool
    """Asked once, at the end of the range; otherwise over the range."""
    format: str
    """`time_series` or `table`."""


def panels(dashboard: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every panel but the rows, those inside collapsed rows too."""
    for panel in dashboard.get("panels") or ():
        if panel["type"] == "row":
            yield from panels(panel)
        else:
            yield panel


def targets(dashboard: Mapping[str, Any]) -> list[Target]:
    """Every query of a dashboard's JSON, in the order of its panels."""
    return [
        Target(
            dashboard=str(dashboard["uid"]),
            panel_id=int(panel["id"]),
            panel=str(panel["title"]),
            kind=str(panel["type"]),
            ref_id=str(target["refId"]),
            expr=str(target["expr"]),
            legend=str(target.get("legendFormat") or ""),
            instant=bool(target.get("instant")),
            format=str(target.get("format") or "time_series"),
        )
        for panel in panels(dashboard)
        for target in panel.get("targets") or ()
    ]


def interpolate(
    expr: str, variables: Mapping[str, str | Sequence[str]], range_s: float, step_s: float = SCRAPE_S
) -> str:
    """The query that is sent.

    Args:
        expr: as the dashboard holds it.
        variables: value of each variable of the dashboard. A list is quoted and joined as Grafana does for a variable
            of many values; a text is placed as it is, so `ANY` stands for every value.
        range_s: length of the dashboard's time range.
        step_s: of the query; never below the data source's `timeInterval`.

    Raises:
        KeyError: the query has a variable that is given nowhere.
    """
    step_s = max(step_s, SCRAPE_S)
    known: dict[str, str] = {
        "__interval": duration(step_s),
        "__interval_ms": f"{step_s * 1000:.0f}",
        "__range": duration(range_s),
        "__range_s": f"{range_s:.0f}",
        "__range_ms": f"{range_s * 1000:.0f}",
        # As Grafana's documentation of its Prometheus data source has it: never fewer than four samples.
        "__rate_interval": duration(max(step_s + SCRAPE_S, 4 * SCRAPE_S)),
    }
    known.update({name: value if isinstance(value, str) else any_of(value) for name, value in variables.items()})
    return _VARIABLE.sub(lambda found: known[found["braced"] or found["plain"]], expr)


def initial(dashboard: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """What a dashboard's variables stand for when it is opened: every value of those that take theirs from the data."""
    found: dict[str, str | list[str]] = {}
    for variable in (dashboard.get("templating") or {}).get("list") or ():
        if variable["type"] == "query":
            found[variable["name"]] = ANY
        elif variable["type"] != "datasource":
            found[variable["name"]] = variable["current"]["value"]
    return found


def used_variables(text: str) -> set[str]:
    """Names of the variables in a query or title."""
    return {found["braced"] or found["plain"] for found in _VARIABLE.finditer(text)}


def any_of(values: Sequence[str]) -> str:
    """A regular expression, inside a PromQL string, that matches these values alone."""
    quoted = [_SPECIAL.sub(r"\\\\\g<0>", value.replace("\\", r"\\\\")) for value in values]
    return quoted[0] if len(quoted) == 1 else f"({'|'.join(quoted)})"


def duration(seconds: float) -> str:
    """
    >>> duration(4), duration(0.25)
    ('4s', '250ms')
    """
    return f"{seconds:.0f}s" if float(seconds).is_integer() else f"{seconds * 1000:.0f}ms"


def legend_of(legend: str, labels: Mapping[str, str]) -> str:
    """A series' name, as its legend's format makes it of its labels; without a format, the labels themselves."""
    if not legend or legend == "__auto":
        return "{" + ", ".join(f'{key}="{value}"' for key, value in sorted(labels.items())) + "}"
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), legend)
