"""Errands on the nodes of a Ray cluster that have the custom resource `longhaul`: one emulation for each 1 of it.

Ray (Moritz et al., OSDI 2018, arXiv 1712.05889) carries requests and replies and says which nodes live. On which node a
run is made is decided here, since one that lacks something is to be left alone; retries are counted by who calls.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.core.errors import InputError, MachineError
from testbed.orchestrator.config.grammar.overrides import first_line
from testbed.orchestrator.executors import options
from testbed.orchestrator.executors.job import ENDS_S, run_job
from testbed.orchestrator.executors.remote_executor import Ended
from testbed.orchestrator.machine.checks import has_module

RESOURCE = "longhaul"
ANY_HERE = "auto"
"""The address of a cluster that this machine is a part of."""
_START = f"ray start ... --resources='{{\"{RESOURCE}\": 1}}'"
_CURE = f"begin one by {_START}, with --head on one machine, and give --executor-option address=HOST:PORT"
_CONNECT_TIMEOUT_S = 10.0
_FETCH_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class _Node:
    node_id: str
    host: str
    room: int


class RayNodes:
    """Of the cluster at `address`, or at RAY_ADDRESS, or of the one that this machine is a part of."""

    name = "ray"
    kept_in = None

    def __init__(
        self, given: Mapping[str, object], carry: Callable[[Mapping[str, Any]], Mapping[str, Any]] = run_job
    ) -> None:
        """
        Raises:
            InputError: there are no such options.
        """
        options.check(self.name, given)
        address = str(given.get("address") or os.environ.get("RAY_ADDRESS") or ANY_HERE)
        if "://" in address:
            raise InputError(
                f"ray: address={address}: give the cluster's HOST:PORT; this machine has to be a part of it"
            )
        self._address = address
        self._carry = carry
        self._jobs: dict[str, tuple[Any, _Node]] = {}
        self._avoided: set[str] = set()
        self._seen: list[_Node] = []
        """As `free` found them: a job for one that has died since is lost, and told so by Ray."""
        self._numbers = itertools.count(1)

    @property
    def room(self) -> str:
        nodes = self._nodes()
        return f"{sum(node.room for node in nodes)} at once on {len(nodes)} Ray nodes"

    def __enter__(self) -> RayNodes:
        if not has_module("ray"):
            raise MachineError("executor=ray: Ray is not installed: make setup, or pip install 'longhaul-testbed[ray]'")
        import ray

        _require_answer(self._address)
        try:
            ray.init(self._address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
            raise MachineError(
                f"executor=ray: no Ray cluster at address={self._address}: {first_line(error)}; {_CURE}"
            ) from error
        if not self._nodes():
            ray.shutdown()
            raise MachineError(
                f"executor=ray: no node of the cluster has the resource {RESOURCE}, so none takes a run: {_START}"
            )
        self._remote = ray.remote(self._carry)
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        self._jobs.clear()
        ray.shutdown()

    def left_over(self) -> Iterator[Mapping[str, Any]]:
        """None: a cluster ends what was begun by who is gone."""
        return iter(())

    def free(self) -> int:
        self._seen = self._nodes()
        return sum(max(0, self._free(node)) for node in self._seen)

    def begin(self, request: Mapping[str, Any]) -> str:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = max(self._seen, key=self._free)
        there = NodeAffinitySchedulingStrategy(node_id=node.node_id, soft=False)
        bound = self._remote.options(num_cpus=0, resources={RESOURCE: 1}, scheduling_strategy=there, max_retries=0)
        ticket = f"job {next(self._numbers)}"
        self._jobs[ticket] = (bound.remote(request), node)
        return ticket

    def ended(self, timeout_s: float) -> Sequence[Ended]:
        import ray

        if not self._jobs:
            time.sleep(timeout_s)
            return []
        by_reference = {reference: ticket for ticket, (reference, _) in self._jobs.items()}
        ready, _ = ray.wait(list(by_reference), num_returns=1, timeout=timeout_s)
        return [self._ended(by_reference[reference]) for reference in ready]

    def _ended(self, ticket: str) -> Ended:
        import ray

        reference, node = self._jobs[ticket]
        try:
            return Ended(ticket, reply=ray.get(reference, timeout=_FETCH_TIMEOUT_S))
        except ray.exceptions.RayTaskError as error:  # the job's own code, such as none at all of ours on that node
            last = str(error).strip().splitlines()[-1]
            return Ended(ticket, broken=f"on {node.host}: the job could not be carried out: {last}")
        except (ray.exceptions.RayError, TimeoutError) as error:
            return Ended(ticket, lost=f"with the Ray node on {node.host}: {type(error).__name__}: {first_line(error)}")

    def forget(self, ticket: str) -> None:
        del self._jobs[ticket]

    def avoid(self, ticket: str) -> bool:
        self._avoided.add(self._jobs[ticket][1].node_id)
        return bool(self._nodes())

    def end(self, tickets: Sequence[str]) -> None:
        import ray

        references = [self._jobs[ticket][0] for ticket in tickets]
        for reference in references:
            ray.cancel(reference)  # raises KeyboardInterrupt there, which ends the run in order
        if references:
            ray.wait(references, num_returns=len(references), timeout=ENDS_S, fetch_local=False)

    def _nodes(self) -> list[_Node]:
        """Those that live, have the resource and are not to be left alone."""
        import ray

        found = [
            _Node(node["NodeID"], str(node["NodeManagerHostname"]), int(node["Resources"].get(RESOURCE, 0)))
            for node in ray.nodes()  # type: ignore[no-untyped-call]
            if node["Alive"]
        ]
        return [node for node in found if node.room >= 1 and node.node_id not in self._avoided]

    def _free(self, node: _Node) -> int:
        return node.room - sum(taken.node_id == node.node_id for _, taken in self._jobs.values())


def _require_answer(address: str) -> None:
    """Ray itself tries an address that nobody answers for minutes, and ends the process then.

    Raises:
        InputError, MachineError: nobody answers there.
    """
    if address == ANY_HERE:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"ray: address={address}: must be HOST:PORT, or {ANY_HERE}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise MachineError(
            f"executor=ray: no cluster answers at address={address} ({error.strerror or error}): {_CURE}"
        ) from error
