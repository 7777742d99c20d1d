"""A run waits for whoever scrapes it until its last values have been read, and for nobody else."""

from __future__ import annotations

import itertools
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import Interrupted, RunError
from testbed.core.metric_samples import Totals
from testbed.core.metrics import METRICS
from testbed.core.rundir import RunDir
from testbed.orchestrator import run as run_module
from testbed.orchestrator.display import Display
from testbed.orchestrator.observation.exporter import Exporter, bind
from testbed.orchestrator.observation.scrapes import ENOUGH, Scrapes
from tests.unit.analysis.archived import ask, require_prometheus, served
from tests.unit.analysis.synthetic import RUN_ID, make_spec

INTERVAL_S = 0.2
SCRAPER = {"X-Prometheus-Scrape-Timeout-Seconds": "1"}


def valid() -> tuple[str, list[str]]:
    return "valid", []


def seconds(call: Callable[[], object]) -> float:
    began_s = time.monotonic()
    call()
    return time.monotonic() - began_s


@contextmanager
def every(interval_s: float, call: Callable[[], object]) -> Iterator[None]:
    end = threading.Event()

    def work() -> None:
        while not end.wait(interval_s):
            call()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def test_nobody_is_waited_for_where_nobody_scrapes() -> None:
    scrapes = Scrapes()
    assert seconds(lambda: scrapes.wait_for(5)) < 0.1
    scrapes.add(3)
    assert seconds(lambda: scrapes.wait_for(5)) < 0.1, "one who came once is not expected again"


def test_two_scrapes_of_the_last_values_are_waited_for() -> None:
    scrapes = Scrapes()
    events = itertools.count()
    last = 0

    def scrape() -> None:
        nonlocal last
        last = next(events)
        scrapes.add(last)

    with every(INTERVAL_S, scrape):
        time.sleep(5 * INTERVAL_S)
        wanted = last + 1
        scrapes.wait_for(wanted)
        assert last >= wanted + ENOUGH - 1


def test_what_has_been_read_is_not_waited_for() -> None:
    scrapes = Scrapes()
    with every(INTERVAL_S, lambda: scrapes.add(5)):
        time.sleep(4 * INTERVAL_S)
        assert seconds(lambda: scrapes.wait_for(5)) < 0.1


def test_a_scraper_that_goes_is_not_waited_for_long() -> None:
    scrapes = Scrapes()
    with every(INTERVAL_S, lambda: scrapes.add(1)):
        time.sleep(4 * INTERVAL_S)
    waited_s = seconds(lambda: scrapes.wait_for(2))
    assert waited_s < 20 * INTERVAL_S
    time.sleep(20 * INTERVAL_S)
    assert seconds(lambda: scrapes.wait_for(2)) < 0.1


@pytest.fixture
def exporter() -> Iterator[tuple[Exporter, Totals, str]]:
    totals = Totals()
    made = Exporter(totals, make_spec(), RUN_ID, valid)
    listening = bind(0)
    made.serve(listening)
    yield made, totals, f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"
    made.close()


def get(url: str, headers: dict[str, str]) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5) as response:
        response.read()


@pytest.mark.parametrize(("headers", "waits"), [(SCRAPER, True), ({}, False)])
def test_only_who_says_that_it_scrapes_is_waited_for(
    exporter: tuple[Exporter, Totals, str], headers: dict[str, str], waits: bool
) -> None:
    made, totals, url = exporter
    with every(INTERVAL_S, lambda: get(url, headers)):
        time.sleep(6 * INTERVAL_S)
        totals.add({"event": "host", "cpu_idle_ratio": 0.5})
        assert (seconds(made.linger) > INTERVAL_S / 2) == waits


@pytest.mark.timeout(120)
def test_a_run_of_ten_seconds_loses_no_sample(tmp_path: Path) -> None:
    """A real Prometheus, scraping once a second, ends with the very values that the run ended with."""
    require_prometheus()
    spec, totals, listening = make_spec(), Totals(), bind(0)
    target = f"127.0.0.1:{listening.getsockname()[1]}"
    config = (
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        "scrape_configs:\n"
        f"  - {{job_name: longhaul, honor_labels: true, static_configs: [{{targets: ['{target}']}}]}}\n"
    )
    with served(tmp_path / "data", tmp_path, config) as server:
        while not ask(server, "up"):  # a server that was just started waits some seconds before it scrapes at all
            time.sleep(0.1)
        exporter = Exporter(totals, spec, RUN_ID, valid)
        exporter.serve(listening)
        link = spec.topology.wan_links[0]
        end_s = time.monotonic() + 10
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
            if time.monotonic() > end_s:
                break
            time.sleep(0.05)
        assert seconds(exporter.linger) < 5
        exporter.close()
        wanted = {(METRICS[name].series, *labels): value for (name, labels), value in totals.snapshot().items()}
        assert len(wanted) > 8
        found = last_values(ask(server, 'last_over_time({__name__=~"longhaul_.*"}[5m])'))
        assert {key: found.get(key) for key in wanted} == wanted
        (seen,) = ask(server, 'count_over_time(longhaul_train_steps_total{rank="0"}[5m])')
        assert float(seen["value"][1]) >= 10


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


class Conductor:
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

    monkeypatch.setattr(run_module, "Conductor", Conductor)
    monkeypatch.setattr(Conductor, "end", end)
    monkeypatch.setattr(Exporter, "linger", linger)
    spec = make_spec()
    directory = RunDir.create(tmp_path, RUN_ID)
    with bind(0) as metrics, Display(spec, quiet=True) as display:
        run = run_module.Run(directory, spec, display, metrics, shared=True)
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
