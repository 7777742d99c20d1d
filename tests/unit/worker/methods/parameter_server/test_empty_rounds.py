"""Rounds of which nothing comes, as a strategy may let them pass: the next one goes on from the same model."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.worker.methods.federated.fleet import EmptyRound
from testbed.worker.methods.parameter_server.bounds.adaptive import AdaptiveBound
from testbed.worker.methods.parameter_server.bounds.baselines import Fixed, LinearDecay
from testbed.worker.methods.parameter_server.bounds.rounds import BoundSchedule
from testbed.worker.methods.parameter_server.rounds.average import Average
from testbed.worker.methods.parameter_server.rounds.client_reports import ClientReports
from tests.unit.worker.server_models import bits
from tests.unit.worker.server_rounds import SZ3, agree, rounds


@pytest.mark.parametrize("schedule", [Fixed(alpha=0.1), LinearDecay(alpha=0.3, rounds=3), AdaptiveBound(alpha=0.1)])
def test_schedules_are_told_of_the_others_alone(schedule: BoundSchedule, monkeypatch: pytest.MonkeyPatch) -> None:
    with rounds(up=SZ3, down=SZ3, schedule=schedule) as played:
        played.round(0)
        for empty, good in ((1, 2), (3, 4)):
            before = bits(played.model.values)
            with monkeypatch.context() as patched:
                patched.setattr(Average, "mean", _nothing)
                with pytest.raises(EmptyRound):
                    played.round(empty)
            assert bits(played.model.values) == before
            alpha = played.schedule.alpha
            note = played.round(good)
            assert note["round"] == good and note["alpha"] == alpha and bits(played.model.values) != before
            agree(played)
        assert played.server.state_dict()["ended"] == 3


def test_of_what_is_told_only_those_who_count_are_kept_but_for_bytes() -> None:
    told = ClientReports(samples={0: 1, 2: 5}, losses={0: 8.0, 2: 2.0}, rms={0: [1.0], 2: [2.0]}, coded_bytes=7)
    told.decoding_s[0] = 1.0
    found = told.only([2, 3])
    assert (found.samples, found.losses, found.rms, found.decoding_s) == ({2: 5}, {2: 2.0}, {2: [2.0]}, {})
    assert (found.coded_bytes, found.train_loss, told.samples) == (7, 2.0, {0: 1, 2: 5})


def _nothing(average: Any) -> Any:
    raise EmptyRound
