"""`python -m experiments.common.point MODULE ASKED`: measures one point, prints it as JSON.

It is started in fresh namespaces, but for points that run commands.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
from typing import NoReturn

from testbed.core.record.run_directory import RUNTIME_ROOT
from testbed.orchestrator.emulation.kernel.namespaces import own_sysfs


def _leave(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # a group's signal comes once more when the process above has gone
    sys.exit(128 + number)


def main() -> None:
    # The first process of its namespace: without a handler the signal would be ignored, and what dies at once with the
    # namespace leaves cgroups behind. So a run is stopped, and cleans up itself.
    signal.signal(signal.SIGTERM, _leave)
    module = importlib.import_module(sys.argv[1])
    if not getattr(module, "RUNS_COMMANDS", False):
        RUNTIME_ROOT.mkdir(parents=True, exist_ok=True)
        own_sysfs()
    sys.stdout.write(json.dumps(module.measure(**json.loads(sys.argv[2]))) + "\n")


if __name__ == "__main__":
    main()
