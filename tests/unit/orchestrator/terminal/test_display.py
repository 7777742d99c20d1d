"""The display shows what it is given and never stands in the way of a run."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.core.record.summary import empty_summary
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.machine.clone import CLONE, environment
from testbed.orchestrator.terminal import display as display_module
from testbed.orchestrator.terminal.display import Display, panel
from testbed.orchestrator.terminal.progress import Progress
from testbed.orchestrator.terminal.summary_table import final_table
from tests.waiting import HANG_S


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said is written before a display ends, however long that takes on a busy machine."""
    monkeypatch.setattr(display_module, "END_LIMIT_S", HANG_S)


@pytest.fixture(scope="module")
def spec() -> RunSpec:
    return compose(["steps=10"])


def link_event(t_s: float, wire_bytes: int | None) -> dict[str, Any]:
    ends = {"name": "oregon-virginia", "from": "oregon", "to": "virginia", "wan": True}
    return {"event": "link", "t_s": t_s, **ends, "wire_bytes": wire_bytes}


WEIRD: list[Any] = [
    {},
    {"event": None},
    {"event": "step"},
    {"event": "step", "rank": None, "step": None, "loss": None, "t_s": None},
    {"event": "step", "rank": "x", "step": [], "loss": {}, "t_s": "later"},
    {"event": "step", "rank": 0, "step": float("inf"), "loss": float("nan"), "t_s": 1.0},
    {"event": "link", "name": "nowhere", "from": None, "to": 3},
    link_event(0.0, None),
    {"event": "rtt"},
    {"event": "rtt", "name": None, "rtt_s": None},
    {"event": "host", "cpu_idle_ratio": None},
    {"event": "evaluation", "name": None, "value": None},
    {"event": "fault"},
    {"event": "change"},
    {"event": "change", "what": "set", "name": 1, "from": [], "node": None, "before": 3, "after": "rate_bit_s"},
    {"event": "change", "what": "set", "name": "l", "from": "a", "before": {}, "after": {"rate_bit_s": "much"}},
    {"event": "comet"},
    [],
    None,
]


def render(thing: Any) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(thing)
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_no_event_can_break_it(spec: RunSpec, terminal: bool) -> None:
    out = io.StringIO()
    with Display(spec, console=Console(file=out, force_terminal=terminal, width=100)) as display:
        for event in WEIRD:
            display.event(event)
        display.verdict(None)
        display.verdict("suspect", ["CPU idle 1%"])
        time.sleep(2 * display_module.REFRESH_S)
    assert "suspect" in out.getvalue()


def test_a_verdict_is_said_again_when_it_is_about_something_else(spec: RunSpec) -> None:
    out = io.StringIO()
    with Display(spec, console=Console(file=out, width=200)) as display:
        display.verdict("suspect", ["messages waited for a core 9.9% of the time"])
        display.verdict("suspect", ["messages waited for a core 11.2% of the time"])
        display.verdict("suspect", ["messages waited for a core 11.3% of the time", "steal 3% of a core"])
        display.verdict("valid")
        display.verdict("suspect", ["node a-1: out of memory"])
        display.verdict("suspect", ["node a-2: out of memory"])
    said = [line for line in out.getvalue().splitlines() if "verdict so far: " in line]
    assert [line.count("%") for line in said] == [1, 2, 0, 0]
    assert ["9.9" in said[0], "11.3" in said[1], "a-1" in said[2], "a-2" in said[3]] == [True] * 4


def test_plain_lines_without_a_terminal(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display_module, "PLAIN_INTERVAL_S", 0.0)
    out = io.StringIO()
    with Display(spec, console=Console(file=out)) as display:
        display.stage("network: 4 nodes, 1 WAN link [not markup]")
        display.event({"event": "step", "rank": 0, "step": 3, "loss": 1.5, "t_s": 1.0})
        time.sleep(2 * display_module.REFRESH_S)
    text = out.getvalue()
    assert "network: 4 nodes, 1 WAN link [not markup]\n" in text
    assert "step 3/10" in text and "\x1b" not in text


def change(what: str = "set", **fields: Any) -> dict[str, Any]:
    return {"event": "change", "what": what, "name": None, "from": None, "to": None, "node": None, **fields}


def test_a_change_is_a_line(spec: RunSpec) -> None:
    out = io.StringIO()
    ends = {"name": "oregon-virginia", "from": "oregon", "to": "virginia"}
    with Display(spec, console=Console(file=out)) as display:
        before = {"rate_bit_s": 1e9, "delay_s": 0.0335, "loss_ratio": 0.0}
        after = {"rate_bit_s": 5e8, "delay_s": 0.05, "loss_ratio": 0.001}
        display.event(change(**ends, before=before, after=after))
        display.event(change("down", name="oregon-virginia", before={}, after={}))
        display.event(change("crash", node="oregon-0", before={}, after={}))
    text = out.getvalue()
    values = "rate 1 Gbit/s -> 500 Mbit/s, delay 33.5 ms -> 50 ms, loss 0% -> 0.1%"
    assert f"change: link oregon-virginia from oregon to virginia: {values}\n" in text
    assert "change: link oregon-virginia: down\n" in text
    assert "change: node oregon-0: crash\n" in text


def test_a_trace_does_not_flood_the_terminal(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [100.0]
    monkeypatch.setattr(display_module.time, "monotonic", lambda: clock_s[0])
    display = Display(spec, console=Console(file=io.StringIO()))  # not entered: nothing draws the lines away
    for bin_number in range(80):
        clock_s[0] = 100.0 + 0.1 * bin_number
        for source in ("oregon", "virginia"):
            rates = {"before": {"rate_bit_s": 1e9}, "after": {"rate_bit_s": 1e8 + bin_number}}
            display.event(change(name="oregon-virginia", **{"from": source}, **rates))
    assert len(display._lines) == 4, "two directions, 8 seconds"
    assert sum("(after 98 more changes)" in line for line in display._lines) == 1


def test_a_link_is_held_against_the_rate_that_is_asked_now(spec: RunSpec) -> None:
    progress = Progress(spec)
    progress.add({**link_event(1.0, 0), "rate_bit_s": 1e9})
    progress.add({**link_event(2.0, 62_500_000), "rate_bit_s": 5e8})
    assert progress.links[("oregon-virginia", "oregon", "virginia")].use_ratio == pytest.approx(1.0)


def test_quiet_prints_nothing(spec: RunSpec) -> None:
    out = io.StringIO()
    with Display(spec, quiet=True, console=Console(file=out, force_terminal=True)) as display:
        display.stage("network")
        display.event({"event": "fault", "rank": 0, "node": "n", "message": "m"})
        display.verdict("invalid", ["why"])
    assert out.getvalue() == ""


def test_progress_derives_rate_and_use_from_two_samples(spec: RunSpec) -> None:
    progress = Progress(spec)
    progress.add(link_event(1.0, 0))
    assert progress.wan_rate_bit_s is None
    progress.add(link_event(2.0, 62_500_000))
    assert progress.wan_rate_bit_s == pytest.approx(5e8)
    assert progress.links[("oregon-virginia", "oregon", "virginia")].use_ratio == pytest.approx(0.5)
    assert progress.wan_bytes == 62_500_000


def test_the_step_is_the_slowest_ranks_and_the_loss_the_mean(spec: RunSpec) -> None:
    progress = Progress(spec)
    for rank, step, loss in ((0, 5, 1.0), (1, 4, 3.0)):
        progress.add({"event": "step", "rank": rank, "step": step, "loss": loss, "step_s": 0.1, "t_s": 1.0})
    assert (progress.step, progress.loss) == (4, 2.0)


def test_the_panel_shows_all_of_it(spec: RunSpec) -> None:
    progress = Progress(spec, verdict="valid")
    progress.add({"event": "step", "rank": 0, "step": 5, "loss": 0.25, "step_s": 0.2, "t_s": 1.0})
    progress.add({"event": "evaluation", "name": "accuracy", "value": 0.9})
    progress.add({"event": "rtt", "name": "oregon-virginia", "rtt_s": 0.0671})
    progress.add({"event": "host", "cpu_idle_ratio": 0.37})
    progress.add(link_event(1.0, 0))
    progress.add(link_event(2.0, 125_000_000))
    text = render(panel(progress))
    for shown in ("5/10", "0.25", "accuracy", "0.9", "125 MB", "1 Gbit/s", "100%", "67.1 ms", "37%", "valid", "200 ms"):
        assert shown in text


@pytest.mark.tier("all")
@pytest.mark.parametrize("ending", ["pipe", "terminal"])
def test_a_vanished_reader_does_not_end_the_run(ending: str, tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from testbed.orchestrator.config.config import compose\n"
        "from testbed.orchestrator.terminal.display import Display\n"
        "with Display(compose([])) as display:\n"
        "    for step in range(20):\n"
        "        display.stage(f'stage {step}'); time.sleep(0.05)\n"
        f"open({str(tmp_path / 'end')!r}, 'w').write('reached')\n"
    )
    read, write = os.openpty() if ending == "terminal" else os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, env=environment(), cwd=CLONE
    )
    os.close(write)
    os.read(read, 10)
    os.close(read)
    _, stderr = process.communicate(timeout=HANG_S)
    assert (tmp_path / "end").read_text() == "reached"
    assert b"Traceback" not in stderr and process.returncode == 0


@pytest.mark.tier("all")
def test_a_reader_that_stopped_reading_does_not_abort_the_end() -> None:
    code = (
        "from testbed.orchestrator.config.config import compose\n"
        "from testbed.orchestrator.terminal.display import Display\n"
        "with Display(compose([])) as display:\n"
        "    for _ in range(200): display.stage('x' * 1000)\n"
    )
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, env=environment(), cwd=CLONE
    )
    _, stderr = process.communicate(timeout=HANG_S)
    os.close(read)
    os.close(write)
    assert (process.returncode, stderr) == (0, b"")


def test_a_stopped_terminal_does_not_hold_up_the_run(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display_module, "END_LIMIT_S", 0.1)
    read, write = os.pipe()
    stuck = os.fdopen(write, "w")
    display = Display(spec, console=Console(file=stuck))
    with display:  # which nobody ends who waits until all is written: nobody reads
        for _ in range(200):
            display.stage("x" * 1000)  # a pipe holds 64 KiB
    assert not display.ended
    os.set_blocking(read, False)
    while not display.ended:
        with contextlib.suppress(BlockingIOError):
            os.read(read, 65536)
    stuck.close()
    os.close(read)


def test_the_final_table_takes_an_empty_summary() -> None:
    text = render(final_table(empty_summary(), Path("runs/x")))
    assert "runs/x" in text and "None" not in text


def test_the_final_table_takes_a_summary_of_nulls_and_strangers() -> None:
    summary = dict.fromkeys(empty_summary())
    assert "runs/x" in render(final_table(summary, Path("runs/x")))
    link = dict.fromkeys(("name", "from", "to", "wan", "wire_bytes", "rate_bit_s", "rtt_s", "loss_ratio"))
    assert "runs/x" in render(final_table({**summary, "links": [link, None]}, Path("runs/x")))


def test_the_final_table_shows_asked_beside_measured() -> None:
    both = {"asked": 0.067, "measured": 0.0672}
    link = {
        "name": "l",
        "from": "oregon",
        "to": "virginia",
        "wan": True,
        "wire_bytes": 10**9,
        "rtt_s": both,
        "rate_bit_s": {"asked": 1e9, "measured": 0.99e9},
        "loss_ratio": {"asked": 0, "measured": 0.0},
    }
    summary = {
        **empty_summary(),
        "verdict": "suspect",
        "reasons": ["CPU idle 1%"],
        "unknowns": ["cpu pressure (kernel without PSI)"],
        "links": [link],
        "status": "completed",
    }
    summary["metric"] |= {"name": "accuracy", "value": 0.981, "best": 0.983, "target": 0.97, "time_to_target_s": 12.0}
    text = render(final_table(json.loads(json.dumps(summary)), Path("runs/x")))
    for shown in (
        "oregon -> virginia",
        "67 ms",
        "67.2 ms",
        "990 Mbit/s",
        "1 GB",
        "0.981",
        "12 s",
        "suspect",
        "CPU idle",
        "not known: cpu pressure",
    ):
        assert shown in text
