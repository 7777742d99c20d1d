"""What observing a run costs: processor seconds, and what it does to the steps.

One training of eight workers on wan1g, observed in every other five seconds only: samples of all nodes and links once a
second, and a scrape a second, against neither. Links are probed throughout, which the verdict rests on.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.common import sources, whole_run
from experiments.common.benchmark import Point
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.machine.cleanup import remove_leftovers
from testbed.orchestrator.machine.clone import CLONE, environment
from testbed.orchestrator.machine.signals import Stop
from testbed.orchestrator.observation.collector import Collector
from testbed.orchestrator.observation.exporter import bind
from testbed.orchestrator.run import orchestration
from testbed.orchestrator.run.__main__ import Run
from testbed.orchestrator.run.run_command import checked_spec
from testbed.orchestrator.terminal.display import Display

WORKERS = 8
REPEATS = 4
WINDOW_S = 5.0
_STEPS, _SECONDS = 90, 115
_SCRAPED = {"X-Prometheus-Scrape-Timeout-Seconds": "1"}
"""By which a run knows that it is scraped."""


def points(*, quick: bool) -> list[Point]:
    return [Point({"repeat": repeat}, _SECONDS) for repeat in range(1 if quick else REPEATS)]


def is_observed(monotonic_s: float) -> bool:
    """By the clock that all processes of a machine share."""
    return int(monotonic_s / WINDOW_S) % 2 == 0


class Pausing(Collector):
    """The collector, with pauses; its last sample is taken as ever, since totals rest on it."""

    def _sample(self) -> None:
        if is_observed(time.monotonic()) or self._stop.is_set():
            super()._sample()


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_whole_runs(
        *(f"testbed.orchestrator.observation.{name}" for name in ("collector", "recorder", "exporter"))
    )


def measure(repeat: int) -> dict[str, Any]:
    del repeat
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as folder, bind(0) as metrics:
        overrides = ["topo=wan1g", f"workers={WORKERS}", f"steps={_STEPS}", "metrics_port=0"]
        spec = checked_spec(resolve(overrides), Path(folder))
        run = whole_run.directory(Path(folder), spec, "observation")
        run.runtime.mkdir(mode=0o700)
        orchestration.Collector = Pausing  # type: ignore[misc]  # in this process alone, which measures this point
        try:
            with Display(spec, quiet=True) as display, _scraper(metrics.getsockname()[1]):
                observed = Run(run, spec, display, metrics, Stop(), shared=True)
                observed.perform()
        finally:
            left = remove_leftovers(run.run_id)
        assert observed.clock.t0_s is not None
        events = list(run.read_events())
    return {
        "dilation": spec.dilation,
        "left": len(left),
        **_cost(events),
        "ratios": ratios(_windows(events, observed.clock.t0_s, spec.dilation)),
    }


def _cost(events: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of one sample, which at one a second is the share of a core; and of all, while half of the time was observed."""
    last = [event for event in events if event["event"] == "host"][-1]
    samples = sum(event["event"] == "host" for event in events)
    steps = [event for event in events if event["event"] == "step"]
    return {
        "samples": samples,
        "collector_s_per_sample": last["collector_cpu_s"] / samples,
        "observer_cpu_s": last["observer_cpu_s"],
        "step_s": statistics.median(event["step_s"] for event in steps),
    }


def _windows(events: Sequence[dict[str, Any]], t0_s: float, k: float) -> dict[int, list[float]]:
    """Lengths of the steps, the mean over ranks, that lie within one window each, by the window's number."""
    ends: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["event"] == "step" and event["step"] > 1:  # connections warm up in the first
            ends[event["step"]].append((event["t_s"], event["step_s"]))
    windows: dict[int, list[float]] = defaultdict(list)
    for of_ranks in ends.values():
        end_s = t0_s + k * max(t_s for t_s, _ in of_ranks)
        begin_s = t0_s + k * min(t_s - step_s for t_s, step_s in of_ranks)
        if int(begin_s / WINDOW_S) == int(end_s / WINDOW_S):
            windows[int(end_s / WINDOW_S)].append(statistics.fmean(step_s for _, step_s in of_ranks))
    return windows


def ratios(windows: dict[int, list[float]]) -> list[float]:
    """Mean step of each observed window over that of the unobserved one after it; 1.01: one per cent longer."""
    means = {number: statistics.fmean(lengths) for number, lengths in windows.items()}
    return [means[number] / means[number + 1] for number in sorted(means) if number % 2 == 0 and number + 1 in means]


@contextlib.contextmanager
def _scraper(port: int) -> Iterator[None]:
    """A process of its own, as a Prometheus is."""
    command = [sys.executable, "-m", "experiments.benchmarks.observation.measure", f"http://127.0.0.1:{port}/metrics"]
    process = subprocess.Popen(command, cwd=CLONE, env=environment())
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _scrape(url: str) -> None:
    """Once a second while the run is observed, until it is killed."""
    request = urllib.request.Request(url, headers=_SCRAPED)
    for due_s in itertools.count(math.ceil(time.monotonic())):
        time.sleep(max(0.0, due_s - time.monotonic()))
        if is_observed(time.monotonic()):
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=5) as answer:
                answer.read()


if __name__ == "__main__":
    _scrape(sys.argv[1])
