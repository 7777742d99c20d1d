# For plain Mininet: sudo mn --custom scripts/mininet_topos.py --topo lan,lan_rate=1Gbit/s --test pingall
# `mn` executes this text under the system's Python, knows no __file__ here, and takes every name as one of its own.
import sys as _sys
from pathlib import Path as _Path

_root = _Path(_sys._getframe().f_code.co_filename).resolve().parents[1]
_sys.path.insert(0, str(_root))
# behind all others: what `mn` itself needs comes from the system
_sys.path.append(
    str(_root / ".venv" / "lib" / f"python{_sys.version_info[0]}.{_sys.version_info[1]}" / "site-packages")
)

from testbed.orchestrator.export.mininet_topology import topos  # noqa: E402, F401
