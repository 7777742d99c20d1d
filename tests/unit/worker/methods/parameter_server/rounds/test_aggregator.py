"""No client weighs more than what it can have trained on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.worker.methods.parameter_server.membership.assignment import ServerAssignment
from testbed.worker.methods.parameter_server.rounds.aggregator import Aggregator
from testbed.worker.methods.parameter_server.transport.frame_errors import Refused
from testbed.worker.strategies.parameter_server import ParameterServer


@pytest.mark.parametrize("samples", [321, 2**53, 2**64 - 1])
def test_who_says_more_than_it_can_have_trained_on_is_refused(samples: int) -> None:
    aggregator = Aggregator(lambda _: 320)
    with pytest.raises(Refused, match=f"{samples} samples; it must be at most 320"):
        aggregator.check(1, samples, [])
    aggregator.check(1, 320, [])


def test_who_says_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="at least 1"):
        Aggregator(lambda _: 320).check(1, 0, [])


def test_a_region_weighs_what_its_own_clients_can_have_trained_on() -> None:
    """Ranks 1 and 4 serve regions of two clients and of one; rank 6 serves nobody."""
    assignment = ServerAssignment((0, 0, 1, 1, 0, 4, 0))
    strategy = ParameterServer(local_steps=3)
    context: Any = SimpleNamespace(world_size=7, spec=SimpleNamespace(batch_size=32))
    strategy._context = context
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategy, "_assignment", lambda _: assignment)
        aggregator = strategy._aggregator()
    for rank, clients in ((1, 2), (4, 1), (6, 1)):
        aggregator.check(rank - 1, 96 * clients, [])
        with pytest.raises(Refused, match=f"must be at most {96 * clients}"):
            aggregator.check(rank - 1, 96 * clients + 1, [])
