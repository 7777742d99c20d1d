"""`python -m testbed.worker.script PATH ARGUMENTS`: what `python PATH ARGUMENTS` does, in a node, to a good end."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path

from testbed.core.errors import EXIT_INPUT
from testbed.worker.communication.shutdown import shut_down


def main(arguments: list[str]) -> int:
    if not arguments or not Path(arguments[0]).is_file():
        said = f"no script at {arguments[0]}" if arguments else "usage: python -m testbed.worker.script PATH ARGUMENTS"
        sys.stderr.write(f"{said}\n")
        return EXIT_INPUT
    shut_down()
    if os.getpid() == 1:
        # The first process of a container gets no signal it has no handler for; the script may set its own.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
