"""Updates decoded while others arrive: the same bits, at the same time, and every fault where it belongs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from compressors.base.payload import PayloadError
from compressors.parts import codec_process
from compressors.parts.codec_process import CodecProcessError
from compressors.sz3 import SZ3
from compressors.topk import TopK
from testbed.worker.device.clock import PhaseClock
from testbed.worker.methods.parameter_server.messages import decoders as decoders_module
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.decoders import Decoded, Decoders, Ended
from testbed.worker.methods.parameter_server.messages.entries import Entry
from testbed.worker.methods.parameter_server.rounds.client_reports import ClientReports
from testbed.worker.methods.parameter_server.transport.frame_errors import Refusal, Refused
from testbed.worker.methods.parameter_server.transport.frames import Frame, Kind
from testbed.worker.strategies.parameter_server import ParameterServer
from testbed.worker.workloads.digits import Digits
from tests.unit.worker.server_models import ORIGIN, bits, one, plan_up
from tests.unit.worker.server_net import frame_of

SCHEMA, BEFORE, AFTER = one()
HANG_S = 100.0
Coming = Iterator[tuple[int, Frame]]


@pytest.fixture(params=[0, 1, 2])
def decoders(request: pytest.FixtureRequest) -> Iterator[Decoders]:
    made = Decoders(request.param, PhaseClock())
    yield made
    made.close()


def _frames(count: int) -> Coming:
    return ((client, frame_of(Kind.UPDATE, client)) for client in range(count))


def _answer(client: int, frame: Frame) -> tuple[list[Entry], list[Tensor]]:
    assert frame.sender == client
    return [], [torch.tensor([client])]


def test_whatever_decodes_the_bits_are_those_of_one_thread(decoders: Decoders) -> None:
    coder = Coder(SCHEMA, plan_up(dither=True))
    sent = [[(1 + client / 10) * AFTER[0]] for client in range(4)]
    encoded = [coder.encode(each, BEFORE, bounds={"weight": 1e-3}, origin=ORIGIN) for each in sent]
    assert {one.entries[0].codec for one in encoded} == {"sz3"}

    def decode(client: int, frame: Frame) -> tuple[list[Entry], list[Tensor]]:
        entries = encoded[client].entries
        return entries, coder.decode(entries, BEFORE, origin=ORIGIN)

    ours = codec_process._ours.pid
    found = dict(decoders.each(_frames(4), decode))
    assert sorted(found) == [0, 1, 2, 3]
    for client, end in found.items():
        tensors = encoded[client].tensors
        assert isinstance(end, Decoded) and tensors is not None
        assert bits(end.tensors) == bits(tensors)
        assert end.decode_s > 0 and end.frame.sender == client
    processes = list(decoders._processes)
    pids = {process.pid for process in processes} - {None}
    assert min(1, decoders.count) <= len(pids) <= decoders.count and ours not in pids
    assert codec_process._ours.pid == ours  # this thread's goes on
    decoders.close()
    assert not any(process.pid for process in processes)


def test_as_many_are_decoded_at_the_same_time_as_there_are_decoders_and_while_others_arrive() -> None:
    """Each waits for the other, and the third message does not come before both are being decoded."""
    decoders, both = Decoders(2, PhaseClock()), threading.Barrier(3, timeout=HANG_S)

    def coming() -> Coming:
        yield 0, frame_of(Kind.UPDATE, 0)
        yield 1, frame_of(Kind.UPDATE, 1)
        both.wait()
        yield 2, frame_of(Kind.UPDATE, 2)

    def decode(client: int, frame: Frame) -> tuple[list[Entry], list[Tensor]]:
        if client < 2:
            both.wait()
        return _answer(client, frame)

    assert sorted(client for client, _ in decoders.each(coming(), decode)) == [0, 1, 2]
    decoders.close()


def test_what_is_a_clients_fault_is_told_of_it_and_the_others_arrive(decoders: Decoders) -> None:
    few = Refused(Refusal.NUMBER, found="0 samples", asked="at least 1")

    def decode(client: int, frame: Frame) -> tuple[list[Entry], list[Tensor]]:
        if client == 1:
            raise few
        if client == 2:
            raise PayloadError("weight: decodes to NaN")
        return _answer(client, frame)

    found: dict[int, Ended] = dict(decoders.each(_frames(4), decode))
    assert isinstance(found[0], Decoded) and found[1] is few and isinstance(found[3], Decoded)
    assert isinstance(found[2], PayloadError) and str(found[2]) == "weight: decodes to NaN"


def test_what_is_nobodys_fault_is_raised(decoders: Decoders) -> None:
    def decode(client: int, frame: Frame) -> tuple[list[Entry], list[Tensor]]:
        raise CodecProcessError("sz3_decode: its library cannot be loaded in the helper process")

    with pytest.raises(CodecProcessError, match="cannot be loaded"):
        list(decoders.each(_frames(2), decode))


def test_decoders_take_emulated_time_and_what_is_left_of_it_is_decompression(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 ms of a core, with a dilation of 10: 0.2 s on the wall at least, whatever else runs."""
    clock, waited_for = PhaseClock(dilation=10.0), threading.Event()
    decoders, wait = Decoders(1, clock), decoders_module.wait

    def waits(*given: Any, **how: Any) -> Any:
        waited_for.set()
        return wait(*given, **how)

    monkeypatch.setattr(decoders_module, "wait", waits)

    def decode(client: int, frame: Frame) -> tuple[list[Entry], list[Tensor]]:
        assert waited_for.wait(HANG_S), "nobody waits for what is decoded"
        begun_s = time.thread_time()
        while time.thread_time() - begun_s < 0.02:
            torch.ones(1000).sum()
        return _answer(client, frame)

    ((_, found),) = decoders.each(_frames(1), decode)
    assert isinstance(found, Decoded) and found.decode_s >= 0.02
    taken = clock.take()
    assert set(taken) == {"decompress"} and taken["decompress"] > 0.01
    decoders.close()


def _told(*updates: tuple[float, float | None]) -> ClientReports:
    """
    Args:
        updates: seconds that decoding the model took each client, and decoding its update, if that is compressed.
    """
    told, coder = ClientReports(), Coder(SCHEMA, plan_up(lossless="zstd"))
    for client, (model_s, update_s) in enumerate(updates):
        values, bounds = (BEFORE, None) if update_s is None else (AFTER, {"weight": 1e-3})  # BEFORE is unchanged
        entries = coder.encode(values, BEFORE, bounds=bounds, origin=ORIGIN).entries
        frame = replace(frame_of(Kind.UPDATE, client), decode_s=model_s)
        told.add(client, Decoded(frame, entries, [], update_s or 9.0))
    return told


def test_what_clients_are_told_is_what_all_updates_take() -> None:
    assert ClientReports().decode_s(0) == _told((0.0, None)).decode_s(2) == 0.0
    assert _told((0.0, 0.2), (0.0, 0.4), (0.0, None)).decode_s(0) == pytest.approx(0.9)
    assert _told((0.0, 0.2), (0.0, 0.4), (0.0, None)).decode_s(2) == pytest.approx(0.45)


def test_the_server_goes_by_the_client_that_took_longest_to_decode_the_model() -> None:
    assert _told((0.3, 0.2), (0.5, None), (0.0, 0.1)).model_decode_s == 0.5


def test_one_thread_decodes_what_a_compressor_has_sent() -> None:
    """Which may keep something between two calls, and may lean on that of others."""
    workload, topk = Digits(), TopK()
    (fault,) = ParameterServer(decoders=2).validate(topk, workload, 3)
    assert "strategy.decoders=2: what TopK sends is decoded by one thread alone; use 0, or" in fault
    assert not list(ParameterServer().validate(topk, workload, 3))
    assert not list(ParameterServer(decoders=2).validate(SZ3(), workload, 3))
    with pytest.raises(ValueError, match=r"gate=always: must be true, false.*\ndecoders=-1: "):
        ParameterServer(decoders=-1, gate="always")  # type: ignore[arg-type]
