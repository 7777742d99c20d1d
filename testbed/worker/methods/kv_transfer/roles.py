"""What the two ranks do for one text: the far side keeps and answers, the near one decodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.base.payload import PayloadError
from testbed.worker.device.clock import WAITING, PhaseClock
from testbed.worker.device.stopwatch import Stopwatch
from testbed.worker.methods.kv_transfer.cache.messages import decode_blobs, encode_blobs
from testbed.worker.methods.kv_transfer.cache.store import KVStore, Link, Traffic
from testbed.worker.methods.kv_transfer.connection import (
    BEGIN_FRAME,
    END_FRAME,
    CacheConnection,
    Request,
    RequestKind,
    decode_request,
    message_frame,
    questions_frame,
)
from testbed.worker.methods.kv_transfer.model.texts import Sample
from testbed.worker.methods.kv_transfer.model.transformer import Attend, AttentionRequest, KVTransformer
from testbed.worker.methods.kv_transfer.selection.methods import Method
from testbed.worker.methods.kv_transfer.selection.selector import Selector

DECODE, PREFILL = "decode", "prefill"
"""Work, as the clock is given it: of one side each."""
ANSWER, UNPACK = "answer", "decompress"
"""Phases, of the far side and of the near side's beginning; they last as long as they take here."""


class LineLink:
    """The near side's link over a `CacheConnection`. Waiting for an answer is a phase of its own."""

    def __init__(self, line: CacheConnection, clock: PhaseClock, stopwatch: Stopwatch) -> None:
        self._line, self._clock, self._stopwatch = line, clock, stopwatch
        self.traffic = Traffic()
        self._questions: dict[int, int] = {}
        """How many there are under each ticket whose answers have not come yet."""
        self._answers: dict[int, list[bytes]] = {}
        self._ends: dict[int, Callable[[], None]] = {}
        self._sent = 0

    def begin(self) -> bytes:
        """Have the far side begin with a text; what its selector sets up."""
        end = self._stopwatch.start()
        self._send(BEGIN_FRAME)
        message = self._receive()
        end()
        return message

    def send(self, messages: Sequence[bytes], *, ahead: bool = False) -> int:
        self.traffic.asked_bytes += sum(map(len, messages))
        self.traffic.round_trips += not ahead
        self.traffic.round_trips_ahead += ahead
        self._sent += 1
        self._questions[self._sent] = len(messages)
        self._ends[self._sent] = self._stopwatch.start()
        self._send(questions_frame(messages))
        return self._sent

    def receive(self, ticket: int) -> list[bytes]:
        while ticket not in self._answers:
            first = min(self._questions)  # answers come in the order of questions
            self._answers[first] = decode_blobs(self._receive(), self._questions.pop(first))
            self._ends.pop(first)()
        answers = self._answers.pop(ticket)
        self.traffic.answered_bytes += sum(map(len, answers))
        return answers

    def tell(self, message: bytes) -> None:
        self.traffic.told_bytes += len(message)
        self._send(message_frame(message))

    def end(self) -> None:
        self._send(END_FRAME)

    def _send(self, frame: bytes) -> None:
        self._clock.mark()
        with self._clock.phase(WAITING):
            self._line.send(frame)

    def _receive(self) -> bytes:
        self._clock.mark()
        with self._clock.phase(WAITING):
            return self._line.receive()


class Keeper:
    """The far side of one text.

    Args:
        share: of a step's texts.
    """

    def __init__(self, model: KVTransformer, method: Method, sample: Sample, clock: PhaseClock, share: float) -> None:
        self._clock = clock
        with clock.work(PREFILL, share):
            prefilled = model.prefill(torch.tensor(sample.text[: sample.prefill]))
            selector = method.new(model)
            self.store = _TimedStore(prefilled.keys, prefilled.values, selector, clock)
            self.set_up = selector.set_up(self.store)

    def serve(self, line: CacheConnection) -> None:
        """Until the text is at its end."""
        self._clock.mark()
        line.send(self.set_up)
        while (request := next_request(line, self._clock)).kind is not RequestKind.END:
            if request.kind is RequestKind.BEGIN:
                raise PayloadError("KV request: a text begins before the last one is at its end")
            answers = [self.store.answer(message) for message in request.messages]
            if request.kind is RequestKind.QUESTIONS:
                self._clock.mark()
                with self._clock.phase(WAITING):
                    line.send(encode_blobs(answers))


class _TimedStore(KVStore):
    def __init__(self, keys: Tensor, values: Tensor, selector: Selector, clock: PhaseClock) -> None:
        super().__init__(keys, values, selector.coding)
        self._clock = clock

    def answer(self, message: bytes) -> bytes:
        with self._clock.phase(ANSWER):
            return super().answer(message)


def next_request(line: CacheConnection, clock: PhaseClock) -> Request:
    with clock.phase(WAITING):
        return decode_request(line.receive())


class Decoded(NamedTuple):
    """What came of one text."""

    text: list[int]
    """With the bytes that the decoder wrote itself."""
    found: list[int]
    """Of each position of `Sample.steps` the most likely byte after it."""
    nats: list[float]
    """What the byte after it cost, of those that count."""
    right: int
    """Answers that were right."""
    first_s: float
    """Wall seconds until the first byte was found."""
    whole_s: float
    """Until the last."""


def decode(
    model: KVTransformer,
    sample: Sample,
    begin: Callable[[], Attend],
    clock: PhaseClock | None = None,
    share: float = 1.0,
) -> Decoded:
    """
    Args:
        begin: has all that is needed before the first step.
        clock: spends the time of `DECODE`, as much for each position and layer.
        share: of a step's texts.
    """
    began_s = time.monotonic()
    attend, text, found, nats = begin(), list(sample.text), list[int](), list[float]()
    found_s: list[float] = []
    for position in sample.steps:
        logits = _step(model, text, position, attend, clock, share / len(sample.steps))
        found_s.append(time.monotonic())
        found.append(int(logits.argmax()))
        if sample.is_written(position + 1):
            text[position + 1] = found[-1]
        if sample.counts(position + 1):
            nats.append(-float(logits.log_softmax(0)[text[position + 1]]))
    right = sum(found[at - sample.prefill] == text[at + 1] for at in sample.asked_at)
    return Decoded(text, found, nats, right, found_s[0] - began_s, found_s[-1] - began_s)


def _step(
    model: KVTransformer, text: Sequence[int], position: int, attend: Attend, clock: PhaseClock | None, share: float
) -> Tensor:
    before = text[position - 1] if position else 0
    if clock is None:
        return model.step(text[position], before, position, attend)
    seconds = clock.times.work_s(DECODE)
    part_s = 0.0 if seconds is None else share * seconds / (model.shape.layers + 1)

    def paced(asked: AttentionRequest) -> Tensor:
        clock.spend(part_s)
        return attend(asked)

    with clock.work(DECODE, share):
        return model.step(text[position], before, position, paced)


class DecodedNear(NamedTuple):
    decoded: Decoded
    set_up_bytes: int


def decode_near(
    model: KVTransformer,
    sample: Sample,
    selector: Selector,
    link: Link,
    set_up: Callable[[], bytes],
    clock: PhaseClock,
    share: float,
) -> DecodedNear:
    """Decode a text whose beginning is far.

    Args:
        set_up: gets what the far side's selector sets up.
    """
    sizes = []

    def begin() -> Attend:
        message = set_up()
        sizes.append(len(message))
        with clock.phase(UNPACK):
            selector.start(message)
        selector.last_position = sample.steps[-1]
        return lambda asked: selector.attend(asked, link).output

    return DecodedNear(decode(model, sample, begin, clock, share), sizes[0])
