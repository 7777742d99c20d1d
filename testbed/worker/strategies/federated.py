"""Federated learning: many clients with samples of their own, of which some take part in each round."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any

from compressors.base.compressor import Compressor
from testbed.core.kinds import Choice, Part, Settings
from testbed.core.parameters import Count, CountOrZero, Flag, Fraction, NotNegative, Positive, Seconds, raise_all
from testbed.worker.data.partitions import Dirichlet
from testbed.worker.interfaces.partition import AnyPartition
from testbed.worker.interfaces.strategy import StepStats, WorkerContext
from testbed.worker.interfaces.workload import Batch, Workload
from testbed.worker.methods.federated.aggregation.attacks import Attack
from testbed.worker.methods.federated.aggregation.methods import RULES, Method
from testbed.worker.methods.federated.aggregation.robust import Defence
from testbed.worker.methods.federated.aggregation.state import FederatedState
from testbed.worker.methods.federated.client_selection import AnyAvailability, AnySelection, ClientSelection, Overselect
from testbed.worker.methods.federated.client_sequence import ClientSequence
from testbed.worker.methods.federated.clients.division import divided, division_faults
from testbed.worker.methods.federated.clients.population import Population
from testbed.worker.methods.federated.clients.slowness import Sigma, Slowness
from testbed.worker.methods.federated.fleet import PLACEMENTS, EmptyRound
from testbed.worker.methods.federated.local_client import LocalClient
from testbed.worker.methods.federated.parameters import Speeds, attack_faults, faults_of, travel_faults
from testbed.worker.methods.federated.secure_aggregation.faults import clashes, masked_uplink, secure_faults
from testbed.worker.methods.federated.secure_aggregation.secure import Secure
from testbed.worker.methods.federated.secure_aggregation.server import SecureFederation
from testbed.worker.methods.federated.secure_aggregation.vector import SecureVector
from testbed.worker.methods.federated.secure_aggregation.worker import SecureWorker
from testbed.worker.methods.federated.server_model import Federation
from testbed.worker.methods.parameter_server.bounds.rounds import AnyBound
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.methods.parameter_server.rounds.aggregator import Aggregator
from testbed.worker.methods.parameter_server.rounds.exchanges import Exchanging
from testbed.worker.methods.parameter_server.rounds.update_source import Training
from testbed.worker.methods.parameter_server.strategy import Decoders, Direction, GateOrFlag, ServerStrategy


class Federated(ServerStrategy):
    """Rounds of a server, its workers, and the clients that these run, one after another. A step is a round.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
    arXiv:1602.05629 (fedavg), and what has followed: see `testbed.worker.methods.federated.aggregation.rules` and
    `.corrections`. Samples
    belong to clients for good, by a partition; in each round the server draws clients, and each takes `local_epochs`
    over its own samples, from the server's parameters, with a new optimizer. Clients are no processes: as in Tang et
    al., "FedML Parrot", arXiv:2303.01778, the server places them on its workers, each of which sends one mean of all
    that it has run. So bytes are those of workers. Where as many clients take part as there are workers, each worker
    runs one, and links carry what they would of clients.

    Rank 0 is the server, the others are its workers. Messages, codecs, bounds, timeouts and who is lost are those of
    `testbed.worker.strategies.parameter_server`, with payload=delta each way. With scaffold, parameters and control
    variates travel: twice the bytes each way. Clients that keep something (scaffold, feddyn) stay on the worker that
    ran them first; a worker that is lost takes their memory along, and one that comes back begins with none.
    Cost in memory of a worker, with these two methods: 4 bytes a parameter and client.

    Args:
        method: Federated method. See `testbed.worker.methods.federated.aggregation`.
        server: Parameters of the server's rule: strategy.server.
        mu: Weight of fedprox's term; null: 0.01.
        alpha: Weight of feddyn's regulariser; null: 0.01.
        learning_rate: Learning rate of clients' SGD; null: workload's optimizer.
        momentum: Momentum of clients' SGD.
        clients: Number of clients.
        participants: Clients per round; null: all. All too where there are fewer.
        selection: Choice of a round's clients; null: equal probability.
        availability: Times at which clients are available; null: always.
        deadline_s: Client time after which it is cut; null: never. Emulated seconds of the client's own.
        overselect: Multiple of `participants` drawn; the first done count.
        partition: Division of the samples; null: `Dirichlet`, alpha 0.3.
        local_epochs: Epochs per client.
        placement: Placement of clients on workers. longest_first: by what clients have taken so far on each worker;
            equal: equally many on each.
        speeds: Relative speed of each worker; null: all 1. At 0.5 a client takes twice as long.
        straggler_sigma: Sigma of clients' lognormal slow-down, drawn per round. See
            `testbed.worker.methods.federated.clients.slowness`.
        defence: Rule that replaces the mean. A worker runs one client then.
        attack: Attack of the first `attackers` clients.
        attackers: Number of attackers.
        secure: Secure sums: the server learns nothing else.
        uplink: Parameters of updates: as strategy.uplink, with payload=delta only.
        downlink: Parameters of models: as strategy.downlink, with payload=delta only.

    Raises:
        ValueError: a parameter is not one of these.
    """

    name = "federated"

    def __init__(
        self,
        *,
        method: Annotated[str, Choice(RULES)] = "fedavg",
        server: Annotated[Mapping[str, Any], Settings()] | None = None,
        mu: NotNegative | None = None,
        alpha: Positive | None = None,
        learning_rate: Positive | None = 0.05,
        momentum: Fraction = 0.0,
        clients: Count = 100,
        participants: Count | None = 20,
        selection: AnySelection | None = None,
        availability: AnyAvailability | None = None,
        deadline_s: Seconds | None = None,
        overselect: Overselect = 1.0,
        partition: AnyPartition | None = None,
        local_epochs: Count = 1,
        placement: Annotated[str, Choice(PLACEMENTS)] = "longest_first",
        speeds: Speeds | None = None,
        straggler_sigma: Sigma = 0.0,
        defence: Annotated[Defence, Part(Defence, "a Defence")] | None = None,
        attack: Annotated[Attack, Part(Attack, "an Attack")] | None = None,
        attackers: CountOrZero = 0,
        secure: Annotated[Secure, Part(Secure, "a Secure")] | None = None,
        uplink: Direction | None = None,
        downlink: Direction | None = None,
        bound: AnyBound | None = None,
        probe_samples: Count = 200,
        round_timeout_s: Seconds = 120.0,
        gate: GateOrFlag = False,
        decoders: Decoders = 0,
        checkpoint: Flag = False,
    ) -> None:
        asked = partial(Method, name=method, server={} if server is None else server, mu=mu, alpha=alpha)
        asked = partial(asked, learning_rate=learning_rate, momentum=momentum)
        client_selection = partial(
            ClientSelection, clients=clients, participants=participants, sees_each=defence is not None
        )
        client_selection = partial(client_selection, selection=selection, availability=availability)
        client_selection = partial(client_selection, deadline_s=deadline_s, overselect=overselect)
        self._uplink = uplink
        up: Any = uplink if secure is None else masked_uplink(uplink)
        begin = partial(super().__init__, local_steps=1, uplink=up, downlink=downlink, bound=bound, gate=gate)
        begin = partial(begin, probe_samples=probe_samples, round_timeout_s=round_timeout_s)
        raise_all(
            *attack_faults(attack, attackers, clients),
            *clashes(
                *(secure,),
                defence=defence,
                attack=attack,
                gate=gate,
                checkpoint=checkpoint,
                selection=selection,
                availability=availability,
                deadline_s=deadline_s,
                overselect=overselect != 1.0,
            ),
            *travel_faults({"uplink": uplink, "downlink": downlink}),
            *faults_of(asked),
            *faults_of(client_selection),
            *faults_of(partial(begin, decoders=decoders, checkpoint=checkpoint)),
        )
        self._method, self._client_selection = asked(), client_selection()
        self.clients, self.participants = clients, self._client_selection.wanted
        self.partition = Dirichlet() if partition is None else partition
        self.local_epochs, self.placement, self.speeds = local_epochs, placement, speeds
        self.straggler_sigma = straggler_sigma
        self.defence, self.attack, self.attackers, self.secure = defence, attack, attackers, secure

    def part(self, rank: int, world_size: int) -> None:
        """Samples are clients'."""

    def validate(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
        name = f"strategy={self.name}"
        yield from super().validate(compressor, workload, world_size)
        workers = world_size - 1
        if workers < 1:
            yield f"{name}: a server needs at least one worker; use workers=2 or more"
            return
        if self.speeds is not None and len(self.speeds) != workers:
            yield f"{name} strategy.speeds: {len(self.speeds)} for {workers} workers; give one for each but the server"
        if self.defence is not None:
            yield from (f"{name} strategy.defence: {fault}" for fault in self._defence_faults(self.defence, workers))
        yield from self._client_selection.workload_faults(name, workload)
        if self.secure is not None:
            asked: Any = {"up": self._uplink, "down": self._asked["down"]}
            placed: Any = {"participants": self.participants, "placement": self.placement}
            against = secure_faults(self.secure, self._method, compressor, workers, **placed, **asked)
            yield from (f"{name} strategy.{fault}" for fault in against)
        yield from division_faults(name, workload, self.clients, self.partition)

    def _defence_faults(self, defence: Defence, workers: int) -> Iterator[str]:
        if self.participants != workers:
            yield (
                "sees what each client sends, so each worker runs one; use"
                f" strategy.participants={workers}, or workers={self.participants + 1}"
            )
        if self.participants < (least := defence.least_clients):
            yield (
                f"{type(defence).__name__} needs {least} clients a round, and {self.participants} take part; use more"
                " of them, or let fewer lie"
            )
        if self._method.remembers and self.clients != workers:
            yield (
                f"each worker runs one client, and those of method={self._method.name} stay on theirs; use"
                f" strategy.clients={workers}, or another method"
            )

    def bind(self, context: WorkerContext) -> None:
        if context.comm.networked:
            self._client_selection.require_clock(context.clock)
            self._state = FederatedState(
                context.model,
                self.clients,
                variates=self._method.has_variates,
                utilities=self._client_selection.selection is not None,
                limits=self._client_selection.cuts,
            )
            context = dataclasses.replace(context, model=self._state)
        super().bind(context)

    def _most_steps(self) -> int:
        """Were all clients on the slowest worker."""
        samples = self.local_epochs * self._context.workload.samples()
        return math.ceil(samples / self._context.spec.batch_size / min(self.speeds or (1.0,)))

    def _drawn(self) -> int | None:
        return None if self._training is None else self.local_epochs * self._training.samples

    def first_step(self) -> int:
        step = super().first_step()
        if isinstance(self._training, ClientSequence):
            self._training.at(step)
        return step

    def step(self, batch: Batch, step: int) -> StepStats:
        try:
            return super().step(batch, step)
        except EmptyRound:  # the server's; the next one goes on from the same model
            return StepStats(None)

    def _trains(self, up: Plan) -> Training:
        context, worker = self._context, self._context.comm.rank - 1
        population = self._population()
        speed = 1.0 if self.speeds is None else self.speeds[worker]
        utility = self._client_selection.selection is not None
        local = LocalClient(
            context, context.workload, self._state, population, self._method, speed, self._slowness, has_utility=utility
        )
        return ClientSequence(
            worker, self._state, population, self._method, local, attack=self.attack, attackers=self.attackers
        )

    def _aggregator(self) -> Aggregator:
        rule, population = self._method.rule(self.clients), self._population()
        fleet = self._client_selection.fleet(
            self._context,
            population,
            self._method,
            self._slowness,
            placement=self.placement,
            speeds=self.speeds,
            most_wait_s=self.round_timeout_s,
        )
        if self.secure is not None:
            workers = self._context.comm.world_size - 1
            vector = self._secure_vector(population)
            record = self._context.record
            return SecureFederation(self._state, fleet, rule, self.secure, vector, workers, record)
        return Federation(self._state, fleet, rule, self.defence)

    def _exchanging(self) -> Exchanging | None:
        if self.secure is None:
            return None
        comm, vector = self._context.comm, self._secure_vector(self._population())
        seed, workers = self._context.spec.seed, comm.world_size - 1
        return SecureWorker(comm.rank - 1, workers, self.secure, vector, self._state, seed)

    def _secure_vector(self, population: Population) -> SecureVector:
        return SecureVector(Schema.of(self._state), self._state, population, self._method)

    def _population(self) -> Population:
        return divided(
            self._context.workload,
            self._context.spec,
            self._state.model,
            clients=self.clients,
            partition=self.partition,
            local_epochs=self.local_epochs,
        )

    @property
    def _slowness(self) -> Slowness:
        return Slowness(sigma=self.straggler_sigma, seed=self._context.spec.seed)
