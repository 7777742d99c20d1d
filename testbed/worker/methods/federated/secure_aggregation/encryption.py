"""What one worker says to another past the server that carries it: encrypted from end to end, for one round.

Each worker draws an X25519 key pair (RFC 7748) for a round. What two have in common, HKDF-SHA256 (RFC 5869) makes a key
of, another one each way, with which one message is sealed by ChaCha20-Poly1305 (RFC 8439): 16 bytes longer than it was.
A key is used once, so its nonce is 0.

Nothing vouches for public keys: a server that puts its own in their place reads everything. It takes a server that
passes them on as they are, or keys that workers know beforehand, which is not there.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PUBLIC_KEY_BYTES = 32
TAG_BYTES = 16
_KEY_BYTES = 32
_NONCE = bytes(12)


class UnsealError(ValueError):
    """What came was not sealed for this worker, by that one, in this round; or a public key is none."""


class Sealer:
    """One worker's, of one round.

    Args:
        round_, own: the round, and this worker's number.
    """

    def __init__(self, round_: int, own: int) -> None:
        self._round, self._own = round_, own
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def seal(self, message: bytes, to: int, public: bytes) -> bytes:
        """
        Args:
            to, public: the other worker, and its public key.

        Raises:
            UnsealError: that is no public key.
        """
        key, about = self._key(self._own, to, public)
        return ChaCha20Poly1305(key).encrypt(_NONCE, message, about)

    def unseal(self, sealed: bytes, sender: int, public: bytes) -> bytes:
        """
        Raises:
            UnsealError: it is not what `sender` has sealed for this worker.
        """
        key, about = self._key(sender, self._own, public)
        try:
            return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, about)
        except InvalidTag as error:
            raise UnsealError(f"what worker {sender} sealed does not open") from error

    def _key(self, sender: int, receiver: int, public: bytes) -> tuple[bytes, bytes]:
        """And what is authenticated beside the message."""
        about = b"".join(number.to_bytes(8, "little") for number in (self._round, sender, receiver))
        both = (self.public, public) if sender == self._own else (public, self.public)
        try:
            common = self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:  # a point of small order gives all zeros
            other = receiver if sender == self._own else sender
            raise UnsealError(f"the public key of worker {other} is none") from error
        info = b"longhaul secure sum" + about + b"".join(both)
        return HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=info).derive(common), about
