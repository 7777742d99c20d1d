"""The samples of a workload, divided among clients as a run asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.core.errors import InputError
from testbed.core.federated.partitions import Partition
from testbed.core.spec import RunSpec
from testbed.worker.federated.population import Population
from testbed.worker.workload import NumberedWorkload, Workload


def division_faults(name: str, workload: Workload, clients: int, partition: Partition) -> Iterator[str]:
    """
    Args:
        name: of the strategy, as lines begin with it.
    """
    if not isinstance(workload, NumberedWorkload):
        yield f"{name}: {type(workload).__name__} has no samples that could be divided among clients"
    elif not workload.has_labels:
        yield f"{name}: {type(workload).__name__} has no labels, by which samples are divided among clients"
    elif workload.partition is not None:
        yield f"{name}: samples are divided among clients, by strategy.partition; leave workload.partition out"
    elif clients * partition.least > workload.samples():
        yield f"{name} strategy.clients={clients}: there are {workload.samples()} samples; use fewer clients"


def divided(
    workload: NumberedWorkload, spec: RunSpec, *, clients: int, partition: Partition, local_epochs: int
) -> Population:
    """Of the samples that are not held out.

    Raises:
        InputError: the partition cannot divide them among so many.
    """
    numbers = workload.left()
    labels = workload.labels()[numbers].tolist()
    try:
        parts = partition.divide(labels, clients, spec.seed)
    except ValueError as error:
        raise InputError(*(f"strategy.{line}" for line in str(error).splitlines())) from error
    return Population(
        [numbers[part].tolist() for part in parts], batch_size=spec.batch_size, epochs=local_epochs, seed=spec.seed
    )
