"""A Prometheus that scrapes a run ends with the values that the run ended with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.core.record.metric_samples import Totals
from testbed.core.record.metrics import METRICS
from tests.emulation.support import START_TIMEOUT_S, Longhaul, wait_until
from tests.unit.analysis.archived import ask, require_prometheus, served

ADDRESS = re.compile(r"http://(127\.0\.0\.1:\d+)/metrics")


@pytest.mark.timeout(600)
def test_the_last_scrape_holds_what_the_record_ends_with(machine_lock: None, tmp_path: Path) -> None:
    require_prometheus()
    longhaul = Longhaul(tmp_path / "runs", "topo=wan1g", "workload=sensors", "steps=20")
    wait_until(lambda: ADDRESS.search(longhaul.said) is not None, START_TIMEOUT_S, "the address of /metrics")
    target = ADDRESS.findall(longhaul.said)[0]
    config = (
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        "scrape_configs:\n"
        f"  - {{job_name: longhaul, honor_labels: true, static_configs: [{{targets: ['{target}']}}]}}\n"
    )
    with served(tmp_path / "data", tmp_path, config) as server:
        assert longhaul.wait() in (0, 5), longhaul.said
        matcher = '{run="' + longhaul.run.run_id + '"}'
        result = ask(server, f"last_over_time({matcher}[15m])")
    own = ("run", "topo", "compressor", "instance", "job")
    found = {
        frozenset((key, text) for key, text in series["metric"].items() if key not in own): float(series["value"][1])
        for series in result
    }
    totals = Totals()
    for event in longhaul.run.read_events():
        totals.add(event)
    wanted = {
        frozenset({("__name__", METRICS[name].series), *labels}): value
        for (name, labels), value in totals.snapshot().items()
    }
    assert len(wanted) > 100
    assert {key: found.get(key) for key in wanted} == wanted
