"""What a panel's JSON may say here: its keys, its options, and the values of those that change what is seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from testbed.core.errors import raise_input_faults

_ANY = None
"""A value that changes nothing on a page that is looked at, or any value is understood."""
_Allowed = Mapping[str, tuple[object, ...] | None]

_PANEL: _Allowed = {
    **dict.fromkeys(("datasource", "description", "fieldConfig", "gridPos", "id", "options", "targets", "title")),
    **dict.fromkeys(("transformations", "type")),
    "repeatDirection": _ANY,
    "transparent": (False,),
}
_TARGET: _Allowed = {
    **dict.fromkeys(("datasource", "expr", "legendFormat", "refId")),
    "format": ("time_series", "table"),
    "instant": (True, False),
    "range": (True, False),
}
_REDUCED: _Allowed = {"reduceOptions": ({"calcs": ["lastNotNull"], "fields": "", "values": False},)}
_LEGEND: _Allowed = {"legend": _ANY, "tooltip": _ANY}
_OPTIONS: dict[str, _Allowed] = {
    "timeseries": _LEGEND,
    "stat": {
        **_REDUCED,
        "colorMode": ("value", "background"),
        "graphMode": ("none",),
        "showPercentChange": (False,),
        "textMode": ("auto",),
        **dict.fromkeys(("justifyMode", "orientation", "percentChangeColorMode", "wideLayout")),
    },
    "bargauge": {
        **_REDUCED,
        **_LEGEND,
        "displayMode": ("basic",),
        "orientation": ("horizontal",),
        "showUnfilled": (False,),
        "valueMode": ("text",),
        **dict.fromkeys(("maxVizHeight", "minVizHeight", "minVizWidth", "namePlacement", "sizing")),
    },
    "table": {
        "footer": ({"countRows": False, "reducer": [], "show": False},),
        "frameIndex": (0,),
        "showHeader": (True,),
        "showTypeIcons": (False,),
        "sortBy": _ANY,
        "cellHeight": _ANY,
    },
    "xychart": {**_LEGEND, "mapping": ("auto",), "series": _ANY},
    "barchart": {
        **_LEGEND,
        "orientation": ("horizontal",),
        "stacking": ("normal",),
        "showValue": ("never",),
        "xField": _ANY,
        **dict.fromkeys(("barRadius", "barWidth", "fullHighlight", "groupWidth")),
        **dict.fromkeys(("xTickLabelMaxLength", "xTickLabelRotation", "xTickLabelSpacing")),
    },
    "state-timeline": {
        **_LEGEND,
        "mergeValues": (True,),
        "showValue": ("never",),
        **dict.fromkeys(("alignValue", "perPage", "rowHeight")),
    },
}
_DEFAULTS: _Allowed = dict.fromkeys(("color", "custom", "decimals", "mappings", "max", "min", "thresholds", "unit"))
_CUSTOM: _Allowed = {
    "stacking": ({"group": "A", "mode": "normal"}, {"group": "A", "mode": "none"}),
    "thresholdsStyle": ({"mode": "dashed"}, {"mode": "off"}),
    "show": ("points", "points+lines"),
    "showPoints": ("never",),
    "gradientMode": ("none",),
    **dict.fromkeys(("fillOpacity", "lineWidth", "align", "inspect")),
}
UNITS = ("none", "percentunit", "short", "cps", "s", "decbytes", "bps", "pps")
"""Units that panels use; others are a suffix of ours, as in "suffix:×"."""
_MATCHERS = ("byName", "byRegexp", "byFrameRefID")
_PROPERTIES = (
    *("color", "unit", "decimals", "mappings", "thresholds", "links"),
    *("custom.lineStyle", "custom.axisLabel", "custom.cellOptions", "custom.width"),
)


def require_known(panel: Mapping[str, Any]) -> None:
    """Raises:
    InputError: what is not known here of a panel's JSON, all of it.
    """
    raise_input_faults(f"{panel.get('title')}: {fault}" for fault in _strange(panel))


def _strange(panel: Mapping[str, Any]) -> Iterator[str]:
    kind = str(panel.get("type"))
    if kind not in _OPTIONS:
        yield f"no panel of type {kind} is known here"
        return
    yield from _beyond(panel, _PANEL, "panel")
    yield from _beyond(panel.get("options") or {}, _OPTIONS[kind], f"{kind} options")
    for target in panel.get("targets") or ():
        yield from _beyond(target, _TARGET, f"query {target.get('refId')}")
    config = panel.get("fieldConfig") or {}
    defaults = config.get("defaults") or {}
    yield from _beyond(defaults, _DEFAULTS, "field defaults")
    yield from _beyond(defaults.get("custom") or {}, _CUSTOM, "field defaults, custom")
    yield from _mappings(defaults.get("mappings") or ())
    yield from _units(defaults.get("unit"))
    for override in config.get("overrides") or ():
        if override["matcher"]["id"] not in _MATCHERS:
            yield f"override by {override['matcher']['id']} is not known here"
        for found in override["properties"]:
            if found["id"] not in _PROPERTIES:
                yield f"override of {found['id']} is not known here"
            elif found["id"] == "mappings":
                yield from _mappings(found["value"])
            elif found["id"] == "unit":
                yield from _units(found["value"])


def _units(unit: str | None) -> Iterator[str]:
    if unit is not None and unit not in UNITS and not unit.startswith("suffix:"):
        yield f"unit {unit}: not known here, only {', '.join(UNITS)} and suffix:…"


def _mappings(mappings: Any) -> Iterator[str]:
    yield from (f"mapping of type {one['type']} is not known here" for one in mappings if one["type"] != "value")


def _beyond(found: Mapping[str, Any], allowed: _Allowed, where: str) -> Iterator[str]:
    for key, value in found.items():
        values = allowed.get(key, ())
        if values is not _ANY and value not in values:
            yield f"{where}: {key}={value!r} is not known here"
