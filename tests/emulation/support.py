"""Starts the program as a user does, and looks at what a run left."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.core.errors import EXIT_FAILED
from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.machine import cleanup
from testbed.orchestrator.machine.clone import CLONE, environment
from tests.machine import ENDS_WITH_TESTS

START_TIMEOUT_S = 240.0
"""Until training goes on, on a machine that others use too."""
END_TIMEOUT_S = 600.0
BUSY, BUSY_PAUSES_S = "the machine is too busy or too slow for these links", (20.0, 40.0, 60.0)
GONE_S = 30.0
"""Until nothing of a run is left; a second on an idle machine, and half as long as collectives wait for who is gone."""
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
"""What steers a terminal and is no end of a line: escape sequences and carriage returns among them."""
IN_NAMESPACES = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--mount", "--ipc", "--uts"]


def wait_until(met: Callable[[], bool], timeout_s: float, what: str, *, every_s: float = 0.05) -> float:
    """Wait for `met`; returns the seconds it took, fails with `what` if it never was."""
    started_s = time.monotonic()
    while not met():
        waited_s = time.monotonic() - started_s
        assert waited_s < timeout_s, f"{what}: not within {timeout_s:.0f} s"
        time.sleep(every_s)
    return time.monotonic() - started_s


def _unpiloted(overrides: Sequence[str]) -> list[str]:
    is_given = any(word.startswith("dilation=") for word in overrides)
    return [] if is_given else ["dilation=guess"]


class Longhaul:
    """`longhaul run ...` as a process in a session of its own.

    --share, since the test holds the machine lock itself. A run that was refused before training because the machine
    carried its links too slowly, as others' load makes it for a minute, is asked for again after a pause.

    Its dilation is not tried before it begins, which takes seconds, but where a test asks for it.
    """

    def __init__(
        self, runs: Path, *overrides: str, wrapper: tuple[str, ...] = (), is_patient: bool | None = None
    ) -> None:
        self.runs = runs
        self.output = runs.parent / f"output-{time.monotonic_ns()}"
        self._command = [
            *(*ENDS_WITH_TESTS, *wrapper, sys.executable, "-m", "testbed", "run", "--share"),
            *("--runs", str(runs), "metrics_port=0", *_unpiloted(overrides), *overrides),
        ]
        is_patient = not wrapper if is_patient is None else is_patient
        self._pauses_s = list(BUSY_PAUSES_S) if is_patient else []
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.output.open("w") as file:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=CLONE,
                env=environment(),
            )

    def _asked_again(self) -> bool:
        """Once it has ended: whether it had no chance, and is tried once more."""
        if not self._pauses_s or self.process.poll() != EXIT_FAILED or BUSY not in self.said:
            return False
        time.sleep(self._pauses_s.pop(0))
        shutil.rmtree(self.run.path)
        self.process = self._start()
        return True

    @property
    def said(self) -> str:
        return self.output.read_text()

    @property
    def run(self) -> RunDir:
        (path,) = self.runs.iterdir()
        return RunDir(path)

    def wait_for_step(self, step: int) -> None:
        """Costs little beside the run: of its events only what is new is read."""
        events = _NewEvents()

        def reached() -> bool:
            ended = self.process.poll() is not None and not self._asked_again()
            assert not ended, f"the run ended before step {step}:\n{self.said}"
            if not any(self.runs.iterdir()) if self.runs.exists() else True:
                return False
            return any(e["event"] == "step" and e["step"] >= step for e in events.read(self.run.events))

        wait_until(reached, START_TIMEOUT_S, f"step {step}", every_s=0.1)

    def wait(self) -> int:
        try:
            status = self.process.wait(END_TIMEOUT_S)
            while self._asked_again():
                status = self.process.wait(END_TIMEOUT_S)
            return status
        except subprocess.TimeoutExpired:
            self.kill_group()
            raise AssertionError(f"the run did not end within {END_TIMEOUT_S:.0f} s:\n{self.said}") from None

    def kill_group(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run.summary.read_text())
        return found


class _NewEvents:
    """Of files that are written, each time what came since the last."""

    def __init__(self) -> None:
        self._read_bytes: dict[Path, int] = {}

    def read(self, path: Path) -> list[dict[str, Any]]:
        """In whole lines."""
        place = self._read_bytes.get(path, 0)
        try:
            with path.open("rb") as file:
                file.seek(place)
                *lines, cut = file.read().split(b"\n")
                self._read_bytes[path] = file.tell() - len(cut)
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]


def assert_as_asked_or_told(
    link: Mapping[str, Any], rate_bit_s: float, rtt_s: float, found: Mapping[str, float | None], reasons: Sequence[str]
) -> None:
    """A link is within 2 % of its rate and 1 ms of its round trip, or the verdict says of it that it was not: whoever
    else uses the machine decides that, and test_links.py measures links for as long as it takes.

    Args:
        found: "rate_bit_s" and "rtt_s" as they were measured.
    """
    told = any(f"link {link['name']}" in reason and "measured" in reason for reason in reasons)
    for key, asked, most in (("rate_bit_s", rate_bit_s, 0.02 * rate_bit_s), ("rtt_s", rtt_s, 1e-3)):
        value = found[key]
        assert value is not None and abs(value / asked - 1) < 0.3, f"{key} of {link['name']}: {value}, asked {asked}"
        assert told or abs(value - asked) <= most, (
            f"{key} of {link['name']}: {value}, asked {asked}, and nobody says so"
        )


def gone_within(run_id: str, timeout_s: float = GONE_S) -> float:
    """Wait until nothing of a run is left; on failure say what is."""
    started_s = time.monotonic()
    while left := cleanup.leftovers(run_id):
        assert time.monotonic() - started_s < timeout_s, f"after {timeout_s:.0f} s still there: {left}"
        time.sleep(0.05)
    return time.monotonic() - started_s


def host_state() -> dict[str, list[str]]:
    """What a leak would add to on the host: devices, mounts, named namespaces, congestion controls."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    named = Path("/run/netns")
    return {
        "devices": sorted(os.listdir("/sys/class/net")),
        "mounts": sorted(mounts),
        "named namespaces": sorted(os.listdir(named)) if named.is_dir() else [],
        "congestion controls": sorted(Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()),
    }


def run_inside(script: str, *arguments: str, timeout_s: float = 300.0) -> Any:
    """Run a file of this folder as the first process of fresh namespaces; returns the JSON of its last line."""
    done = subprocess.run(
        [*IN_NAMESPACES, sys.executable, str(Path(__file__).parent / script), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=CLONE,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def listed(runs: Path) -> str:
    """What `longhaul list --json` prints, which seals what was killed."""
    command = [sys.executable, "-m", "testbed", "list", "--json", "--runs", str(runs)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=CLONE, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def whole_events(run: RunDir) -> list[dict[str, Any]]:
    """What a record's readers get of its events: all of them, up to the last whole line; none but the last is cut.

    A run that goes on adds others meanwhile, so readers get what was there before, or some of what came after it.
    """
    before = _whole_lines(run)
    read = list(run.read_events())
    after = _whole_lines(run)
    assert before == read[: len(before)] and read == after[: len(read)]
    assert all("t_s" in event and "event" in event for event in after)
    return read


def _whole_lines(run: RunDir) -> list[dict[str, Any]]:
    *lines, _cut = run.events.read_text().split("\n")
    return [json.loads(line) for line in lines]


def run_process(run_id: str) -> int:
    """The process that builds, observes and judges a run: the first one of its namespaces."""
    (found,) = (
        pid
        for pid in cleanup.processes_of(run_id)
        if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:3] == [b"-m", b"testbed.orchestrator.run"]
        and re.search(r"^NSpid:\s+\d+\s+1$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    )
    return found
