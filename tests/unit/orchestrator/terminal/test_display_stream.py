"""Where there is no terminal the display is plain lines, and what a worker says steers none."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from testbed.core.record.summary import empty_summary
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.machine.clone import CLONE, environment
from testbed.orchestrator.terminal import display as display_module
from testbed.orchestrator.terminal.display import Display
from testbed.orchestrator.terminal.summary_table import final_table
from tests.waiting import HANG_S


@pytest.mark.parametrize("forced", [{"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1"}, {"TERM": "dumb"}])
def test_a_pipe_gets_lines_whatever_the_environment_says(forced: dict[str, str]) -> None:
    code = (
        "import time\n"
        "from testbed.orchestrator.config.config import compose\n"
        "from testbed.orchestrator.terminal import display as module, status_line\n"
        f"module.END_LIMIT_S = {HANG_S}\n"
        "with module.Display(compose([])) as display:\n"
        "    display.event({'event': 'step', 'rank': 0, 'step': 3, 'loss': 1.5, 't_s': 1.0})\n"
        "    display.stage('workers'); time.sleep(3 * status_line.REFRESH_S)\n"
    )
    environ = {**environment(), **forced}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environ, cwd=CLONE, timeout=HANG_S, check=True
    )
    assert "workers\n" in done.stdout and "\x1b" not in done.stdout, done.stdout


def test_a_worker_does_not_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display_module, "END_LIMIT_S", HANG_S)
    out = io.StringIO()
    message = "\x1b]0;mine\x07 line one\nline two"
    with Display(compose([]), console=Console(file=out)) as display:
        display.event({"event": "fault", "rank": 0, "node": "n", "message": message})
        display.verdict("invalid", [message])
    assert "fault: rank 0 on n: ?]0;mine? line one line two\n" in out.getvalue() and "\x1b" not in out.getvalue()
    table = Console(file=(shown := io.StringIO()), width=160)
    table.print(final_table({**empty_summary(), "reasons": [message]}, Path("runs/x")))
    assert "line one?line two" in shown.getvalue() and "\x1b" not in shown.getvalue()
