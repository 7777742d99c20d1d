"""Why a frame is not taken: one name for each reason, which the other end is told too."""

from __future__ import annotations

from enum import Enum

from testbed.core.errors import RunError
from testbed.core.files import printable
from testbed.core.kinds import shown


class Refusal(Enum):
    """A code, which is what travels, and a sentence of what was found and what was asked for.

    Never change a code: ends of different versions would name the wrong reason.
    """

    MAGIC = 1, "begins with {found}, a frame with {asked}: whatever sends it is no worker of this testbed"
    VERSION = 2, "is a frame of version {found}, and {asked} is spoken here; run the same code on all nodes"
    LENGTH = 3, "announces or holds {found}; {asked} are allowed"
    KIND = 4, "is {found}; due is {asked}"
    SCHEMA = 5, "is of a model with schema {found}, here it is {asked}; names, shapes and dtypes must agree"
    ROUND = 6, "is of round {found}; this is round {asked}"
    EPOCH = 7, "refers to reference {found}, here it is {asked}; join again to get whole parameters"
    SENDER = 8, "says it is from {found}; expected is {asked}"
    # what the right code would have been is never told: whoever asks would have a forger
    MAC = 9, "carries the code {found}, which {asked} does not give: changed on the way, or made without the key"
    CODEC = 10, "has a tensor coded by {found}; allowed are {asked}"
    TABLE = 11, "has a table with {found}; it must have {asked}"
    NUMBER = 12, "says {found}; it must be {asked}"
    LATE = 13, "had come to {found} by the deadline; due were {asked}"
    SLOW = 14, "came by {found} while it was waited for; asked are at least {asked}"
    TENSOR = 16, "cannot be decoded: {found}; it must be {asked}"
    REPLACED = 15, "comes over the connection of {found}, which has a newer one; use {asked}"

    def __init__(self, code: int, sentence: str) -> None:
        self.code = code
        self.sentence = sentence


REFUSALS = {refusal.code: refusal for refusal in Refusal}


class Refused(RunError):
    """A frame is not taken. One line says which reason, what was found and what was asked for."""

    def __init__(self, reason: Refusal, *, found: object, asked: object) -> None:
        self.reason = reason
        sentence = reason.sentence.format(found=printable(shown(found)), asked=printable(shown(asked)))
        super().__init__(f"refused ({reason.name.lower()}): what was sent {sentence}")
