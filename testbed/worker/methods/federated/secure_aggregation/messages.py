"""What passes between a server and its workers for a secure sum: the form of each message, and its bytes.

| when | from | holds, by worker where it says so |
|---|---|---|
| before the model | worker | `key`: a public key, 32 bytes |
| | server | `keys` (N, 32): of every worker; zeros: it is not there |
| | worker | `sealed` (n - 1, 4 L + 48): a share for each other one of the n that are there, ascending, with a key for |
| | | vouchers; 32 bytes less with server=curious, which has none |
| | server | `sealed`: that of each other one for this worker; zeros: there is none |
| after the update | worker | `masked` (d) int32, and `held`, a bit for each worker whose share it has, itself among |
| | | them; or a text: it drops out |
| | server | `survivors`: a bit for each worker |
| | worker | `vouchers` (s - 1, 32): for each other survivor; not with server=curious |
| | server | `vouchers`: that of each other one for this worker; zeros: there is none |
| | worker | `answer` (L) int32 |

d is the size of the row that is summed, L = ceil(d / (U - T)). Elements are little-endian; bits as of `numpy.packbits`.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from testbed.worker.methods.federated.secure_aggregation.encryption import PUBLIC_KEY_BYTES, TAG_BYTES
from testbed.worker.methods.federated.secure_aggregation.mask_code import DEVIATING, KEY_BYTES, MaskCode
from testbed.worker.methods.federated.secure_aggregation.prime_field import Elements, PrimeField
from testbed.worker.methods.federated.secure_aggregation.secure_sum import Share
from testbed.worker.methods.parameter_server.transport.tensor_schema import Schema, TensorSpec

KEY = Schema.of([TensorSpec("key", (PUBLIC_KEY_BYTES,), "uint8")])


class Messages:
    """Of one run: N workers, and rows of `size` elements."""

    def __init__(self, code: MaskCode, size: int) -> None:
        self.code, self.size = code, size
        self.field: PrimeField = code.field
        self.sealed_bytes = code.share_bytes(size) + TAG_BYTES
        """Of one share."""
        workers, bits = code.clients, (code.survivors_bytes(),)
        self.keys = Schema.of([TensorSpec("keys", (workers, PUBLIC_KEY_BYTES), "uint8")])
        masked = TensorSpec("masked", (size,), "int32"), TensorSpec("held", bits, "uint8")
        self.masked = Schema.of(masked)
        self.survivors = Schema.of([TensorSpec("survivors", bits, "uint8")])
        self.answer = Schema.of([TensorSpec("answer", (code.share_elements(size),), "int32")])

    def sealed(self, there: int) -> Schema:
        """Of so many workers."""
        return Schema.of([TensorSpec("sealed", (there - 1, self.sealed_bytes), "uint8")])

    def vouchers(self, survivors: int) -> Schema:
        return Schema.of([TensorSpec("vouchers", (survivors - 1, KEY_BYTES), "uint8")])

    @property
    def vouches(self) -> bool:
        """Whether workers do."""
        return self.code.server == DEVIATING

    def share_bytes(self, share: Share) -> bytes:
        return share.key + self.field.to_bytes(share.elements)

    def share(self, body: bytes) -> Share:
        """
        Raises:
            ValueError: it is none of this code.
        """
        key_bytes = KEY_BYTES if self.vouches else 0
        elements = self.field.from_bytes(body[key_bytes:], self.code.share_elements(self.size))
        return Share(elements, body[:key_bytes])

    def bits(self, workers: Collection[int]) -> bytes:
        members = np.isin(np.arange(self.code.clients), list(workers))
        return np.packbits(members).tobytes()

    def workers(self, bits: bytes) -> list[int]:
        """Ascending."""
        members = np.unpackbits(np.frombuffer(bits, np.uint8), count=self.code.clients)
        return [int(worker) for worker in members.nonzero()[0]]

    def elements(self, body: bytes, count: int) -> Elements:
        """
        Raises:
            ValueError: one of them is none of the field.
        """
        return self.field.from_bytes(body, count)


def rows(joined: bytes, owners: Collection[int], row_bytes: int) -> dict[int, bytes]:
    """By owner, in their order; those of zeros are left out: they say that there is none."""
    cut = (joined[at : at + row_bytes] for at in range(0, len(joined), row_bytes))
    return {owner: row for owner, row in zip(owners, cut, strict=True) if row.count(0) < row_bytes}


def joined(by_owner: dict[int, bytes], owners: Collection[int], row_bytes: int) -> bytes:
    """The opposite."""
    return b"".join(by_owner.get(owner, bytes(row_bytes)) for owner in owners)
