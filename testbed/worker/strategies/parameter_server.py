"""Rounds of a server and its clients, which train by themselves in between: federated averaging."""

from __future__ import annotations

from testbed.worker.methods.parameter_server.strategy import ServerStrategy


class ParameterServer(ServerStrategy):
    """Rounds of a server and its clients: clients take `local_steps` steps from its model, and it averages the results.

    The mean is weighted by samples.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
    arXiv:1602.05629 (FedAvg), with all clients in each round. Differs from the paper: a client's optimizer goes on from
    round to round, with its momenta, where the paper has none. With one local step and SGD it is data parallelism: the
    mean of parameters is theirs after the mean gradient. With `uplink.payload=grad` clients take no steps and send the
    mean gradient of `local_steps` batches, for which the server's optimizer takes one (the paper's FedSGD): with one
    local step data parallelism under any optimizer. Error-bounded compression of what is sent is that of
    `testbed.worker.methods.parameter_server.bounds.adaptive`; docs/parameter-server.md has all of it.

    Rank 0 is the server and trains on nothing; ranks 1 and up are clients, and the data are theirs. One worker alone
    trains as ever. Both ends keep what was decoded, never what was encoded, so that they agree on what a difference
    hangs on. Messages are frames over TCP (`testbed.worker.methods.parameter_server.transport.frames`), one a round,
    direction and client, with a keyed code
    over each. Who sends what cannot be used, or nothing in time, is out and ends alone, and the round goes on with the
    rest, as it does when a client dies; without any client the run fails, and says why of each. One that is started
    again comes in before the next round, gets what the others have, and goes on from there with new momenta.

    What is evaluated is what the server has averaged last. Steps after the last whole round are averaged at the end,
    after the last evaluation. All ranks end with the same parameters, those of a last broadcast, bit for bit.
    In a partition it waits: one longer than `round_timeout_s` puts the clients behind it out.
    Cost: of each client's link the model down and an update up a round, so of the server's the clients' sum, each way.
    Not simulated, and `dilation=auto` does not reckon with what is sent.

    Raises:
        ValueError: a parameter is not one of these.
    """

    name = "parameter_server"
