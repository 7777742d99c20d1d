"""What a server puts down at the meeting of all ranks, for those who come later or lose their connection."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from testbed.worker.communication.rendezvous import Rendezvous

KEY_BYTES = 32
_LAYOUT = struct.Struct(f"!{KEY_BYTES}sHII")
_PLACE = "parameter_server"
"""At the meeting."""


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """Wire: key 32 bytes, port u16, life u32, round u32, in network byte order."""

    key: bytes
    """The run's."""
    port: int
    """At rank 0's address."""
    life: int = 0
    """How many servers there were before this one."""
    round: int = 0
    """That had begun when it began."""

    def pack(self) -> bytes:
        return _LAYOUT.pack(self.key, self.port, self.life, self.round)

    @classmethod
    def unpack(cls, data: bytes) -> Invitation:
        key, port, life, round_ = _LAYOUT.unpack(data)
        return cls(key=key, port=port, life=life, round=round_)

    def put_down(self, rendezvous: Rendezvous) -> None:
        rendezvous.put(_PLACE, self.pack())

    @classmethod
    def looked_up(cls, rendezvous: Rendezvous) -> Invitation:
        """The latest.

        Raises:
            RuntimeError: nobody has put one there in time, of torch.
        """
        return cls.unpack(rendezvous.get(_PLACE))


INVITATION_BYTES = _LAYOUT.size
