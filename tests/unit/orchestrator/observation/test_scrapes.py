"""A run waits for whoever scrapes it until its last values have been read, and for nobody else."""

from __future__ import annotations

import itertools
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import Interrupted, RunError
from testbed.core.record.metric_samples import Totals
from testbed.core.record.metrics import METRICS
from testbed.core.record.run_directory import RunDir, write_json
from testbed.orchestrator.dashboard.prometheus_server import Server
from testbed.orchestrator.machine.signals import Stop
from testbed.orchestrator.observation import exporter as exporter_module
from testbed.orchestrator.observation.exporter import ENOUGH, Exporter, Scrapes, bind
from testbed.orchestrator.run import __main__ as run_module
from testbed.orchestrator.terminal.display import Display
from tests.unit.analysis.archived import ask, require_prometheus, served
from tests.unit.analysis.synthetic import RUN_ID, make_spec
from tests.unit.fake_time import FakeTime

INTERVAL_S = 0.25
HANG_S = 100.0
"""After which what has not happened hangs; nothing here takes a second."""
SCRAPER = {"X-Prometheus-Scrape-Timeout-Seconds": "1"}


def valid() -> tuple[str, list[str]]:
    return "valid", []


class Waiting(FakeTime):
    """In the place of the clock and the condition of `Scrapes`: while somebody waits, time passes and scrapes come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        monkeypatch.setattr(exporter_module, "time", self)
        self.scrapes = Scrapes()
        monkeypatch.setattr(self.scrapes, "_condition", self)
        self._scrape: Callable[[], object] | None = None
        self._next_s = 0.0

    def begin(self, scrape: Callable[[], object]) -> None:
        self._scrape, self._next_s = scrape, self.monotonic() + INTERVAL_S

    def end(self) -> None:
        self._scrape = None

    def wait(self, timeout: float) -> None:
        """Until the next scrape."""
        due_s = self.monotonic() + timeout if self._scrape is None else self._next_s
        left_s = due_s - self.monotonic()
        super().sleep(min(left_s, timeout))
        if self._scrape is not None and left_s <= timeout:
            self._next_s += INTERVAL_S
            self._scrape()

    def sleep(self, seconds: float) -> None:
        end_s = self.monotonic() + seconds
        while self.monotonic() < end_s:
            self.wait(end_s - self.monotonic())

    def seconds(self, events: int) -> float:
        """How long so many events are waited for."""
        began_s = self.monotonic()
        self.scrapes.wait_for(events)
        return self.monotonic() - began_s

    def notify_all(self) -> None:
        pass

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    return Waiting(monkeypatch)


def test_nobody_is_waited_for_where_nobody_scrapes(waiting: Waiting) -> None:
    assert waiting.seconds(5) == 0
    waiting.scrapes.add(3)
    assert waiting.seconds(5) == 0, "one who came once is not expected again"


def test_two_scrapes_of_the_last_values_are_waited_for(waiting: Waiting) -> None:
    events = itertools.count()
    waiting.begin(lambda: waiting.scrapes.add(next(events)))
    waiting.sleep(5 * INTERVAL_S)
    wanted = next(events) + 1
    assert waiting.seconds(wanted) == pytest.approx(ENOUGH * INTERVAL_S)
    assert next(events) == wanted + ENOUGH


def test_what_has_been_read_is_not_waited_for(waiting: Waiting) -> None:
    waiting.begin(lambda: waiting.scrapes.add(5))
    waiting.sleep(4 * INTERVAL_S)
    assert waiting.seconds(5) == 0


def test_a_scraper_that_goes_is_not_waited_for_long(waiting: Waiting) -> None:
    waiting.begin(lambda: waiting.scrapes.add(1))
    waiting.sleep(4 * INTERVAL_S)
    waiting.end()
    assert waiting.seconds(2) == pytest.approx((ENOUGH + 1) * INTERVAL_S)
    assert waiting.seconds(2) == 0


def test_a_scraper_that_comes_for_old_values_alone_is_given_up(waiting: Waiting) -> None:
    waiting.begin(lambda: waiting.scrapes.add(1))
    waiting.sleep(4 * INTERVAL_S)
    assert waiting.seconds(2) == pytest.approx((ENOUGH + 1) * INTERVAL_S)


def test_who_waits_is_woken_by_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    """In real time, of which it would wait for longer than this test does."""
    monkeypatch.setattr(Scrapes, "interval_s", lambda _: 2 * HANG_S)
    monkeypatch.setattr(exporter_module, "LONGEST_S", 2 * HANG_S)
    scrapes = Scrapes()
    thread = threading.Thread(target=scrapes.wait_for, args=(5,), daemon=True)
    thread.start()
    for _ in range(ENOUGH):
        assert thread.is_alive()
        scrapes.add(5)
    thread.join(HANG_S)
    assert not thread.is_alive()


@pytest.fixture
def exporter() -> Iterator[tuple[Exporter, Totals, str]]:
    totals = Totals()
    made = Exporter(totals, make_spec(), RUN_ID, valid, "c0de")
    listening = bind(0)
    made.serve(listening)
    yield made, totals, f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"
    made.close()


@pytest.mark.parametrize(("headers", "expected"), [(SCRAPER, True), ({}, False)])
def test_who_scrapes_says_so(
    exporter: tuple[Exporter, Totals, str], headers: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    def answer(self: Exporter, accept: str, send: Callable[[bytes, str], None], *, scraped: bool) -> None:
        told.append(scraped)
        send(b"", "text/plain")

    monkeypatch.setattr(Exporter, "answer", answer)
    request = urllib.request.Request(exporter[2], headers=headers)
    with urllib.request.urlopen(request, timeout=HANG_S) as response:
        response.read()
    assert told == [expected]


def test_only_who_says_that_it_scrapes_is_waited_for(
    exporter: tuple[Exporter, Totals, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the values after all events; one that comes while a page is made may be missing in it."""
    made, totals, _ = exporter
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(Scrapes, "add", lambda _, events: asked.append(("add", events)))
    monkeypatch.setattr(Scrapes, "wait_for", lambda _, events: asked.append(("wait_for", events)))
    event = {"event": "host", "cpu_idle_ratio": 0.5}
    totals.add(event)
    for scraped in (False, True):
        made.answer("", lambda page, kind: totals.add(event), scraped=scraped)
    made.linger()
    assert asked == [("add", 2), ("wait_for", 3)]


def scraped(server: Server) -> float:
    """How many scrapes of the run's first rank a Prometheus has kept."""
    seen = ask(server, 'count_over_time(longhaul_train_steps_total{rank="0"}[5m])')
    return float(seen[0]["value"][1]) if seen else 0.0


@pytest.mark.tier("all")
@pytest.mark.timeout(300)
def test_a_run_loses_no_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real Prometheus, scraping every two seconds, ends with the very values that the run ended with."""
    require_prometheus()
    # Two scrapes are waited for however late they come: when to give one up is tested above, in a time of its own.
    monkeypatch.setattr(Scrapes, "interval_s", lambda _: HANG_S)
    monkeypatch.setattr(exporter_module, "LONGEST_S", HANG_S)
    spec, totals, listening = make_spec(), Totals(), bind(0)
    target = f"127.0.0.1:{listening.getsockname()[1]}"
    config = (
        "global: {scrape_interval: 2s, scrape_timeout: 2s}\n"
        "scrape_configs:\n"
        f"  - {{job_name: longhaul, honor_labels: true, static_configs: [{{targets: ['{target}']}}]}}\n"
    )
    with served(tmp_path / "data", tmp_path, config) as server:
        exporter = Exporter(totals, spec, RUN_ID, valid, "c0de")
        exporter.serve(listening)
        link = spec.topology.wan_links[0]
        end_s = time.monotonic() + HANG_S
        for step in itertools.count(1):
            phases = {
                "phase_s": {"forward": 0.01},
                "payload_bytes": 1000,
                "samples": 32,
                "step_s": 0.05,
                "loss": 1 / step,
            }
            totals.add({"event": "step", "t_s": step / 20, "rank": 0, "step": step, **phases})
            sent = {"wire_bytes": 1234 * step, "packets": step, "drops": 0, "backlog_bytes": step % 7}
            totals.add({"event": "link", "name": link.name, "from": link.a, "to": link.b, **sent})
            if step % 10 == 0 and scraped(server) >= 3:
                break
            assert time.monotonic() < end_s, "Prometheus does not scrape"
            time.sleep(0.05)
        exporter.linger()
        exporter.close()
        wanted = {(METRICS[name].series, *labels): value for (name, labels), value in totals.snapshot().items()}
        assert len(wanted) > 8
        found = last_values(ask(server, 'last_over_time({__name__=~"longhaul_.*"}[5m])'))
        assert {key: found.get(key) for key in wanted} == wanted
        assert scraped(server) >= 3 + 1, "one of the two may have come too late for its own time limit"


def last_values(result: list[dict[str, Any]]) -> dict[tuple[Any, ...], float]:
    foreign = {"__name__", "run", "topo", "compressor", "instance", "job"}
    found = {}
    for series in result:
        name = series["metric"]["__name__"]
        metric = next(metric for metric in METRICS.values() if metric.series == name)
        assert set(series["metric"]) - foreign == set(metric.labels)
        labels = tuple((label, series["metric"][label]) for label in metric.labels)
        found[name, *labels] = float(series["value"][1])
    return found


class RunOrchestration:
    """Whose run ends as `end` says."""

    end: Exception | None = None

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def perform(self) -> None:
        if self.end is not None:
            raise self.end


@pytest.mark.parametrize(
    ("end", "lingers"), [(None, True), (RunError("a worker died"), True), (Interrupted("stopped"), False)]
)
def test_a_run_lingers_unless_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Exception | None, lingers: bool
) -> None:
    lingered = []

    def linger(exporter: Exporter) -> None:
        lingered.append(exporter)
        raise Interrupted("by a Ctrl-C meanwhile")  # which stops the waiting and is no fault of the run's

    monkeypatch.setattr(run_module, "RunOrchestration", RunOrchestration)
    monkeypatch.setattr(RunOrchestration, "end", end)
    monkeypatch.setattr(Exporter, "linger", linger)
    spec = make_spec()
    directory = RunDir.create(tmp_path, RUN_ID)
    write_json(directory.spec, {**spec.to_json(), "code_hash": "c0de"})
    with bind(0) as metrics, Display(spec, quiet=True) as display:
        run = run_module.Run(directory, spec, display, metrics, Stop(), shared=True)
        try:
            if end is None:
                run.perform()
            else:
                with pytest.raises(type(end), match=str(end)):
                    run.perform()
        finally:
            run._exporter.close()  # a run ends with its process, this test's goes on
    assert len(lingered) == int(lingers)
    last = json.loads(directory.events.read_text().splitlines()[-1])
    assert last["event"] == ("schedule" if end is None else "fault")
