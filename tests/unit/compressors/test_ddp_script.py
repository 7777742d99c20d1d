"""The hook in a plain DDP script, with the C libraries too; `make wheels-check` runs it where a wheel is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.compressors.ddp_script import assert_trained, trained

SHARES = {
    "none": 1.0,
    "topk": 0.2,
    "powersgd": 0.6,
    "int8": 0.3,
    "sz3": 0.9,
    "zfp": 0.9,
    "int8_zstd": 0.3,
    "blosc2": 1.1,
}


@pytest.mark.tier("slow")
def test_a_plain_ddp_script_trains_with_compressors_of_each_kind(tmp_path: Path) -> None:
    assert_trained(trained(Path(sys.executable), tmp_path, list(SHARES)), SHARES)
