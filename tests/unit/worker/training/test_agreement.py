"""What strategies declare about lost ranks and the parameters they end with, before a run is built."""

from __future__ import annotations

import dataclasses

import pytest
import yaml

from testbed.core.errors import InputError
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.worker.interfaces.strategy import Agreement, StepStats, Strategy, WorkerContext
from testbed.worker.interfaces.workload import Batch
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import CONF, make_spec


class Alone(Strategy):
    """Sends nothing, and its ranks end apart."""

    agreement = Agreement.NONE

    def bind(self, context: WorkerContext) -> None:
        return

    def step(self, batch: Batch, step: int) -> StepStats:
        return StepStats(None)


class Expendable(Alone):
    agreement = Agreement.BY_STRATEGY
    uses_collectives = False

    def tolerates_loss_of(self, rank: int) -> bool:
        return rank == 1


class Waited(Expendable):
    uses_collectives = True


class Averaged(Expendable):
    agreement = Agreement.MEAN_AT_END


def _spec(strategy: type[Strategy]) -> RunSpec:
    return dataclasses.replace(make_spec(), strategy=Part("mine", f"{__name__}.{strategy.__name__}"))


def test_a_strategy_goes_on_without_a_rank_if_no_exchange_needs_all() -> None:
    assert isinstance(build_parts(_spec(Expendable)).strategy, Expendable)


@pytest.mark.parametrize(("strategy", "why"), [(Waited, "uses_collectives"), (Averaged, "agreement=MEAN_AT_END")])
def test_one_that_waits_for_ranks_it_goes_on_without_contradicts_itself(strategy: type[Strategy], why: str) -> None:
    with pytest.raises(InputError) as caught:
        build_parts(_spec(strategy))
    (fault,) = caught.value.faults
    assert fault.startswith("strategy=mine: says that it tolerates the loss of rank 1") and why in fault


def test_a_model_that_changes_later_has_to_be_the_same_on_all_ranks() -> None:
    settings = yaml.safe_load((CONF / "transform" / "cuttlefish.yaml").read_text())
    change = Part("cuttlefish", settings.pop("_target_"), settings)
    with pytest.raises(InputError, match="transform=cuttlefish: changes the model of all ranks alike, and those of"):
        build_parts(dataclasses.replace(_spec(Alone), transform=change, steps=100))
    assert isinstance(build_parts(_spec(Alone)).strategy, Alone)
