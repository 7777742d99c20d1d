"""Cores that stay awake while links are emulated, so that a timer or a message waits for no core that sleeps.

In a virtual machine an idle core is given back to the host; waking it takes tens of microseconds, which the kernel
counts as steal (docs/decisions/0079-cores-that-stay-awake.md).
"""

from __future__ import annotations

import os
import struct

_LATENCY = "/dev/cpu_dma_latency"
"""The kernel's power-management quality of service: the wish of who writes it holds until the file is closed."""


class AwakeCores:
    """A wish that idle cores poll instead of sleeping. A context manager; it ends when its process is killed, too."""

    refusal: str | None = None
    """The kernel's reason not to take the wish: only root may have one, and a container may lack the file."""
    _descriptor: int | None = None

    def __enter__(self) -> AwakeCores:
        try:
            self._descriptor = os.open(_LATENCY, os.O_WRONLY | os.O_CLOEXEC)
            os.write(self._descriptor, struct.pack("i", 0))
        except OSError as error:
            self.__exit__()
            self.refusal = f"{_LATENCY}: {error.strerror}"
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
