"""The samples of a workload, divided among clients as a run asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from testbed.core.errors import InputError
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.interfaces.partition import Partition
from testbed.worker.interfaces.workload import Workload
from testbed.worker.interfaces.workload_capabilities import Numbered, is_labelled, labels_of
from testbed.worker.methods.federated.clients.population import Population


def division_faults(name: str, workload: Workload, clients: int, partition: Partition) -> Iterator[str]:
    """
    Args:
        name: of the strategy, as lines begin with it.
    """
    own = workload.partition if isinstance(workload, NumberedWorkload) else None
    if not isinstance(workload, Numbered):
        yield f"{name}: {type(workload).__name__} has no samples that could be divided among clients"
    elif partition.uses_labels and not is_labelled(workload):
        yield (
            f"{name}: {type(workload).__name__} has no labels, by which samples are divided among clients; use"
            " strategy.partition={_target_: testbed.worker.data.partitions.Iid}"
        )
    elif own is not None:
        yield f"{name}: samples are divided among clients, by strategy.partition; leave workload.partition out"
    elif clients * partition.least > workload.samples():
        yield f"{name} strategy.clients={clients}: there are {workload.samples()} samples; use fewer clients"


def divided(
    workload: Workload,
    spec: RunSpec,
    model: nn.Module,
    *,
    clients: int,
    partition: Partition,
    local_epochs: int,
    each_trains: bool = False,
) -> Population:
    """Of the samples that are not held out.

    Args:
        model: where it normalises over batches, none has one sample.
        each_trains: True if each client must be able to train.

    Raises:
        InputError: the partition cannot divide them among so many, or there would be batches of one where none
            may be.
    """
    least_batch = _least_batch(model, spec.batch_size)
    assert isinstance(workload, Numbered), "another one is refused"
    numbers = workload.left()
    labels = labels_of(workload)[numbers].tolist() if partition.uses_labels else [0] * len(numbers)
    try:
        parts = partition.divide(labels, clients, spec.seed)
    except ValueError as error:
        raise InputError(*(f"strategy.{line}" for line in str(error).splitlines())) from error
    population = Population(
        [numbers[part].tolist() for part in parts],
        batch_size=spec.batch_size,
        epochs=local_epochs,
        seed=spec.seed,
        least_batch=least_batch,
    )
    idle = sum(not population.can_train(client) for client in range(clients))
    if each_trains and idle:
        raise InputError(
            f"strategy.partition: {idle} clients have one sample, over which the model cannot normalise (BatchNorm);"
            " use strategy.partition.least=2, or fewer clients"
        )
    if idle == clients:
        raise InputError(
            f"strategy.clients={clients}: each has one sample, over which the model cannot normalise (BatchNorm); use"
            " fewer clients, or strategy.partition.least=2"
        )
    return population


def _least_batch(model: nn.Module, batch_size: int) -> int:
    if not normalises_batches(model):
        return 1
    if batch_size < 2:
        raise InputError(
            f"batch_size={batch_size}: the model normalises over batches (BatchNorm), which takes 2 samples or more;"
            " use a larger one"
        )
    return 2


def normalises_batches(model: nn.Module) -> bool:
    """Whether a module of it is one of torch's BatchNorm, of any dimension."""
    return any(isinstance(module, _BatchNorm) for module in model.modules())
