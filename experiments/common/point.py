"""`python -m experiments.common.point MODULE ASKED`, in fresh namespaces: measures one point, prints it as JSON."""

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
    RUNTIME_ROOT.mkdir(parents=True, exist_ok=True)
    own_sysfs()
    module = importlib.import_module(sys.argv[1])
    sys.stdout.write(json.dumps(module.measure(**json.loads(sys.argv[2]))) + "\n")


if __name__ == "__main__":
    main()
