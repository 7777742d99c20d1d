"""Readers of what others have written are fuzzed as decoders are: past checksums, and watched in what they write."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from compressors.base.payload import PayloadError
from compressors.parts import frame
from testbed.worker.laws import fuzz
from testbed.worker.laws.cases.malformed import MEMORY_BYTES, memory_limit, mutated
from testbed.worker.laws.cases.registry import LawBroken
from tests.fuzzing import readers
from tests.fuzzing.__main__ import main, shared
from tests.fuzzing.readers import CORPUS, READERS, Topologies

TRIES = 25


@pytest.mark.parametrize("name", READERS)
def test_readers_take_what_is_sound_and_withstand_the_rest(name: str) -> None:
    reader, draw = READERS[name](), random.Random(0)
    pool = reader.sound()
    assert [reader.meet(data, "a sound one") for data in pool] == [None] * len(pool)
    kept = [path.read_bytes() for path in sorted((CORPUS / name).glob("*.bin"))]
    with memory_limit(MEMORY_BYTES):
        for data in [*kept, *(reader.resealed(mutated(draw.choice(pool), draw, pool)) for _ in range(TRIES))]:
            reader.meet(data, name)


@pytest.mark.parametrize("name", ["sz3", "zfp", "blosc2", "frames"])
def test_damaged_bytes_get_past_the_checksum(name: str) -> None:
    against, draw = READERS[name]() if name in READERS else fuzz.opponent(name), random.Random(0)
    pool = against.sound()
    damaged = [mutated(draw.choice(pool), draw, pool) for _ in range(60)]
    words = ("checksum", "carries the code", "bytes follow", "announce")
    stopped = [
        sum(any(word in (against.meet(change(data), name) or "") for word in words) for data in damaged)
        for change in (lambda data: data, against.resealed)
    ]
    assert stopped[1] < stopped[0] / 2, "refused for its checksum: before, and once that is right"


def test_a_sealed_frame_is_as_it_was() -> None:
    payload = bytes(frame.pack("sz3", frame.RAW, 3, torch.arange(12, dtype=torch.uint8)).numpy())
    assert frame.resealed(payload) == payload
    assert frame.resealed(b"ab" + payload[:-1]) != b"ab" + payload[:-1]
    assert frame.resealed(b"no frame") == b"no frame"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("codec", ["sz3", "zfp"])
def test_what_a_codec_never_packs_is_refused(codec: str, value: float) -> None:
    """The frame is right: whoever sent it knew how."""
    body = torch.tensor([1.0, value, 3.0]).view(torch.uint8)
    against = fuzz.opponent(codec)
    payload = bytes(frame.pack(codec, frame.RAW, 300, body.repeat(100)).numpy())
    assert "never packs" in (against.meet(payload, codec) or "")
    with pytest.raises(PayloadError, match="NaN or infinity"):
        frame.floats(frame.pack(codec, frame.RAW, 3, body), codec, 3, finite=True)


class Careless(Topologies):
    def _read(self, folder: Path) -> None:
        (folder.parent / "outside").touch()


def test_a_reader_that_writes_elsewhere_is_found() -> None:
    with pytest.raises(LawBroken, match=r"wrote outside: .*'outside'"):
        Careless().meet(b"", "careless")


def test_readers_have_half_of_the_time() -> None:
    turns = shared([*"abcdefgh", "frames", "models"])
    assert [turns.count(name) for name in ("a", "frames", "models")] == [1, 4, 4]
    assert shared(["frames"]) == ["frames"] and shared(["a", "b"]) == ["a", "b"]


def test_all_are_fuzzed_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(readers, "CORPUS", tmp_path)
    assert main(["topk", "frames", "telemetry", "--seconds", "100", "--payloads", "300", "--jobs", "1"]) == 0
    assert "300 payloads for 3 decoders" in (out := capfd.readouterr().out) and "no finds" in out
    assert main(["nobody"]) == 2
