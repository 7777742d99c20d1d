"""Serve a run's current figures to Prometheus on loopback.

The process that observes a run lives in network namespaces of its own, out of reach of the user's Prometheus. A socket
belongs to the namespace it was made in, so `bind` is called before the move and `Exporter.serve` takes what it made.
"""

from __future__ import annotations

import errno
import itertools
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from testbed.core.errors import InputError
from testbed.core.record.metric_samples import About, Totals, constant_samples, verdict_samples
from testbed.core.record.metrics import FIRST_STEP_COUNTERS, METRICS, Labels, run_labels
from testbed.core.spec.run_spec import RunSpec

# Who scrapes a run, how often, and what it has got: a run ends no sooner than its last values have been read.

ENOUGH = 2
"""Scrapes of the last values: one may come too late for its own time limit, and then Prometheus keeps nothing of it."""
LONGEST_S = 10.0
"""Whoever scrapes more seldom than every five seconds cannot ask a run to wait for two of them."""
_KEPT = 8


class Scrapes:
    """The last few. Any thread may add, another wait."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._last: deque[tuple[float, int]] = deque(maxlen=_KEPT)
        """When, and how many events the values were after."""

    def add(self, events: int) -> None:
        """One was answered with the values as they were after so many events."""
        with self._condition:
            self._last.append((time.monotonic(), events))
            self._condition.notify_all()

    def interval_s(self) -> float | None:
        """The longest of the last; None where nobody scrapes, or no longer."""
        times = [at_s for at_s, _ in self._last]
        longest_s = max((after - before for before, after in itertools.pairwise(times)), default=None)
        if longest_s is None or time.monotonic() - times[-1] > ENOUGH * longest_s:
            return None
        return longest_s

    def wait_for(self, events: int) -> None:
        """Return when the values after so many events were read twice; at once where nobody scrapes."""
        with self._condition:
            interval_s = self.interval_s()
            if interval_s is None:
                return
            deadline_s = time.monotonic() + min(LONGEST_S, (ENOUGH + 1) * interval_s)
            while sum(got >= events for _, got in self._last) < ENOUGH:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return
                self._condition.wait(left_s)


LOOPBACK = "127.0.0.1"
_LIVE_VERDICT = "unknown"
"""A label of `longhaul_run_info` must not change while the run lasts: `longhaul_verdict` says how it stands."""
Verdict = tuple[str, list[str]]
"""With its reasons."""
_SCRAPER = "X-Prometheus-Scrape-Timeout-Seconds"
"""A header that Prometheus and its kin send; a person who looks at the page does not."""


def bind(port: int) -> socket.socket:
    """A listening socket on loopback; port 0 takes a free one.

    Raises:
        InputError: the port is taken or may not be used.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # A port whose last connections are still in TIME_WAIT is free for us; one that somebody listens on is not.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
        listening.listen(16)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            found = "in use by another process"
        elif error.errno == errno.EACCES:
            found = "only root may use it"
        else:
            raise
        raise InputError(f"metrics_port={port}: {found}; choose another, or 0 for any free one") from error
    return listening


class Exporter(Collector):
    """Every metric of `core.record.metrics`, as `totals` stands when it is asked.

    `start_unix_s` is set when the first step begins; `verdict` says how the verdict stands.
    """

    def __init__(
        self, totals: Totals, spec: RunSpec, run_id: str, verdict: Callable[[], Verdict], code_hash: str
    ) -> None:
        # Backfilled archives have no `_created` series either; the explicit 0 of every counter serves instead.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.start_unix_s: float | None = None
        self._totals = totals
        self._spec = spec
        self._verdict, self._code_hash = verdict, code_hash
        self._common = run_labels(run_id, spec.topo, spec.compressor.name)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._server: _Server | None = None
        self._scrapes = Scrapes()

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing: the registry need not collect once to learn names."""
        return []

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        values = dict.fromkeys(_known_series(self._spec), 0.0)
        about = About("emulated", _LIVE_VERDICT, self._code_hash, self.start_unix_s)
        for name, labels, value in constant_samples(self._spec, about):
            values[name, labels] = value
        verdict, reasons = self._verdict()
        for name, labels, value in verdict_samples(verdict, len(reasons)):
            values[name, labels] = value
        values.update(self._totals.snapshot())
        common_names = [key for key, _ in self._common]
        common_values = [value for _, value in self._common]
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for name, metric in METRICS.items():
            family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            families[name] = family(name, metric.help, labels=[*common_names, *metric.labels])
        for (name, labels), value in sorted(values.items()):
            families[name].add_metric([*common_values, *(text for _, text in labels)], value)
        yield from families.values()

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The page and its content type: Prometheus text, or OpenMetrics where `accept` names it."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def answer(self, accept: str, send: Callable[[bytes, str], None], *, scraped: bool) -> None:
        """Send the page; take note of it if it is `scraped`."""
        events = self._totals.events  # before the page: what comes meanwhile may be missing in it
        send(*self.exposition(accept))
        if scraped:
            self._scrapes.add(events)

    def linger(self) -> None:
        """When all events are in: return once whoever scrapes has read the last values; at once where nobody does."""
        self._scrapes.wait_for(self._totals.events)

    def serve(self, listening: socket.socket) -> None:
        """Answer GET /metrics on `listening` from a daemon thread until `close`, which closes the socket too."""
        self._server = _Server(listening, self)
        threading.Thread(target=self._server.serve_forever, name="exporter", daemon=True).start()

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def _known_series(spec: RunSpec) -> Iterator[tuple[str, Labels]]:
    """Counters of ranks and links, which are 0 before anything happened: PromQL handles a missing series badly."""
    ranks: list[Labels] = [(("rank", str(rank)),) for rank in range(spec.workers)]
    directions: list[Labels] = [
        (("link", link.name), ("source", source), ("target", target))
        for link in spec.topology.links
        for source, target, _ in link.directions()
    ]
    for name in FIRST_STEP_COUNTERS:
        labels = METRICS[name].labels
        for series in {("rank",): ranks, ("link", "source", "target"): directions}.get(labels, ()):
            yield name, series


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listening: socket.socket, exporter: Exporter) -> None:
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()  # never bound; the constructor makes one without asking
        self.socket = listening
        self.exporter = exporter

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up half-way is its own affair; anything else is a fault of ours and is shown."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10
    """Seconds after which a client that says nothing loses its thread."""

    def do_GET(self) -> None:
        if self.path.split("?", 1)[0] != "/metrics":
            self.send_error(404, "only /metrics is here")
            return
        accept, scraped = self.headers.get("Accept", ""), _SCRAPER in self.headers
        self.server.exporter.answer(accept, self._send, scraped=scraped)

    def _send(self, page: bytes, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a scrape a second would fill the terminal."""
