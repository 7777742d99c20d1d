from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.worker.device import median
from testbed.worker.methods.low_rank import layer_times
from testbed.worker.profile import codec_times


@pytest.fixture(scope="module", autouse=True)
def _few_repetitions() -> Iterator[None]:
    """What is measured here is held to be there, not to be exact: three repetitions are the least there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(median.repeated, "__defaults__", (0.0,))
        patch.setattr(codec_times, "_REPEAT_S", 0.0)
        patch.setattr(layer_times, "_BUDGET_S", 0.0)
        yield
