"""Kinds of panels: each takes what it shows and says, and knows how Grafana is told."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import bargauge, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.vocabulary.colors import ASKED, BY_RUN, VERDICTS, of_methods
from dashboards.vocabulary.queries import shortly_named

DATASOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
RUN_LABEL, SHORT_LABEL = "{{run}}", "{{short}}"
TIMES = "suffix:×"
"""Unit of a ratio that is no share."""


@dataclass(frozen=True)
class Query:
    """A query, and how its series are named: `{{run}}` in a legend becomes a short name of the run."""

    expr: str
    legend: str = "{{run}}"
    is_asked: bool = False
    """What was asked for, beside what was measured: drawn grey and dashed."""


@dataclass(frozen=True)
class Limits:
    """Where a value becomes doubtful and where it is bad; the other way round where less is worse."""

    doubtful: float
    bad: float


def target(query: Query, ref_id: str, *, instant: bool = False, table: bool = False) -> prometheus.Dataquery:
    """A query as a panel sends it: over the range, or once, at its end."""
    expr, legend = query.expr, query.legend
    if RUN_LABEL in legend:
        expr, legend = shortly_named(expr), legend.replace(RUN_LABEL, SHORT_LABEL)
    built = prometheus.Dataquery().ref_id(ref_id).datasource(DATASOURCE).expr(expr).legend_format(legend)
    built.format(PromQueryFormat.TABLE if table else PromQueryFormat.TIME_SERIES)
    return built.instant() if instant else built.range()


def headed(panel: Any, title: str, description: str, unit: str) -> Any:
    """What every panel has."""
    return panel.title(title).description(description).datasource(DATASOURCE).unit(unit)


def time_series(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    limits: Limits | None = None,
    stacked: bool = False,
    minimum: float | None = 0,
    maximum: float | None = None,
) -> Any:
    """Lines over elapsed time. A series keeps its colour from panel to panel, since it follows from the name."""
    panel = headed(timeseries.Panel(), title, description, unit)
    panel.color_scheme(color(dashboard.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    panel.show_points(common.VisibilityMode.NEVER).line_width(1).fill_opacity(70 if stacked else 0)
    panel.legend(legend_below())
    panel.tooltip(
        common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
    )
    if queries[0].legend in BY_RUN:
        paint(panel)
    for letter, query in zip(string.ascii_uppercase, queries, strict=False):
        panel.with_target(target(query, letter))
        if query.is_asked:
            panel.with_override(by_query(letter), _asked())
    if stacked:
        panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
        panel.line_width(0)
    if minimum is not None:
        panel.min(minimum)
    if maximum is not None:
        panel.max(maximum)
    if limits is not None:
        panel.thresholds(thresholds(limits))
        panel.thresholds_style(
            common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        )
    return panel


def single(title: str, description: str, unit: str, query: Query, *, limits: Limits | None = None) -> Any:
    """One number, of the end of the range."""
    panel = headed(stat.Panel(), title, description, unit)
    panel.with_target(target(query, "A", instant=True))
    panel.graph_mode(common.BigValueGraphMode.NONE).color_mode(common.BigValueColorMode.VALUE)
    panel.reduce_options(last_value())
    if limits is not None:
        return panel.thresholds(thresholds(limits))
    return panel.thresholds(plain()).color_scheme(color(dashboard.FieldColorModeId.THRESHOLDS))


def verdict(title: str, description: str, query: Query) -> Any:
    """One verdict, or one beside another, in words and colours."""
    panel = headed(stat.Panel(), title, description, "none")
    panel.with_target(target(query, "A", instant=True))
    panel.graph_mode(common.BigValueGraphMode.NONE).color_mode(common.BigValueColorMode.BACKGROUND)
    panel.reduce_options(last_value())
    codes = {str(code): said for code, said in enumerate(VERDICTS.items())}
    return panel.thresholds(plain()).mappings([words(codes)])


def bars(title: str, description: str, unit: str, query: Query, *, limits: Limits | None = None) -> Any:
    """A bar for each series, of the end of the range."""
    panel = headed(bargauge.Panel(), title, description, unit)
    panel.with_target(target(query, "A", instant=True))
    panel.orientation(common.VizOrientation.HORIZONTAL).display_mode(common.BarGaugeDisplayMode.BASIC)
    panel.show_unfilled(False).value_mode(common.BarGaugeValueMode.TEXT).min(0)
    panel.reduce_options(last_value())
    if limits is not None:
        return panel.thresholds(thresholds(limits))
    panel.thresholds(plain()).color_scheme(color(dashboard.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    return paint(panel)


def states(title: str, description: str, query: Query, meanings: dict[str, tuple[str, str]]) -> Any:
    """A state over elapsed time, in words and colours: `meanings` by value."""
    panel = headed(statetimeline.Panel(), title, description, "none")
    panel.with_target(target(query, "A"))
    panel.show_value(common.VisibilityMode.NEVER).merge_values(True).row_height(0.8)
    panel.legend(legend_below())
    return panel.thresholds(plain()).mappings([words(meanings)])


def paint(panel: Any) -> Any:
    """Give the series of each method the method's colour."""
    for matcher, properties in of_methods():
        panel.with_override(matcher, properties)
    return panel


def legend_below() -> Any:
    return (
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )


def color(mode: dashboard.FieldColorModeId) -> Any:
    return builders.FieldColor().mode(mode)


def last_value() -> Any:
    return common_builders.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


def by_query(ref_id: str) -> dashboard.MatcherConfig:
    return dashboard.MatcherConfig(id_val="byFrameRefID", options=ref_id)


def by_name(name: str) -> dashboard.MatcherConfig:
    return dashboard.MatcherConfig(id_val="byName", options=name)


def words(meanings: dict[str, tuple[str, str]]) -> dashboard.ValueMap:
    """Values in words and colours."""
    options = {
        value: dashboard.ValueMappingResult(text=text, color=shade, index=index)
        for index, (value, (text, shade)) in enumerate(meanings.items())
    }
    return dashboard.ValueMap(options=options)


def plain() -> Any:
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps([_step(None, "text")])


def thresholds(limits: Limits) -> Any:
    """Green, orange and red in the order that the limits give."""
    if limits.doubtful <= limits.bad:
        steps = [_step(None, "green"), _step(limits.doubtful, "orange"), _step(limits.bad, "red")]
    else:
        steps = [_step(None, "red"), _step(limits.bad, "orange"), _step(limits.doubtful, "green")]
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)


def _step(value: float | None, shade: str) -> dashboard.Threshold:
    return dashboard.Threshold(value=value, color=shade)


def _asked() -> list[dashboard.DynamicConfigValue]:
    return [
        dashboard.DynamicConfigValue(id_val="custom.lineStyle", value={"dash": [6, 6], "fill": "dash"}),
        dashboard.DynamicConfigValue(id_val="color", value={"fixedColor": ASKED, "mode": "fixed"}),
    ]
