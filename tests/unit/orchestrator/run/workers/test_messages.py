"""A worker reports its own steps and nothing else; whatever it sends, the orchestrator names the fault and goes on."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.record.events.base import Event, WorkerEvent
from testbed.core.record.events.run import PHASES
from testbed.core.record.telemetry import MAX_LINE_BYTES, Channel
from testbed.orchestrator.run.workers.messages import checked_message
from tests.waiting import in_background, joined

STEP: dict[str, Any] = {
    "event": "step",
    "t_s": 1.5,
    "step": 3,
    "loss": 0.1,
    "step_s": 0.4,
    "phase_s": dict.fromkeys(PHASES, 0.1),
    "payload_bytes": 100,
    "samples": 32,
    "cpu_s": 0.01,
    "late_s": 0.001,
    "late_device_s": 0.0,
    "behind_s": 0.0,
    "queued_s": 0.002,
}


def test_a_step_passes_with_the_rank_of_its_channel() -> None:
    assert checked_message({**STEP, "rank": 7}, rank=2) == {**STEP, "rank": 2}


@pytest.mark.parametrize(
    "event", ["link", "host", "measurement", "schedule", "delay_line", "rtt", "hello", None, [], 3]
)
def test_what_is_not_a_workers_to_say_is_refused(event: object) -> None:
    with pytest.raises(ValueError, match="no worker sends"):
        checked_message({**STEP, "event": event}, rank=0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("payload_bytes", -1),
        ("payload_bytes", 1.5),
        ("payload_bytes", None),
        ("payload_bytes", 2**80),
        ("loss", float("nan")),
        ("loss", "0.1"),
        ("step", True),
        ("t_s", None),
        ("phase_s", {}),
        ("phase_s", dict.fromkeys(PHASES, "x")),
        ("phase_s", dict.fromkeys((*PHASES, "another"), 0.1)),
        ("loss", float("inf")),
        ("loss", 10**400),
        ("samples", 2**63),
        ("t_s", "\ud800"),
        ("unknown_field", 1),
        ("from", "a"),
    ],
)
def test_a_field_of_another_kind_is_named(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        checked_message({**STEP, field: value}, rank=0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("factors", [{"name": "a", "dimension": "3", "owner": 0}]),
        ("factors", [{"name": "a", "dimension": 3}]),
        ("factors", ["a"]),
        ("groups", [-1]),
        ("groups", 2),
    ],
)
def test_a_plan_is_read_to_its_last_entry(field: str, value: object) -> None:
    factors = [{"name": "a", "dimension": 3, "owner": None}, {"name": "b", "dimension": 3, "owner": 1}]
    plan = {"event": "plan", "t_s": 1.0, "step": 1, "factors": factors, "groups": [2]}
    assert checked_message(plan, rank=0)["factors"] == factors
    with pytest.raises(ValueError, match=field):
        checked_message({**plan, field: value}, rank=0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("factorised", [{"layer": "1", "rank": 3}]),
        ("factorised", {}),
        ("kept", {"0": 3}),
        ("kept", ["0"]),
        ("parameters", -1),
    ],
)
def test_what_became_of_a_model_is_read_to_its_last_entry(field: str, value: object) -> None:
    layer = {"layer": "1", "rank": 3, "full_rank": 9, "elements": 90, "factor_elements": 57, "lost_share": 0.5}
    counts = {"step": 4, "parameters_before": 100, "parameters": 67}
    said = {"event": "transform", "t_s": 1.0, **counts, "factorised": [layer], "kept": {"0": "the last layer"}}
    assert checked_message(said, rank=0)["factorised"] == [layer]
    with pytest.raises(ValueError, match=field):
        checked_message({**said, field: value}, rank=0)


@pytest.mark.parametrize(
    "event", [name for name, kind in Event.kinds.items() if issubclass(kind, WorkerEvent) and name != "warm"]
)
def test_a_missing_field_is_named(event: str) -> None:
    with pytest.raises(ValueError, match=event):
        checked_message({"event": event}, rank=0)


def exchanged(data: bytes) -> Channel:
    near, far = socket.socketpair()
    with far:
        far.sendall(data)
    return Channel(near)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_any_json_is_a_worker_s_message_or_a_value_error(value: object) -> None:
    channel = exchanged(json.dumps(value).encode() + b"\n")
    try:
        message = channel.receive()
        assert isinstance(message, dict)
        checked_message(message, rank=0)
    except ValueError:
        pass
    finally:
        channel.connection.close()


@given(st.binary(max_size=200))
def test_any_bytes_are_an_end_or_a_value_error(data: bytes) -> None:
    channel = exchanged(data)
    try:
        while channel.receive() is not None:
            pass
    except ValueError:
        pass
    finally:
        channel.connection.close()


def test_a_deep_message_is_a_value_error() -> None:
    channel = exchanged(b"[" * 50_000 + b"]" * 50_000 + b"\n")
    with pytest.raises(ValueError, match=r"deeply|JSON"), channel.connection:
        channel.receive()


def test_an_endless_line_is_refused_before_it_fills_the_memory() -> None:
    class Endless:
        taken = 0

        def recv(self, size: int) -> bytes:
            self.taken += size
            assert self.taken < 4 * MAX_LINE_BYTES
            return b"x" * size

    with pytest.raises(ValueError, match="more than"):
        Channel(Endless()).receive()  # type: ignore[arg-type]


def test_lines_of_several_threads_do_not_mix() -> None:
    class Connection:
        busy = threading.Lock()
        sent: ClassVar[list[bytes]] = []

        def sendall(self, line: bytes) -> None:
            assert self.busy.acquire(blocking=False)
            self.sent.append(line)
            self.busy.release()

    channel = Channel(Connection())  # type: ignore[arg-type]
    joined(*(in_background(lambda: [channel.send({"n": n}) for n in range(200)]) for _ in range(4)))
    assert len(Connection.sent) == 800 and all(json.loads(line) for line in Connection.sent)
