"""The commands on docs/discovery.md work as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from testbed.orchestrator.cli.main import main
from testbed.orchestrator.machine.clone import CLONE

PAGE = (CLONE / "docs" / "discovery.md").read_text()
NET = 'regions: {paris: 2, lima: 1}\nlinks:\n  - {a: paris, b: lima, rate: 50 Mbit/s, rtt: 180 ms, source: "mine"}\n'
RUN_ELSEWHERE = ("-m pytest", "laws ./my_compressor.yaml", "sudo .venv/bin/longhaul run")
"""Commands that test_skeletons.py runs, here and in tests/emulation."""


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    indented = [line.strip() for line in PAGE.splitlines() if line.startswith("    ")]
    return [*(line for block in blocks for line in block.splitlines()), *indented]


def test_the_commands_of_the_page_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mynet.yaml").write_text(NET)
    contributing = (CLONE / "CONTRIBUTING.md").read_text()
    for name, text in re.findall(r"^```\w+\n# (signs\.\w+)\n(.*?)^```", contributing, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    found = [command for command in commands() if not any(other in command for other in RUN_ELSEWHERE)]
    assert len(found) == 10
    for command in found:
        inner = re.fullmatch(r'eval "\$\((.*)\)"', command)
        words = shlex.split(inner[1] if inner else command, comments=True)
        assert words[0] in ("longhaul", ".venv/bin/longhaul")
        assert main(words[1:]) == 0, command
        assert capsys.readouterr().out.strip(), command
