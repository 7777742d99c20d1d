from __future__ import annotations

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:  # the helpers beside the tests are imported by their place in the tree
    sys.path.insert(0, ROOT)
