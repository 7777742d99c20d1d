"""`make reproduce`: published systems against their baselines. Needs root to emulate; `--help` says the rest."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.reproductions.command import main

if __name__ == "__main__":
    sys.exit(main())
