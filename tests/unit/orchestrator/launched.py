"""Workers of a run whose processes are never started, and that say what a test has them say."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from testbed.core.record.run_directory import RunDir
from testbed.core.spec.schedule import Change
from testbed.orchestrator.config.programs import Training
from testbed.orchestrator.emulation.containers.exit_report import ended
from testbed.orchestrator.run.workers.workers import Workers
from tests.distributed.harness import make_spec


class Fake:
    """A container and its process, and what it was told."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.how = ""
        """It has ended, if other than by its status."""
        self.told: list[dict[str, Any]] = []

    def exit_code(self) -> int | None:
        return self.code

    def ended(self, code: int) -> str:
        return self.how or ended(code)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.code = -number if self.code is None else self.code

    def wait(self, timeout_s: float) -> None:
        assert self.code is not None

    def delete(self) -> None:
        pass

    def send(self, message: dict[str, Any]) -> None:
        self.told.append(message)


class Launched(Workers):
    """Of a server and two clients, which have begun; no process is started."""

    def __init__(
        self,
        folder: Path,
        *,
        outlived: tuple[int, ...] = (1, 2),
        begun: bool = True,
        timeout_s: float = 100,
        events: tuple[Change, ...] = (),
    ) -> None:
        spec = make_spec("parameter_server", workers=3, timeout_s=timeout_s, events=events)
        nothing: Any = None
        (folder / "logs").mkdir()
        self.recorded: list[dict[str, Any]] = []
        super().__init__(spec, Training(spec), RunDir(folder), nothing, nothing, self.recorded.append)
        self.fakes = [Fake() for _ in self.nodes]
        for node, fake in zip(self.nodes, self.fakes, strict=True):
            members: Any = fake
            self.containers[node] = self._processes[node] = self.conversations.channels[node] = members
            self.run.log(node).write_text("its last line\n")
        self.say(0, {"event": "model", "outlived": list(outlived)})
        assert self.hear() == [(0, "model")]
        if begun:
            self.go(0.0)

    def say(self, rank: int, message: dict[str, Any], *, by: Any = None) -> None:
        """
        Args:
            by: another process's channel than the node's own.
        """
        self.conversations.inbox.put((self.nodes[rank], by or self.fakes[rank], {"rank": rank, **message}))

    def hear(self) -> list[tuple[int, str]]:
        """What comes for the record, until there is nothing new for a moment."""
        quiet = 0
        while quiet < 2 and not self.all_done:
            quiet = quiet + 1 if self.next_message() is None else 0
        heard, self.recorded[:] = list(self.recorded), []
        return [(event["rank"], event.get("message", event["event"])) for event in heard]

    def _start(self, container: Any) -> None:
        container.code = None
