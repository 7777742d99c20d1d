from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from testbed.core.errors import InputError
from testbed.worker.data import array_cache
from testbed.worker.data.array_cache import Array
from testbed.worker.data.published.dataset import Dataset
from testbed.worker.data.published.packages import DebianPackage

ROWS = np.arange(12, dtype=np.uint8).reshape(3, 4)
PACKAGE = DebianPackage(
    name="images", version="1-1", filename="images_1-1_all.deb", sha256="", size_bytes=30_900_000, files={}
)


class Read:
    """Reads of a package's files, counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(DebianPackage, "read", self._read)

    def _read(self, given: Path) -> Mapping[str, bytes]:
        self.count += 1
        return {}


def _dataset(array: Array = ROWS, sha256: str = array_cache.sha256(ROWS)) -> Dataset:
    return Dataset(name="clothes", package=PACKAGE, licence="MIT", sha256=sha256, parse=lambda _: array)


def test_data_are_made_once_and_mapped_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, cache = Read(monkeypatch), tmp_path / ".cache" / "datasets"
    assert _dataset().to_fetch(cache) == "workload clothes: fetching its data once: Debian package images 1-1, 30.9 MB"
    for _ in range(2):
        found = _dataset().array(cache)
        assert isinstance(found, np.memmap) and np.array_equal(found, ROWS)
    assert read.count == 1 and _dataset().to_fetch(cache) is None
    found[0, 0] = 7  # is this process's own
    assert np.array_equal(_dataset().array(cache), ROWS)


def test_a_damaged_copy_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, cache = Read(monkeypatch), tmp_path / ".cache" / "datasets"
    _dataset().array(cache)
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:-1] + b"\xff")
    assert np.array_equal(_dataset().array(cache), ROWS) and read.count == 2


def test_other_data_than_expected_are_refused_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Read(monkeypatch)
    with pytest.raises(InputError, match=r"workload clothes: Debian package images .* came to other data, sha256"):
        _dataset(ROWS + 1).array(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_cache_that_cannot_be_written_costs_the_sharing_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Read(monkeypatch)
    (tmp_path / "file").write_text("no folder")
    assert np.array_equal(_dataset().array(tmp_path / "file" / "datasets"), ROWS)
