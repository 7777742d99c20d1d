"""What a worker puts into a secure sum, and what the server makes of the sum: one row of all that is averaged.

First the parameters that learn, what a worker's clients have changed of them on average, times F_w / F; then the
model's statistics, what they have become less what the server had sent, times n_w / n. F_w is the sum of the factors of
the rule's weighting over the clients that worker w runs, n_w that of their samples, F and n those of all clients of the
round: all follow from who runs whom, which the server has told everybody, and from the population. So weights are no
secret, and no worker can lie about them. The more clients a worker has, the larger its row; each is about as large as
what a round changes, at most.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed.core.errors import RunError
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.aggregation.state import NOBODY, FederatedState
from testbed.worker.methods.federated.aggregation.weighting import Sent, Weighting
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.methods.federated.server_model import Places
from testbed.worker.methods.parameter_server.messages.schema import DISCRETE, PARAMETER, STATISTIC, Schema

Row = NDArray[np.float64]


class SecureVector:
    """Of one run; both ends have the same."""

    def __init__(self, schema: Schema, state: FederatedState, population: Population, method: Method) -> None:
        self._schema, self._population, self._method = schema, population, method
        self._weighting: Weighting = method.rule(len(population)).weighting
        places = Places(schema, state)
        reports = (places.owners, places.elapsed_s, places.losses)
        self.learning = places.learning
        """Where in the schema the parameters are that learn, in their order."""
        self.statistics = [at for at, item in enumerate(schema.items) if item.kind == STATISTIC and at not in reports]
        """Where the model's own buffers of floats are."""
        self._discrete = [at for at, item in enumerate(schema.items) if item.kind == DISCRETE and at not in reports]
        self._parts = [*self.learning, *self.statistics]
        self._sizes = [schema.items[at].numel for at in self._parts]
        self.size = sum(self._sizes)

    def ran(self, owners: Sequence[int], workers: Collection[int]) -> list[Sent]:
        """What is known of the clients that these workers run."""
        return [
            Sent(
                client=client,
                weight=self._population.samples(client),
                steps=self._method.effective_steps(self._population.steps(client)),
            )
            for client, owner in enumerate(owners)
            if owner != NOBODY and owner in workers
        ]

    def row(self, values: Sequence[Tensor], reference: Sequence[Tensor], owners: Sequence[int], worker: int) -> Row:
        """
        Args:
            values: of parameters what has changed, of all else what it has become.
            reference: what the server has sent.
            owners: of each client the worker that runs it, or NOBODY.
        """
        own, everybody = (self._weights(owners, workers) for workers in ([worker], set(owners)))
        shares = [part / whole for part, whole in zip(own, everybody, strict=True)]
        moved = [values[at].double() for at in self.learning]
        drifted = [values[at].double() - reference[at].double() for at in self.statistics]
        scaled = [*(shares[0] * one for one in moved), *(shares[1] * one for one in drifted)]
        found: Row = torch.cat([one.reshape(-1) for one in scaled]).numpy()
        return found

    def clear(self, values: Sequence[Tensor], reference: Sequence[Tensor]) -> list[Tensor]:
        """What an update has beside the row: reports. Of parameters no change; of all else of the model what the
        server has sent, so that what is discrete stays as it is."""
        hidden = {*self.statistics, *self._discrete}
        return [
            torch.zeros_like(value) if item.kind == PARAMETER else reference[at] if at in hidden else value
            for at, (item, value) in enumerate(zip(self._schema.items, values, strict=True))
        ]

    def means(
        self, summed: Row, reference: Sequence[Tensor], owners: Sequence[int], survivors: Collection[int]
    ) -> dict[int, Tensor]:
        """By place in the schema: of parameters the sum by the rule's weighting, of statistics the mean by samples, of
        what is discrete what it was.

        Args:
            summed: of the survivors' rows.

        Raises:
            RunError: these have run no client.
        """
        ran = self.ran(owners, survivors)
        if not ran:
            raise RunError(f"no client of this round has come: workers {sorted(survivors)} ran none")
        (factors, samples), (_, survived) = (self._weights(owners, workers) for workers in (set(owners), survivors))
        scales = [self._weighting.scale(ran) * factors] * len(self.learning)
        scales += [samples / survived] * len(self.statistics)
        found = {at: reference[at] for at in self._discrete}
        pieces = torch.from_numpy(summed).split(self._sizes)
        for at, piece, scale in zip(self._parts, pieces, scales, strict=True):
            item = self._schema.items[at]
            value = scale * piece.reshape(item.shape)
            found[at] = value if item.kind == PARAMETER else (reference[at].double() + value).to(item.dtype)
        return found

    def _weights(self, owners: Sequence[int], workers: Collection[int]) -> tuple[float, float]:
        """Sums over the clients that these run: of factors, and of samples."""
        ran = self.ran(owners, workers)
        return math.fsum(map(self._weighting.factor, ran)), math.fsum(one.weight for one in ran)
