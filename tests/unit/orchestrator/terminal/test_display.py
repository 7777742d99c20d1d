"""The display shows what it is given and never stands in the way of a run."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
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
from testbed.orchestrator.terminal import status_line
from testbed.orchestrator.terminal.display import Display
from testbed.orchestrator.terminal.grade_changes import HOLD_S
from testbed.orchestrator.terminal.summary_table import final_table
from tests.waiting import HANG_S, wait_until


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


@pytest.fixture
def clock_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of all that is shown, to be set by the test."""
    found = [100.0]
    monkeypatch.setattr(display_module.time, "monotonic", lambda: found[0])
    return found


def undrawn(spec: RunSpec, width: int = 120) -> Display:
    """A display that is not entered: nothing draws its lines away."""
    return Display(spec, console=Console(file=io.StringIO(), force_terminal=True, width=width))


def lines(display: Display) -> list[str]:
    return [line.plain for line in display._line._lines]


@pytest.mark.parametrize("terminal", [True, False])
def test_no_event_can_break_it(spec: RunSpec, terminal: bool) -> None:
    out = io.StringIO()
    with Display(spec, console=Console(file=out, force_terminal=terminal, width=100)) as display:
        for event in WEIRD:
            display.event(event)
        display.verdict(None)
        display.verdict("suspect", ["CPU idle 1%"])
        display.verdict("comet", [])
        display.progress("pilot steps", 0, 0)
        display.progress("pilot steps", 3, None)
        time.sleep(2 * status_line.REFRESH_S)
        display.stage("the end")
    assert "the end" in out.getvalue()


def test_the_grade_is_one_short_line_and_its_reasons_are_left_to_the_table(spec: RunSpec, clock_s: list[float]) -> None:
    display = undrawn(spec)
    reasons = [f"messages of the workers waited for a core {'very ' * 40}long", "steal 3% of a core"]
    for second in range(60):
        clock_s[0] = 100.0 + second
        display.verdict("suspect" if second < 30 else "valid", reasons if second < 30 else [])
    worse, better = lines(display)
    assert worse.startswith("verdict: valid -> suspect: messages of the workers waited for a core very ")
    assert worse.endswith("… (and 1 more)") and len(worse) == 120 - 10, "ten characters of time are before it"
    assert better == "verdict: suspect -> valid"


def test_of_a_grade_that_flickers_no_more_is_said_than_what_lasts(spec: RunSpec, clock_s: list[float]) -> None:
    display = undrawn(spec)
    for second in range(60):
        clock_s[0] = 100.0 + second
        display.verdict(("invalid", "suspect")[second % 2], ["links: 9.9 of 10 Mbit/s"])
    assert [line.partition(": links")[0] for line in lines(display)] == ["verdict: valid -> suspect"]
    assert clock_s[0] - 100 > 2 * HOLD_S


def test_plain_lines_without_a_terminal(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_line, "SPARSE_S", (0.0,))
    out = io.StringIO()
    with Display(spec, console=Console(file=out)) as display:
        display.stage("network: 4 nodes, 1 WAN link [not markup]")
        display.event({"event": "step", "rank": 0, "step": 3, "loss": 1.5, "t_s": 1.0})
        time.sleep(2 * status_line.REFRESH_S)
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


def test_a_trace_does_not_flood_the_terminal(spec: RunSpec, clock_s: list[float]) -> None:
    display = undrawn(spec)
    for bin_number in range(3000):
        clock_s[0] = 100.0 + 0.1 * bin_number
        for source in ("oregon", "virginia"):
            rates = {"before": {"rate_bit_s": 1e9}, "after": {"rate_bit_s": 1e8 + bin_number}}
            display.event(change(name="oregon-virginia", **{"from": source}, **rates))
    # of each direction after 0, 5, 15, 35, 75, 135, 195 and 255 seconds of 300
    assert len(lines(display)) == 2 * 8
    assert sum("(after 98 more changes)" in line for line in lines(display)) == 1


def test_quiet_prints_nothing(spec: RunSpec) -> None:
    out = io.StringIO()
    with Display(spec, quiet=True, console=Console(file=out, force_terminal=True)) as display:
        display.stage("network")
        display.event({"event": "fault", "rank": 0, "node": "n", "message": "m"})
        display.verdict("invalid", ["why"])
    assert out.getvalue() == ""


def test_a_phase_draws_its_own_progress_until_it_ends(spec: RunSpec, clock_s: list[float]) -> None:
    display = undrawn(spec)
    display.stage("pilot at a dilation of 2.4")
    for done in range(3):
        clock_s[0] += 2
        display.progress("pilot steps", done, 6)
    assert display._drawn(100, clock_s[0]).plain == "pilot steps 2/6, 8 s left"
    display.progress("pilot steps", 6, 6)
    assert display._drawn(100, clock_s[0]).plain == "pilot at a dilation of 2.4"
    display.progress("pilot steps", 1, 6)
    display.stage("training")
    assert display._drawn(100, clock_s[0]).plain == "training"
    assert lines(display) == ["pilot at a dilation of 2.4", "training"], "progress is no line that stays"


def test_a_terminal_gets_one_line_that_never_wraps(spec: RunSpec) -> None:
    out = io.StringIO()
    with Display(spec, console=Console(file=out, force_terminal=True, width=40), steps=10) as display:
        display.stage("s")
        display.progress("a phase with a name that is longer than forty columns are", 1, 6)
        wait_until(lambda: "a phase with" in out.getvalue(), "the line to be drawn")
    drawn = re.split(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]", out.getvalue())
    assert max(map(len, drawn)) < 40 and not any("forty" in part for part in drawn)


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


@pytest.mark.parametrize("measured", [0.99, 1.01])
def test_the_final_table_shows_asked_beside_measured_in_the_unit_of_what_was_asked(measured: float) -> None:
    both = {"asked": 0.067, "measured": 0.0672}
    link = {
        "name": "l",
        "from": "oregon",
        "to": "virginia",
        "wan": True,
        "wire_bytes": 10**9,
        "rtt_s": both,
        "rate_bit_s": {"asked": 1e9, "measured": measured * 1e9},
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
        "rate target, measured (Gbit/s)",
        f"1, {measured}",
        "RTT target, measured (ms)",
        "67, 67.2",
        "bytes (GB)",
        "last 0.981, best 0.983",
        "12 s",
        "suspect",
        "CPU idle",
        "not checked: cpu pressure",
    ):
        assert shown in text
