"""What a verdict does not rest on, since a kernel or a shaper cannot tell it. It changes no grade."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from testbed.orchestrator.machine.rights import ROOTLESS

_RANDOM = ("jitter_s", "loss_ratio", "duplicate_ratio", "reorder_ratio")
_FIGURES = {
    ("host", "cpu_pressure_s"): "cpu pressure (kernel without PSI)",
    ("host", "softnet_dropped"): "drops of the processors' backlogs (no /proc/net/softnet_stat)",
    ("node", "throttled_s"): "throttling of the nodes (cgroups without a cpu controller)",
    ("delay_line", "late_p99_s"): "lateness of the delays (netem tells none)",
}
"""By event and key: what is missing where that is null in all of a run."""

_DRAWN = "drawn values have the texture of other models"
_UNLIMITED = "whether nodes kept to their share of memory and cores (rootless: nothing limits them)"


class Unknowns:
    """Fed the events of a record."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], bool] = {}
        """Of figures whose events came: whether they were ever there."""
        self._is_rootless = False
        self._assumed: list[str] = []
        """Codecs whose sizes depend on values that were drawn."""

    def add(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "schedule" and event["what"] == ROOTLESS:
            self._is_rootless = True
        if kind == "drawn_changes":
            self._assumed = event["assumed"]
        if kind == "delay_line" and not event["packets"]:
            return  # of no packet there is no lateness
        for key in _FIGURES:
            if key[0] == kind:
                self._known[key] = self._known.get(key, False) or event.get(key[1]) is not None

    def texts(self) -> list[str]:
        texts = [text for key, text in _FIGURES.items() if self._known.get(key) is False]
        if self._assumed:
            texts.append(f"how small {', '.join(self._assumed)} makes what this model would send (assumed: {_DRAWN})")
        return [*texts, _UNLIMITED] if self._is_rootless else texts


def unseeded(spec: dict[str, Any], network: dict[str, Any]) -> Iterator[str]:
    """Of a run's `spec.json` and `network.json`: chance that a repetition would not repeat."""
    links = network.get("links") or ()
    may_draw = bool(spec.get("events")) or any((link.get("asked") or {}).get(key) for link in links for key in _RANDOM)
    if may_draw and any((link.get("read_back") or {}).get("seeded") is False for link in links):
        yield "whether a repetition loses and delays the same packets (losses and jitter are not seeded)"


def of_device(provenance: dict[str, Any]) -> Iterator[str]:
    """Yield what a run's `provenance.json` says is not known of the times of the emulated device."""
    profile = provenance.get("device_profile")
    yield from map(str, (profile.get("unknowns") or ()) if isinstance(profile, dict) else ())
