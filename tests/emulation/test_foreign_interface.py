"""An interface that comes into a worker's namespace while the run lasts is a way around the links, and is told.

Beside it: the packets of a run are in the machine's softnet counters.
"""

from __future__ import annotations

from tests.emulation.support import run_inside


def test_an_interface_that_is_added_later_is_told_once(machine_lock: None) -> None:
    found = run_inside("inside_foreign.py")
    assert found["before"] == []
    assert found["failure"] is None, "a queue that is not the run's must not end its observation"
    assert [(event["node"], event["interface"]) for event in found["foreign"]] == [
        ("virginia-0", "extra"),
        ("virginia-0", "extra-peer"),
    ]
    assert found["again"] == []
    assert found["took_s"] < 0.05, "it is asked every second, beside the training"
    assert len(found["hosts"]) >= 2
    last = found["hosts"][-1]
    assert last["softnet_processed"] >= 20, "five echoes and their answers, over four wires and the delay line"
    assert last["softnet_dropped"] == 0
