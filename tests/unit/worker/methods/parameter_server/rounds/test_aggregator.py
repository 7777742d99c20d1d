"""No client weighs more than what it can have trained on."""

from __future__ import annotations

import pytest

from testbed.worker.methods.parameter_server.rounds.aggregator import Aggregator
from testbed.worker.methods.parameter_server.transport.frame_errors import Refused


@pytest.mark.parametrize("samples", [321, 2**53, 2**64 - 1])
def test_who_says_more_than_it_can_have_trained_on_is_refused(samples: int) -> None:
    aggregator = Aggregator(320)
    with pytest.raises(Refused, match=f"{samples} samples; it must be at most 320"):
        aggregator.check(1, samples, [])
    aggregator.check(1, 320, [])


def test_who_says_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="at least 1"):
        Aggregator(320).check(1, 0, [])
