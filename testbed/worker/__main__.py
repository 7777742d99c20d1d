"""`python -m testbed.worker run`: one rank of a run, told over the telemetry socket what to do.
`python -m testbed.worker check`: are the parts of this spec possible? Reads the spec on stdin."""

from __future__ import annotations

import sys

from testbed.core.errors import EXIT_INPUT


def main(arguments: list[str]) -> int:
    # Imported late: each command pays for what it needs.
    if arguments == ["run"]:
        from testbed.worker.session import run

        return run()
    if arguments == ["check"]:
        from testbed.worker.check import check

        return check(sys.stdin, sys.stdout)
    sys.stderr.write("usage: python -m testbed.worker run|check\n")
    return EXIT_INPUT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
