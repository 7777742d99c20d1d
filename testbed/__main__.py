"""`python -m testbed` is `longhaul`."""

import sys

from testbed.orchestrator.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
