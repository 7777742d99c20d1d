"""Colours: a compressor has the one that it has in figures of one strategy, so that nobody learns two."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.models import dashboard

from testbed.analysis.style import series_style

VERDICTS = {"valid": "green", "suspect": "orange", "invalid": "red"}
ASKED = "#8e8e8e"
BY_RUN = ("{{run}}", "{{run}} {{name}}")
"""Legends of series of which a run has one, and which therefore take their method's colour."""
_DARK = {"#000000": "text"}
"""Black on Grafana's dark background would be nothing: its own colour of text, which is black on the light one."""


def of_methods() -> Iterator[tuple[dashboard.MatcherConfig, list[dashboard.DynamicConfigValue]]]:
    """Overrides for series whose name is a compressor's, begins with it, or is the id or short name of its run."""
    names: dict[str, list[str]] = {}
    for name in sorted(series_style.COMPRESSORS):
        names.setdefault(series_style.color_among_compressors(name), []).append(name)
    for shade, alike in sorted(names.items()):
        pattern = rf"/(?:^|[ -])(?:{'|'.join(alike)})(?:-[0-9a-f]{{8}})?(?: |$)/"
        fixed = {"fixedColor": _DARK.get(shade, shade), "mode": "fixed"}
        yield (
            dashboard.MatcherConfig(id_val="byRegexp", options=pattern),
            [dashboard.DynamicConfigValue(id_val="color", value=fixed)],
        )
