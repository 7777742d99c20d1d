"""Several connections to a peer share a message: with a cap on each, so many times as fast, for the same bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.emulation.support import run_inside

CAP_BIT_S, CONNECTIONS, SIZE_BYTES = 40e6, 4, 4 << 20
CARRIED_S = 8 * 1514 / 1448 * SIZE_BYTES / CAP_BIT_S
"""Of one connection: 0.88 s."""
TRIES = 3
"""The machine is shared: senders that wait for a core carry less."""


def test_four_connections_carry_a_message_four_times_as_fast(machine_lock: None) -> None:
    topology = ["topo=star", "workers=2", "topo.rate='1 Gbit/s'", "topo.rtt='2 ms'", "topo.queue='4 MB'"]
    asked = {"topology": topology, "cap_bit_s": CAP_BIT_S, "connections": [1, CONNECTIONS], "size_bytes": SIZE_BYTES}
    off: list[dict[str, Any]] = []
    for _ in range(TRIES):
        found = run_inside("inside_connections.py", json.dumps(asked))
        if "lack" in found:
            pytest.skip(found["lack"])
        one, several = found["1"], found[str(CONNECTIONS)]
        for which in (one, several):
            assert [rank["payload_bytes"] for rank in which["said"]] == [SIZE_BYTES] * 2, "2 (P - 1) / P of the tensor"
        for node in ("site-0-0", "site-1-0"):
            sent = [which["sent_bytes"][node] for which in (one, several)]
            assert sent[1] == pytest.approx(sent[0], rel=0.05), "the same bytes, and more acknowledgements"
        times_s = {what: (one["said"][0][what], several["said"][0][what]) for what in ("all_reduce", "message")}
        if all(
            a == pytest.approx(CARRIED_S, rel=0.1) and b == pytest.approx(CARRIED_S / CONNECTIONS, rel=0.2)
            for a, b in times_s.values()
        ):
            return
        off.append(times_s)
    raise AssertionError(f"seconds of one connection, and of {CONNECTIONS}, against {CARRIED_S:.3g} s: {off}")
