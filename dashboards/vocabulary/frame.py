"""What all dashboards share: variables, time range, links, and how panels lie in rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard

from dashboards.vocabulary.kinds import DATASOURCE

ARCHIVE_UID = "longhaul-archive"
LIVE_UID = "longhaul-live"
EPOCH = "2020-01-01T00:00:00.000Z"
"""Where the archive has the first step of every run begin, so that the x axis reads as elapsed time."""
RANGE = "5 minutes"
"""That a dashboard opens with. What a run did after it is not seen, in bars and tables neither."""
_ENDS = {"minute": "00:01", "5 minutes": "00:05", "15 minutes": "00:15", "hour": "01:00", "6 hours": "06:00"}
"""Of the ranges on offer: what they span, and when they end."""
_TAG = "longhaul"
_COLUMNS = 24
_ROW_HEIGHT = 1
_IDS_OF_A_ROW = 100
"""A row's panels are numbered from its own number, so that a new panel leaves those of other rows theirs."""


@dataclass(frozen=True)
class Section:
    """A row of a dashboard: lines of panels, all of one height, those of a line of one width."""

    title: str
    height: int
    lines: tuple[tuple[Any, ...], ...]


def section(title: str, height: int, *lines: tuple[Any, ...]) -> Section:
    return Section(title, height, lines)


@dataclass(frozen=True)
class Board:
    uid: str
    title: str
    description: str
    sections: tuple[Section, ...]
    single_run: bool = False
    choose_verdict: bool = False
    choose_accuracy: bool = False

    def build(self) -> dashboard.Dashboard:
        built = builders.Dashboard(self.title).uid(self.uid).description(self.description).tags([_TAG]).readonly()
        built.timezone("utc").time(EPOCH, _end(RANGE)).refresh("")
        built.tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        built.timepicker(_ranges())
        built.links(_links(self.uid))
        built.variables(list(self._variables()))
        y = 0
        for number, one in enumerate(self.sections, 1):
            y = _add(built, one, number * _IDS_OF_A_ROW, y)
        return built.build()

    def _variables(self) -> Iterator[Any]:
        yield (
            builders.DatasourceVariable("datasource")
            .label("Data source")
            .description("The archive of past runs, or the run that is going.")
            .type("prometheus")
            .current(dashboard.VariableOption(text="Longhaul archive", value=ARCHIVE_UID))
        )
        chosen = "longhaul_run_info"
        yield _labels("topo", "Topology", f"label_values({chosen}, topo)")
        chosen = 'longhaul_run_info{topo=~"$topo"}'
        yield _labels("compressor", "Compressor", f"label_values({chosen}, compressor)")
        matchers = ['topo=~"$topo"', 'compressor=~"$compressor"']
        if self.choose_verdict:
            yield _choice("verdict", "Verdict", ("valid", "suspect", "unknown", "invalid"), most=3)
            matchers.append('verdict=~"$verdict"')
        runs = f"label_values(longhaul_run_info{{{','.join(matchers)}}}, run)"
        yield _labels("run", "Run", runs, single=self.single_run)
        if self.choose_accuracy:
            yield _choice("accuracy", "Accuracy", ("0.9", "0.5", "0.7", "0.8", "0.95", "0.97", "0.99"), most=1)


def _labels(name: str, label: str, query: str, *, single: bool = False) -> Any:
    """A variable of a label's values in the time range, newest run first."""
    built = builders.QueryVariable(name).label(label).datasource(DATASOURCE)
    built.query({"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"})
    built.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
    built.sort(dashboard.VariableSort.ALPHABETICAL_DESC if name == "run" else dashboard.VariableSort.ALPHABETICAL_ASC)
    if single:
        return built.multi(False).include_all(False)
    return built.multi(True).include_all(True).current(dashboard.VariableOption(text=["All"], value=["$__all"]))


def _choice(name: str, label: str, values: tuple[str, ...], most: int) -> Any:
    """A variable of fixed values, of which the first `most` are chosen."""
    built = builders.CustomVariable(name).label(label).values(",".join(values))
    if most == 1:
        return built.multi(False).current(dashboard.VariableOption(text=values[0], value=values[0]))
    first = list(values[:most])
    return built.multi(True).include_all(True).current(dashboard.VariableOption(text=first, value=first))


def _ranges() -> Any:
    shown = [(f"Archive: first {span}", EPOCH, _end(span)) for span in _ENDS]
    shown.append(("Live: last 5 minutes", "now-5m", "now"))
    options: list[Any] = [
        builders.TimeOption().display(display).from_val(begin).to(end) for display, begin, end in shown
    ]
    return builders.TimePicker().refresh_intervals(["1s", "5s", "30s"]).quick_ranges(options)


def _end(span: str) -> str:
    return f"2020-01-01T{_ENDS[span]}:00.000Z"


def _links(uid: str) -> list[Any]:
    boards: Any = builders.DashboardLink("Longhaul").type(dashboard.DashboardLinkType.DASHBOARDS).tags([_TAG])
    live: Any = builders.DashboardLink("Live").type(dashboard.DashboardLinkType.LINK).icon("bolt")
    live.tooltip("The run that is going, every second")
    live.url(f"/d/{uid}?var-datasource={LIVE_UID}&from=now-5m&to=now&refresh=1s")
    boards.as_dropdown(True).include_vars(True).keep_time(True)
    # Beside the variables, where they are seen; the SDK would have them in a menu.
    return [boards.placement(None), live.placement(None)]


def _add(built: Any, row: Section, number: int, y: int) -> int:
    """Add a row and its panels from y on; returns where the next begins."""
    position = dashboard.GridPos(x=0, y=y, w=_COLUMNS, h=_ROW_HEIGHT)
    built.with_row(builders.Row(row.title).id(number).grid_pos(position))
    y += _ROW_HEIGHT
    for line in row.lines:
        width = _COLUMNS // len(line)
        for place, panel in enumerate(line):
            number += 1
            built.with_panel(panel.id(number).grid_pos(dashboard.GridPos(x=place * width, y=y, w=width, h=row.height)))
        y += row.height
    return y
