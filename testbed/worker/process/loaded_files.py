"""Files of the modules that a rank has loaded, and that neither the code hash nor an installed package covers."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from testbed.core.record.events.run import Used
from testbed.core.record.used_files import entries, outside

_STARTED_UNIX_S = time.time()
_FILES_A_MESSAGE = 200


def used(rank: int) -> Iterator[Used]:
    """Yield the events of a rank that ends: what it has loaded, as it is now. A message has an upper bound."""
    named = map(_file_of, list(sys.modules.values()))
    found = entries(outside(name for name in named if isinstance(name, str)), since_unix_s=_STARTED_UNIX_S)
    for at in range(0, len(found), _FILES_A_MESSAGE):
        yield Used.of(rank, found[at : at + _FILES_A_MESSAGE])


def _file_of(module: object) -> object:
    """Return what a module gives as its file; None if it has none, or raises."""
    try:
        return getattr(module, "__file__", None)
    except Exception:  # a module may load what it stands for when it is asked, and fail
        return None
