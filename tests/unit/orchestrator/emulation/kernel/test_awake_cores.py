"""Idle cores poll while links are emulated: the kernel has the wish while it is held, or says why not."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from testbed.orchestrator.emulation.kernel import awake_cores
from testbed.orchestrator.emulation.kernel.awake_cores import AwakeCores


def test_the_kernel_has_the_wish_while_it_is_held() -> None:
    with AwakeCores() as cores:
        if cores.refusal is None:
            assert struct.unpack("i", Path("/dev/cpu_dma_latency").read_bytes()[:4]) == (0,)
        else:
            with pytest.raises(OSError, match="cpu_dma_latency"):
                os.open("/dev/cpu_dma_latency", os.O_WRONLY)


def test_nothing_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "latency"
    file.touch()
    monkeypatch.setattr(awake_cores, "_LATENCY", str(file))
    before = set(os.listdir("/proc/self/fd"))
    with AwakeCores() as cores:
        assert set(os.listdir("/proc/self/fd")) - before
        assert cores.refusal is None and file.read_bytes() == bytes(4)
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("where", ["missing/latency", "."])
def test_a_machine_that_refuses_says_why(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awake_cores, "_LATENCY", str(tmp_path / where))
    with AwakeCores() as cores:
        assert cores.refusal is not None and str(tmp_path / where) in cores.refusal
