"""Data sets that workloads fetch, in tests: the real ones where they can be had, and invented ones everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testbed.core.errors import InputError
from testbed.worker.data.array_cache import Array
from testbed.worker.data.published import next_byte
from testbed.worker.data.published.dataset import Dataset
from testbed.worker.interfaces.workload import Workload
from testbed.worker.interfaces.workload_capabilities import preload
from testbed.worker.workloads import fashion


def require_data(workload: Workload) -> None:
    """Have the data fetched; skip the test only if this machine cannot get them."""
    try:
        preload(workload)
    except InputError as error:
        if "has sha256" in str(error) or "came to other data" in str(error):
            raise
        pytest.skip(str(error))


@contextmanager
def invented(array: Array) -> Iterator[None]:
    """Let `array` be what every data set holds."""
    loads = (fashion._rows, next_byte._corpus)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dataset, "array", lambda self: array)
        for load in loads:
            load.cache_clear()
        try:
            yield
        finally:
            for load in loads:
                load.cache_clear()
