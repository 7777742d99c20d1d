"""What runs inside a node: the training loop and all that hangs on it. Needs torch; knows nothing of the emulation.

A user's own script takes `ddp_hook` from here and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.worker.script.ddp_hook import ddp_hook

__all__ = ["ddp_hook"]


def __getattr__(name: str) -> Any:
    """A worker says hello before it pays for torch, so that what needs it is imported on first use."""
    if name != "ddp_hook":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from testbed.worker.script.own_names import ours

    with ours():
        from testbed.worker.script.ddp_hook import ddp_hook
    return ddp_hook
