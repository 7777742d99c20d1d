"""Payloads that once did harm, or lead deep into a decoder, are answered or refused; fuzzing finds what is wrong."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from compressors.base.compressor import Context
from compressors.none import Uncompressed
from testbed.worker.laws import coverage, fuzz
from testbed.worker.laws.cases.malformed import MEMORY_BYTES, Decoder, memory_limit
from testbed.worker.laws.cases.registry import require
from tests.contract.catalogue import NAMES

FILES = sorted(fuzz.CORPUS.glob("*/*.bin"))


@pytest.mark.parametrize("name", sorted({path.parent.name for path in FILES}))
def test_the_corpus_is_answered_or_refused(name: str) -> None:
    against = fuzz.opponent(name)
    against.meet(against.sound()[0], "a sound payload")
    with memory_limit(MEMORY_BYTES):
        for path in sorted((fuzz.CORPUS / name).glob("*.bin")):
            against.meet(path.read_bytes(), path.name)


def test_the_corpus_is_of_members() -> None:
    assert FILES
    found = {path.parent.name for path in FILES}
    assert found <= set(NAMES) and {"topk", "gtopk", "oktopk", "signum", "onebit_adam", "policy"} <= found
    assert all(path.stat().st_size < 10_000 for path in FILES)


class Unhappy(Uncompressed):
    """Falls over bytes that no sound payload has: by an error, by its end, by taking too long."""

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        if bool((payload[: len(payload) // 4 * 4].view(torch.int32) == 0x7FFFFFFF).any()):
            os.kill(os.getpid(), signal.SIGSEGV)
        if len(payload) == 4 * out.numel() + 1:
            raise IndexError("one byte too many")
        super().decode(payload, out, context, add=add, scale=scale)


@pytest.mark.tier("all")
def test_fuzzing_finds_errors_and_crashes_and_keeps_what_led_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fuzz, "opponent", lambda name: Decoder(Unhappy()))
    # as many payloads as it takes, however busy the machine is
    limits = ["--seconds", "100", "--payloads", "1500", "--jobs", "1"]
    assert fuzz.main(["none", *limits, "--seed", "1", "--corpus", str(tmp_path)]) == 4
    out = capfd.readouterr().out
    assert "IndexError: one byte too many" in out
    assert "decoding ended the process with status -11" in out
    kept = [path.read_bytes() for path in (tmp_path / "none").glob("*.bin")]
    assert any(len(data) == 1201 for data in kept)
    assert any(b"\xff\xff\xff\x7f" in data for data in kept)


class Fragile:
    """Fails whatever it is given but what is sound."""

    def sound(self) -> list[bytes]:
        return [b"sound"]

    def meet(self, data: bytes, what: str) -> str | None:
        require(data == b"sound", f"{what}: falls over")
        return None

    def resealed(self, data: bytes) -> bytes:
        return data


def test_what_fails_again_counts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "opponent", lambda name: Fragile())
    monkeypatch.setattr(fuzz, "mutated", lambda *_: b"damaged")
    for _ in range(2):
        assert fuzz.main(["none", "--payloads", "3", "--jobs", "1", "--corpus", str(tmp_path)]) == 4
        assert [path.read_bytes() for path in (tmp_path / "none").iterdir()] == [b"damaged"]


def test_what_arrives_in_rounds_of_their_own_reaches_their_readers() -> None:
    for name, words in (
        ("gtopk", "GlobalTopK"),
        ("oktopk", "OkTopK"),
        ("signum", "Signum"),
        ("onebit_adam", "OneBitAdam"),
    ):
        against = fuzz.opponent(name)
        said = [against.meet(sound[:-1], "a byte less") or "" for sound in against.sound()]
        assert any(words in line for line in said), (name, said)


def test_fuzzing_what_is_sound_finds_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    limits = ["--seconds", "100", "--payloads", "600", "--jobs", "2"]
    assert fuzz.main(["topk", "gtopk", *limits, "--corpus", str(tmp_path)]) == 0
    assert "1200 payloads for 2 decoders" in (out := capfd.readouterr().out)
    assert "no finds" in out
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_unknown_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["nobody", "topk"]) == 2
    assert capsys.readouterr().err.startswith("nobody: unknown; known: ")


def test_fuzzing_by_coverage_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "atheris", None)
    assert coverage.main(["topk", "1"]) == 3
    assert capsys.readouterr().err == "atheris is not installed: .venv/bin/pip install atheris==3.0.0\n"
