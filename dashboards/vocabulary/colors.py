"""Colours: a method has the one it has in reports, so that nobody learns two."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.models import dashboard

from testbed.analysis.style import method_style

VERDICTS = {"valid": "green", "suspect": "orange", "invalid": "red"}
ASKED = "#8e8e8e"
BY_RUN = ("{{run}}", "{{run}} {{name}}")
"""Legends of series of which a run has one, and which therefore take their method's colour."""
_DARK = {"#000000": "text"}
"""Black on Grafana's dark background would be nothing: its own colour of text, which is black on the light one."""


def of_methods() -> Iterator[tuple[dashboard.MatcherConfig, list[dashboard.DynamicConfigValue]]]:
    """Overrides for series whose name is a compressor's, begins with it, or is the id of one of its runs."""
    names: dict[str, list[str]] = {}
    for name in sorted(method_style._PLACES):
        names.setdefault(method_style.plot_style_of(name).color, []).append(name)
    for shade, alike in sorted(names.items()):
        pattern = rf"/(?:^|[ -])(?:{'|'.join(alike)})(?:-[0-9a-f]{{8}})?(?: |$)/"
        fixed = {"fixedColor": _DARK.get(shade, shade), "mode": "fixed"}
        yield (
            dashboard.MatcherConfig(id_val="byRegexp", options=pattern),
            [dashboard.DynamicConfigValue(id_val="color", value=fixed)],
        )
