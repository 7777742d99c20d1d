"""Questions to a Prometheus on loopback, each with a time limit."""

from __future__ import annotations

import http.client
import ipaddress
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.core.errors import InputError, RunError

TIME_LIMIT_S = 30.0
_MAX_BYTES = 256 * 2**20


class QueryError(RunError):
    """Prometheus refused a query, or gave no answer to it."""


@dataclass(frozen=True)
class Series:
    """A series of an answer: its labels, and its samples in the order of time."""

    labels: Mapping[str, str]
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class PrometheusClient:
    """One server.

    Attributes:
        url: `http://127.0.0.1:9091`; of this machine alone, since what is asked of it is not encrypted.
    """

    url: str
    time_limit_s: float = TIME_LIMIT_S

    def __post_init__(self) -> None:
        """Raises:
        InputError: not an address on loopback.
        """
        try:
            parts = urllib.parse.urlsplit(self.url)
            is_ours = parts.scheme == "http" and _is_loopback(parts.hostname or "") and parts.port is not None
        except ValueError:
            is_ours = False
        if not is_ours:
            raise InputError(f"--prometheus {self.url}: must be on loopback with its port, as http://127.0.0.1:9091")

    def at(self, expr: str, time_s: float) -> list[Series]:
        """An instant query; by labels, since Prometheus has no order in them. A scalar is a series without labels."""
        found = self._ask("query", {"query": expr, "time": f"{time_s:.3f}"})
        if found["resultType"] == "scalar":
            return [Series({}, [_point(found["result"])])]
        series = [Series(_labels(one), [_point(one["value"])]) for one in found["result"]]
        return sorted(series, key=lambda one: sorted(one.labels.items()))

    def over(self, expr: str, begin_s: float, end_s: float, step_s: float) -> list[Series]:
        """A range query."""
        limits = {"start": f"{begin_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
        found = self._ask("query_range", {"query": expr, **limits})
        return [Series(_labels(one), [_point(pair) for pair in one["values"]]) for one in found["result"]]

    def label_values(self, label: str, selector: str, begin_s: float, end_s: float) -> list[str]:
        limits = {"start": f"{begin_s:.3f}", "end": f"{end_s:.3f}", "match[]": selector}
        return [str(value) for value in self._ask(f"label/{label}/values", limits, by_get=True)]

    def _ask(self, what: str, asked: Mapping[str, str], *, by_get: bool = False) -> Any:
        """By POST where that is allowed: the ids of 300 runs are too long for an address.

        Raises:
            QueryError: with Prometheus' own words, if it gave any.
        """
        form = urllib.parse.urlencode({**asked, "timeout": f"{self.time_limit_s:g}s"})
        url = f"{self.url.rstrip('/')}/api/v1/{what}"
        request = urllib.request.Request(f"{url}?{form}") if by_get else urllib.request.Request(url, form.encode())
        # no proxy of the environment's is asked the way to loopback
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=self.time_limit_s) as response:
                answer = json.loads(response.read(_MAX_BYTES))
        except urllib.error.HTTPError as error:
            raise QueryError(f"{_words(error)}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise QueryError(f"{self.url}: {error}: is it running, and a Prometheus?") from error
        if answer.get("status") != "success":
            raise QueryError(str(answer.get("error") or "no success, and no word why"))
        return answer["data"]


def _is_loopback(host: str) -> bool:
    return host == "localhost" or ipaddress.ip_address(host).is_loopback


def _labels(one: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in one["metric"].items()}


def _point(pair: Any) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])


def _words(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(65536))["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"HTTP status {error.code}"
