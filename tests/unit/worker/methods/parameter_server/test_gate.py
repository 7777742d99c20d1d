"""A sender that compresses only where that is faster: slow codecs, slow links, links that change, in a time that is
told."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from compressors.base.compressor import Context
from testbed.core.errors import RunError
from testbed.worker.device import clock as clock_module
from testbed.worker.methods.parameter_server.bounds.break_even import MEASURING, NO_GAIN, PAYS, PROBE, Gate
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.entries import Encoded
from testbed.worker.methods.parameter_server.messages.gated_coder import GatedCoder, can_gate
from testbed.worker.methods.parameter_server.messages.tensor_codecs import Fp16
from testbed.worker.methods.parameter_server.messages.wire import coded_bytes
from testbed.worker.methods.parameter_server.transport import elapsed, transfer_meter
from testbed.worker.methods.parameter_server.transport.connection import Connection
from testbed.worker.methods.parameter_server.transport.elapsed import Elapsed
from testbed.worker.methods.parameter_server.transport.transfer_meter import TICK_S, TransferMeter, acknowledged
from tests.unit.fake_time import FakeTime
from tests.unit.worker.recorded import Recorded, taken
from tests.unit.worker.server_models import ORIGIN, bits, one, plan_up

SCHEMA, BEFORE, AFTER = one()
RAW_BYTES = BEFORE[0].nbytes
BOUNDS = {"weight": None}
OFF_AND_PROBE = [*[NO_GAIN] * 9, PROBE]


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    made = FakeTime()
    for module in (clock_module, elapsed):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(clock_module.codec_process, "cpu_s", lambda: 0.0)
    return made


class Meter(TransferMeter):
    """A link of a rate that tests set."""

    def __init__(self, rate_bit_s: float) -> None:
        self.rate_bit_s, self.sent_bytes = rate_bit_s, 0

    def begin(self, connections: Iterable[Connection]) -> None:
        pass

    def end(self) -> tuple[int, float]:
        return self.sent_bytes, 8 * self.sent_bytes / self.rate_bit_s


@dataclass
class Sender:
    """Half the bytes by fp16, in `codec_s` CPU seconds, and as long to decode; over a link."""

    coder: GatedCoder
    meter: Meter
    codec_s: float
    decode_s: float
    round: int = 0

    def go(self, rounds: int, rate_bit_s: float | None = None) -> list[str]:
        """Why each round's message went as it did."""
        self.meter.rate_bit_s = rate_bit_s or self.meter.rate_bit_s
        for _ in range(rounds):
            self.send()
        return [note["why"] for note in taken(self.coder)]

    def send(self, bounds: dict[str, float | None] | None = BOUNDS) -> Encoded:
        origin = type(ORIGIN)(seed=7, round=self.round, sender=1, world_size=3)
        encoded = self.coder.encode(AFTER, BEFORE, bounds=bounds, origin=origin)
        self.meter.sent_bytes = coded_bytes(encoded.entries)
        self.coder.sends([])
        self.coder.arrived(self.decode_s)
        self.round += 1
        return encoded


def _sender(time: FakeTime, *, codec_s: float, raw_s: float = 1.0, dilation: float = 1.0, **plan: object) -> Sender:
    """
    Args:
        raw_s: that the link takes for the message as it is.
    """

    class Slow(Fp16):
        def encode(self, values: Tensor, bound: float, context: Context) -> Tensor:
            time.work(sender.codec_s)
            return super().encode(values, bound, context)

    meter = Meter(8 * RAW_BYTES / raw_s)
    built = plan_up(codec="fp16", **plan)
    object.__setattr__(built, "coder", Slow())
    sender = Sender(
        GatedCoder(SCHEMA, built, Gate(), dilation=dilation, record=Recorded(), meter=meter), meter, codec_s, codec_s
    )
    return sender


def test_a_codec_that_never_pays_is_turned_off_and_tried_again(time: FakeTime) -> None:
    sender = _sender(time, codec_s=0.3)
    # of the first message nothing is taken: it started the codec's process
    assert sender.go(22) == [MEASURING] * 2 + OFF_AND_PROBE * 2
    encoded = sender.send()
    assert encoded.entries[0].codec == "raw" and encoded.tensors is not None
    assert bits(Coder(SCHEMA, plan_up(codec="fp16")).decode(encoded.entries, BEFORE, origin=ORIGIN)) == bits(AFTER)
    (note,) = taken(sender.coder)
    assert note == {
        "event": "gate",
        "compress": False,
        "why": NO_GAIN,
        "raw_s": pytest.approx(1.0),
        "compressed_s": pytest.approx(0.5 + 0.6, rel=0.01),
        "round": 22,
        "direction": "up",
    }


def test_a_fast_codec_on_a_slow_link_stays_on(time: FakeTime) -> None:
    sender = _sender(time, codec_s=0.05)
    assert sender.go(30) == [MEASURING] * 2 + [PAYS] * 28
    assert sender.send().entries[0].codec == "fp16"


def test_the_decision_follows_a_link_that_changes_and_a_codec_that_does(time: FakeTime) -> None:
    sender = _sender(time, codec_s=0.1)
    slow, fast = 8 * RAW_BYTES / 1.0, 8 * RAW_BYTES / 0.1
    assert sender.go(5)[2:] == [PAYS] * 3
    assert sender.go(9, fast)[-8:] == [NO_GAIN] * 8
    assert sender.go(12, slow)[-4:] == [PAYS] * 4
    sender.codec_s = sender.decode_s = 2.0
    assert set(sender.go(20)[-10:]) == {NO_GAIN, PROBE}
    sender.codec_s = sender.decode_s = 0.01
    assert PAYS in sender.go(40)


@pytest.mark.parametrize(("raw_s", "why"), [(0.15, NO_GAIN), (0.4, PAYS)])
def test_links_and_codecs_are_held_against_each_other_on_one_clock(time: FakeTime, raw_s: float, why: str) -> None:
    """With a dilation of 10 the wall has a codec ten times as fast beside its link."""
    sender = _sender(time, codec_s=0.05, raw_s=raw_s, dilation=10.0)
    assert sender.go(3)[-1] == why


def test_work_takes_its_cpu_seconds_at_least_and_longer_where_it_waits_for_a_core(time: FakeTime) -> None:
    spent = Elapsed(4.0)
    time.work(0.02)
    assert spent.seconds() == pytest.approx(0.02)
    time.sleep(0.38)
    assert spent.seconds() == pytest.approx(0.1)


def test_what_the_schedule_wants_lossless_is_not_asked_about(time: FakeTime) -> None:
    sender = _sender(time, codec_s=0.3)
    for _ in range(5):
        assert sender.send(None).entries[0].exact
    assert not taken(sender.coder)
    assert sender.coder.state_dict()["gate"]["rate_bit_s"] == pytest.approx(sender.meter.rate_bit_s)
    assert sender.coder.state_dict()["gate"]["ratio"] is None


def test_what_is_encoded_anew_is_decided_once_and_counts_whole(time: FakeTime) -> None:
    """Two tries and two looks at the loss, as with a schedule that does not accept the first."""
    sender = _sender(time, codec_s=0.1)
    sender.go(1)
    sender.meter.sent_bytes = RAW_BYTES // 2

    def loss() -> float:
        time.work(0.025)
        return 1.0

    looks = sender.coder.counted(loss)
    assert not sender.coder.skips(1)
    for _ in range(2):
        assert looks() == 1.0
        sender.coder.encode(AFTER, BEFORE, bounds=BOUNDS, origin=type(ORIGIN)(seed=7, round=1, sender=1, world_size=3))
    assert len(taken(sender.coder)) == 1
    sender.coder.sends([])
    sender.coder.arrived(0.5)
    found = sender.coder.state_dict()["gate"]
    assert found["compress_bytes_s"] == pytest.approx(RAW_BYTES / 0.25)
    assert found["decompress_bytes_s"] == pytest.approx(RAW_BYTES / 0.5)


def test_what_was_left_out_before_goes_along_raw(time: FakeTime) -> None:
    sender = _sender(time, codec_s=0.3, payload="delta", feedback=True)
    sender.go(2)
    kept = sender.coder.state_dict()["residuals"]["weight"]
    assert kept.any()
    encoded = sender.send()
    assert encoded.entries[0].codec == "raw" and encoded.tensors is not None
    assert torch.equal(encoded.tensors[0], AFTER[0] + kept)
    assert not sender.coder.state_dict()["residuals"]["weight"].any()


def test_what_is_kept_is_forgotten_with_its_model_and_what_was_measured_is_not(time: FakeTime) -> None:
    """As when the server goes back, and sends a whole model."""
    sender = _sender(time, codec_s=0.3, payload="delta", feedback=True)
    sender.go(3)
    sender.coder.residuals.keep({"weight": torch.ones_like(AFTER[0])})  # type: ignore[union-attr]
    known = sender.coder.state_dict()["gate"]
    sender.coder.forget()
    assert sender.coder.state_dict()["gate"] == known
    encoded = sender.send()
    assert encoded.entries[0].codec == "raw" and encoded.tensors is not None
    assert bits(encoded.tensors) == bits(AFTER)
    assert [note["why"] for note in taken(sender.coder)] == [NO_GAIN]


def test_a_gate_goes_on_from_its_state(time: FakeTime) -> None:
    sender = _sender(time, codec_s=0.3)
    sender.go(5)
    other = _sender(time, codec_s=0.3)
    other.coder.load_state_dict(sender.coder.state_dict())
    other.round = sender.round
    assert len(taken(other.coder)) == 1, "the last decision, which may not have been sent"
    assert sender.go(12) == other.go(12)


@pytest.mark.parametrize(("codec", "gates"), [("raw", False), ("zstd", True), ("fp16", True), ("sz3", True)])
def test_what_is_never_compressed_needs_no_gate(codec: str, gates: bool) -> None:
    plan = plan_up(codec=codec)
    assert can_gate(plan) is gates
    if gates:
        gate = Gate(margin=1e-9)
        gate.observe_codec(1000, 500, 1.0, 1.0)
        gate.observe_transfer(1000, 1.0)
        coder = GatedCoder(SCHEMA, plan, gate, dilation=1.0, record=Recorded(), meter=Meter(1e6))
        encoded = coder.encode(AFTER, BEFORE, bounds={"weight": 0.001}, origin=ORIGIN)
        assert {entry.codec for entry in encoded.entries} == {"raw"}
        assert bits(Coder(SCHEMA, plan).decode(encoded.entries, BEFORE, origin=ORIGIN)) == bits(AFTER)


def _pair() -> tuple[Connection, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    return Connection(near, own=0, peer=None, charge=lambda _: None), far


def test_what_the_kernel_says_of_a_transfer_is_bytes_and_seconds() -> None:
    connection, far = _pair()
    meter, size = TransferMeter(2.0), 20_000
    meter.begin([connection])
    assert connection.write([memoryview(bytes(size))]) == size
    received = 0
    while received < size:
        received += len(far.recv(size))
    far.sendall(b"answer")
    while not connection.read(memoryview(bytearray(6))):
        pass
    found = meter.end()
    assert found is not None
    assert found[0] == size and found[1] >= TICK_S / 2
    assert meter.end() is None
    meter.begin([connection])
    assert meter.end() is None  # nothing was sent
    meter.begin([connection])
    connection.close()
    assert meter.end() is None
    far.close()


def test_of_several_connections_the_slowest_counts_less_its_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    class Link:
        closed = False

        def __init__(self, busy_s: float, min_rtt_s: float) -> None:
            self.socket, self.busy_s, self.min_rtt_s, self.told = self, busy_s, min_rtt_s, 0

    def told(link: Link) -> transfer_meter.Acknowledged:
        link.told += 1
        return transfer_meter.Acknowledged(1000 * link.told, link.busy_s * link.told, link.min_rtt_s)

    monkeypatch.setattr(transfer_meter, "acknowledged", told)
    meter, links = TransferMeter(10.0), [Link(2.0, 1.5), Link(1.5, 0.25), Link(0.5, 0.0)]
    meter.begin(links)  # type: ignore[arg-type]
    assert meter.end() == (1000, pytest.approx(0.125))


@pytest.mark.parametrize("told", [b"", bytes(104)])
def test_a_kernel_that_does_not_tell_is_named(told: bytes) -> None:
    class Old:
        def getsockopt(self, *_: Any) -> bytes:
            return told

    with pytest.raises(RunError, match=r"TCP_INFO.*strategy\.gate=false"):
        acknowledged(Old())  # type: ignore[arg-type]
