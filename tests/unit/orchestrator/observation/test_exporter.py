from __future__ import annotations

import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from testbed.core.errors import InputError
from testbed.core.record.metric_samples import Totals
from testbed.core.record.metrics import METRICS
from testbed.orchestrator.observation.exporter import Exporter, bind
from tests.unit.analysis.synthetic import RUN_ID, make_events, make_spec
from tests.waiting import HANG_S, in_background, joined

HOSTILE = 'top"k\\\n{}'
CODE = "c0de"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def valid() -> tuple[str, list[str]]:
    return "valid", []


@pytest.fixture
def exporter() -> Iterator[tuple[Exporter, str]]:
    spec = make_spec(HOSTILE)
    totals = Totals()
    for event in make_events(spec):
        totals.add(event)
    made = Exporter(totals, spec, RUN_ID, valid, CODE)
    made.start_unix_s = 1735787050.25
    listening = bind(0)
    made.serve(listening)
    yield made, f"http://127.0.0.1:{listening.getsockname()[1]}"
    made.close()


def get(url: str, accept: str = "") -> tuple[str, str]:
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=HANG_S) as response:
        return response.read().decode(), response.headers["Content-Type"]


def samples(families: Any) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_promtool_has_no_objection(exporter: tuple[Exporter, str]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    page, _ = get(exporter[1] + "/metrics")
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_every_metric_is_described_and_every_series_bears_the_run(exporter: tuple[Exporter, str]) -> None:
    page, content_type = get(exporter[1] + "/metrics")
    assert content_type.startswith("text/plain")
    for metric in METRICS.values():
        assert f"# HELP {metric.series} " in page
        assert f"# TYPE {metric.series} {metric.kind}" in page
    found = samples(parse_text(page))
    for _, labels in found:
        assert {("run", RUN_ID), ("topo", "wan"), ("compressor", HOSTILE)} <= labels
    assert not any(name.endswith("_created") for name, _ in found)


def test_values_are_those_of_the_totals(exporter: tuple[Exporter, str]) -> None:
    page, content_type = get(exporter[1] + "/metrics", OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    found = samples(parse_openmetrics(page))  # type: ignore[no-untyped-call]
    common = {("run", RUN_ID), ("topo", "wan"), ("compressor", HOSTILE)}
    direction = {("link", "oregon-virginia"), ("source", "virginia"), ("target", "oregon")}
    assert found["longhaul_payload_bytes_total", frozenset(common | {("rank", "3")})] == 60_000
    assert found["longhaul_link_transmit_bytes_total", frozenset(common | direction)] == 150_000
    assert found["longhaul_link_configured_bytes_per_second", frozenset(common | direction)] == 12.5e6
    assert found["longhaul_run_start_timestamp_seconds", frozenset(common)] == 1735787050.25
    told = {("workload", "digits"), ("strategy", "ddp"), ("workers", "4"), ("verdict", "unknown")}
    told |= {("device", "native"), ("seed", "0"), ("dilation", "1"), ("kind", "emulated")}
    (info,) = (dict(labels) for name, labels in found if name == "longhaul_run_info")
    assert told | common <= info.items() and info["parameters"] == "density=0.01"


def test_counters_are_there_before_anything_happened() -> None:
    spec = make_spec()
    page, _ = Exporter(Totals(), spec, RUN_ID, valid, CODE).exposition("")
    found = samples(parse_text(page.decode()))
    assert sum(name == "longhaul_train_steps_total" for name, _ in found) == 4
    assert sum(name == "longhaul_link_transmit_bytes_total" for name, _ in found) == 10
    assert found and all(value == 0 for (name, _), value in found.items() if name.endswith("_total"))


def test_what_a_script_s_hook_sends_is_served() -> None:
    totals = Totals()
    for rank, payload_bytes in ((0, 700), (0, 300), (1, 40)):
        totals.add({"event": "payload", "t_s": 1.0, "rank": rank, "payload_bytes": payload_bytes, "elements": 9})
    page, _ = Exporter(totals, make_spec(), RUN_ID, valid, CODE).exposition("")
    series = samples(parse_text(page.decode()))
    sent = {dict(labels)["rank"]: value for (name, labels), value in series.items() if "payload_bytes" in name}
    assert sent == {"0": 1000, "1": 40, "2": 0, "3": 0}


def test_the_verdict_is_served_as_it_stands() -> None:
    standing: list[tuple[str, list[str]]] = [("valid", []), ("invalid", ["a", "b"])]
    exporter = Exporter(Totals(), make_spec(), RUN_ID, lambda: standing[0], CODE)
    for expected in ({"valid": 1, "suspect": 0, "invalid": 0}, {"valid": 0, "suspect": 0, "invalid": 1}):
        series = samples(parse_text(exporter.exposition("")[0].decode()))
        found = {dict(labels)["verdict"]: value for (name, labels), value in series.items() if name.endswith("verdict")}
        assert found == expected
        (reasons,) = (value for (name, _), value in series.items() if name == "longhaul_verdict_reasons")
        assert reasons == len(standing.pop(0)[1])


def test_other_paths_are_refused(exporter: tuple[Exporter, str]) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(exporter[1] + "/etc/passwd")


def test_scrapes_and_events_may_come_at_once() -> None:
    spec = make_spec()
    totals = Totals()
    exporter = Exporter(totals, spec, RUN_ID, valid, CODE)
    events = list(make_events(spec))
    writer = in_background(lambda: [totals.add(event) for event in events], "of the events")
    while writer.is_alive():
        exporter.exposition("")
    joined(writer)
    found = samples(parse_text(exporter.exposition("")[0].decode()))
    assert sum(value for (name, _), value in found.items() if name == "longhaul_train_steps_total") == 240


def test_a_taken_port_is_named() -> None:
    with bind(0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError) as caught:
            bind(port)
    assert caught.value.faults == (
        f"metrics_port={port}: in use by another process; choose another, or 0 for any free one",
    )


def test_a_closed_exporter_frees_its_port(exporter: tuple[Exporter, str]) -> None:
    made, address = exporter
    get(address + "/metrics")
    made.close()
    bind(int(address.rsplit(":", 1)[1])).close()
