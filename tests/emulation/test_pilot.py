"""`dilation=auto`: tried on the run before it begins, which changes nothing of the training, or made again."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulation.support import Longhaul, gone_within, wait_until

WORDS = ["topo=wan100m", "workload=sensors", "compressor=topk", "workers=2", "steps=6", "evaluate_every=3"]
STARTED_S, LONGEST_S = 240.0, 300.0
BUSY_LOAD = 2
"""Processes for each core, over five minutes, from which a machine may be too busy for a pilot to see a step."""


def trained(longhaul: Longhaul) -> dict[tuple[int, int], Any]:
    """(loss, payload) by rank and step."""
    return {
        (event["rank"], event["step"]): (event["loss"], event["payload_bytes"])
        for event in longhaul.run.read_events()
        if event["event"] == "step"
    }


def test_a_pilot_changes_nothing_of_what_is_trained(machine_lock: None, tmp_path: Path) -> None:
    """Losses and payloads are those of a run without one, digit for digit; and of its workers nothing is left."""
    piloted = Longhaul(tmp_path / "piloted", *WORDS, "dilation=auto")
    assert piloted.wait() in (0, 5), piloted.said
    gone_within(piloted.run.run_id)
    plain = Longhaul(tmp_path / "plain", *WORDS)
    assert plain.wait() in (0, 5), plain.said
    assert trained(piloted) == trained(plain)
    assert piloted.summary()["bytes"]["payload"] == plain.summary()["bytes"]["payload"]
    summary = piloted.summary()
    is_second = summary["attempts"] == 2  # made again, as on a busy machine: then the pilot is the first attempt's
    record = piloted.run.first_attempt if is_second else piloted.run.path
    events = map(json.loads, (record / "events.jsonl").read_text().splitlines())
    pilots = [event for event in events if event["event"] == "pilot"]
    network = json.loads((record / "network.json").read_text())
    is_unseen = "no step of all workers in time" in piloted.said  # of the last trial, which then has no event
    if not pilots:
        assert is_unseen
        assert os.getloadavg()[1] > BUSY_LOAD * (os.cpu_count() or 1), "only a busy machine's pilot sees none"
    elif is_unseen:
        assert pilots[-1]["next_dilation"] < network["dilation"]
    else:
        assert pilots[-1]["next_dilation"] == network["dilation"]
    assert all(event["t_s"] < 0 for event in pilots)
    assert summary["tried_dilations"] == ([] if is_second else [event["dilation"] for event in pilots])
    assert plain.summary()["tried_dilations"] == []
    assert json.loads(piloted.run.network.read_text())["dilation"] == summary["dilation"]
    assert all(link["measurements"] for link in network["links"] if link["wan"])


def _burn(until_s: float) -> None:
    os.nice(-20)
    while time.monotonic() < until_s:
        pass


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Every core is taken by somebody who goes before the workers."""
    until_s = time.monotonic() + LONGEST_S
    burners = [
        multiprocessing.get_context("fork").Process(target=_burn, args=(until_s,), daemon=True)
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        for burner in burners:
            burner.start()
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.join()


@pytest.mark.tier("slow")
def test_a_run_that_came_out_invalid_for_want_of_cores_is_made_once_more(machine_lock: None, tmp_path: Path) -> None:
    longhaul = Longhaul(tmp_path / "runs", "topo=lan", "workers=2", "workload=digits", "steps=120", "dilation=auto")
    wait_until(lambda: "training" in longhaul.said, STARTED_S, "training")
    with busy_cores():
        wait_until(lambda: "begun again at dilation" in longhaul.said, STARTED_S, "the second attempt")
    assert longhaul.wait() in (0, 5), longhaul.said
    gone_within(longhaul.run.run_id)
    summary = longhaul.summary()
    assert summary["attempts"] == 2
    assert summary["tried_dilations"] == []
    first = json.loads((longhaul.run.first_attempt / "network.json").read_text())
    assert first["dilation"] < summary["dilation"]
    assert summary["steps"] == 120
    assert (longhaul.run.first_attempt / "events.jsonl").stat().st_size > 0
    assert len(list(longhaul.runs.iterdir())) == 1
