"""Kinds of panels that put queries side by side: tables, scatter plots, stacked shares."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import barchart
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import table as table_builders
from grafana_foundation_sdk.builders import xychart as xychart_builders
from grafana_foundation_sdk.models import common, dashboard, xychart

from dashboards.vocabulary.colors import VERDICTS
from dashboards.vocabulary.kinds import (
    Limits,
    Query,
    by_name,
    color,
    headed,
    legend_below,
    paint,
    plain,
    target,
    thresholds,
    words,
)

RUN_LINK = {
    "title": "This run in depth",
    "url": "/d/longhaul-run?var-run=${__data.fields.run}&var-datasource=${datasource}&${__url_time_range}",
}


@dataclass(frozen=True)
class Column:
    """A query's values as a column of a table."""

    name: str
    """Empty for a query of which the labels alone are shown."""
    expr: str
    unit: str = "none"
    limits: Limits | None = None
    decimals: int | None = None


def table(title: str, description: str, labels: tuple[str, ...], *columns: Column, sort_by: str = "") -> Any:
    """Rows of what the queries have in common, a column each; `labels` are shown first, in this order.

    The columns' queries must agree in their labels, except that one may have more: its rows are widened by them.
    """
    panel = headed(table_builders.Panel(), title, description, "none")
    panel.thresholds(plain()).cell_height(common.TableCellHeight.SM)
    names, hidden = {}, []
    for letter, column in zip(string.ascii_uppercase, columns, strict=False):
        panel.with_target(target(Query(column.expr, "__auto"), letter, instant=True, table=True))
        if column.name:
            names[f"Value #{letter}"] = column.name
            panel.with_override(by_name(column.name), _column(column))
        else:
            hidden.append(f"Value #{letter}")
    panel.with_transformation(transformation("merge"))
    panel.with_transformation(organized(labels, names, hidden))
    if "run" in labels:
        panel.with_override(by_name("run"), [_property("links", [RUN_LINK]), _property("custom.width", 400)])
    if "verdict" in labels:
        meanings = words({word: (word, shade) for word, shade in VERDICTS.items()})
        colored = _property("custom.cellOptions", {"type": "color-text"})
        panel.with_override(by_name("verdict"), [_property("mappings", [meanings]), colored])
    if sort_by:
        panel.sort_by([common_builders.TableSortByFieldState().display_name(sort_by).desc(False)])
    return panel


def scatter(title: str, description: str, x: Column, y: Column, split_by: str, *, over_time: bool = False) -> Any:
    """Points of (x, y), a series for each value of the label `split_by`; over time they are joined by a line."""
    panel = headed(xychart_builders.Panel(), title, description, y.unit)
    for letter, column in (("A", x), ("B", y)):
        panel.with_target(target(Query(column.expr, "__auto"), letter, instant=not over_time, table=True))
    panel.show(xychart.XYShowMode.POINTS_AND_LINES if over_time else xychart.XYShowMode.POINTS)
    panel.color_scheme(color(dashboard.FieldColorModeId.PALETTE_CLASSIC))
    panel.legend(legend_below())
    names = {"Value #A": x.name, "Value #B": y.name}
    panel.with_transformation(transformation("merge"))
    panel.with_transformation(organized(("run", "compressor"), names, []))
    panel.with_transformation(transformation("partitionByValues", fields=[split_by], keepFields=False))
    paint(panel)
    # By their first names: partitioning puts the label's value behind the new ones.
    across, up = names
    panel.with_override(by_name(across), [_property("unit", x.unit), _property("custom.axisLabel", x.name)])
    panel.with_override(by_name(up), [_property("custom.axisLabel", y.name)])
    series = xychart_builders.XYSeriesConfig()
    series.x(xychart_builders.XychartXYSeriesConfigX().matcher(_named(across)))
    series.y(xychart_builders.XychartXYSeriesConfigY().matcher(_named(up)))
    return panel.mapping(xychart.SeriesMapping.AUTO).series([series])


def shares(title: str, description: str, expr: str, *, row: str, column: str) -> Any:
    """Shares of a whole, stacked: a bar for each value of the label `row`, a part for each of `column`."""
    panel = headed(barchart.Panel(), title, description, "percentunit")
    panel.with_target(target(Query(expr, "__auto"), "A", instant=True, table=True))
    panel.with_transformation(
        transformation("groupingToMatrix", columnField=column, rowField=row, valueField="Value", emptyValue="null")
    )
    panel.orientation(common.VizOrientation.HORIZONTAL).stacking(common.StackingMode.NORMAL)
    panel.x_field(f"{row}\\{column}").show_value(common.VisibilityMode.NEVER)
    panel.legend(legend_below()).min(0).max(1)
    return panel.color_scheme(color(dashboard.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))


def transformation(name: str, **options: object) -> dashboard.DataTransformerConfig:
    return dashboard.DataTransformerConfig(id_val=name, options=options)


def organized(labels: tuple[str, ...], names: dict[str, str], hidden: list[str]) -> dashboard.DataTransformerConfig:
    """Columns in order and renamed, without the time, which is the same in every row of a table."""
    return transformation(
        "organize",
        excludeByName=dict.fromkeys(["Time", *hidden], True),
        includeByName={},
        indexByName={name: index for index, name in enumerate([*labels, *names])},
        renameByName=names,
    )


def _named(name: str) -> Any:
    return xychart_builders.MatcherConfig().id("byName").options(name)


def _column(column: Column) -> list[dashboard.DynamicConfigValue]:
    properties = [_property("unit", column.unit)]
    if column.decimals is not None:
        properties.append(_property("decimals", column.decimals))
    if column.limits is not None:
        properties.append(_property("thresholds", thresholds(column.limits).build()))
        properties.append(_property("custom.cellOptions", {"type": "color-text"}))
    return properties


def _property(name: str, value: object) -> dashboard.DynamicConfigValue:
    return dashboard.DynamicConfigValue(id_val=name, value=value)
