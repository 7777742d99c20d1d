"""A cap of TCP flows: each connection carries that much, two carry twice as much, whatever the dilation."""

from __future__ import annotations

import json

import pytest

from tests.emulation.support import run_inside

CAP_BIT_S, PAYLOAD_RATIO = 50e6, 1448 / 1514
TRIES = 3
"""The machine is shared: senders that wait for a core carry less."""


def test_each_connection_carries_its_cap(machine_lock: None) -> None:
    asked = {"cap_bit_s": CAP_BIT_S, "dilations": [1, 4], "connections": 2, "seconds": 1.0}
    off: list[dict[str, float]] = []
    for _ in range(TRIES):
        found = run_inside("inside_flow_cap.py", json.dumps(asked))
        if "lack" in found:
            pytest.skip(found["lack"])
        errors = {
            f"{base}, dilation {k}, connection {number}": rate / (CAP_BIT_S * PAYLOAD_RATIO) - 1
            for base, rates in found.items()
            for k, both in rates.items()
            for number, rate in enumerate(both)
        }
        assert max(errors.values()) < 0.005, errors
        off.append({what: error for what, error in errors.items() if error < -0.02})
        if not off[-1]:
            return
    raise AssertionError(off)
