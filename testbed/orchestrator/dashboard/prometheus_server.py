"""A Prometheus server on loopback."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from testbed.core.server_lock import hold, is_served
from testbed.orchestrator.dashboard.server_process import LOOPBACK, ServerProcess

LOOKBACK = "5s"
"""After so long without a sample a series ends: the default of five minutes would draw a run on after its end."""


class Server(ServerProcess):
    """A Prometheus over one data directory, which no other one serves meanwhile.

    Args:
        keep: Time that samples stay, counted back from the newest block: a block of today may cost all of another year.
    """

    def __init__(self, name: str, config: Path, data: Path, port: int, log: Path, keep: str = "15d") -> None:
        super().__init__(name, port, log, "/-/ready")
        self.config = config
        self.data = data
        self.keep = keep

    def command(self) -> list[str]:
        return [
            shutil.which("prometheus") or "prometheus",
            f"--config.file={self.config}",
            f"--storage.tsdb.path={self.data}",
            f"--storage.tsdb.retention.time={self.keep}",
            f"--query.lookback-delta={LOOKBACK}",
            f"--web.listen-address={LOOPBACK}:{self.port}",
        ]

    def fault(self, flag: str) -> str | None:
        if is_served(self.data):
            return f"{self.name}: another Prometheus serves {self.data} already; end that one first"
        return super().fault(flag)

    def start(self, pass_fds: Sequence[int] = ()) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        with hold(self.data) as lock:
            super().start([*pass_fds, lock.fileno()])
