"""Event files hold the record's scalars, by step and by time, after a run and while it goes on."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c

from testbed.analysis.__main__ import main
from testbed.analysis.tensorboard.event_files import write_event_files
from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.record.summary import empty_summary
from tests.unit.analysis.synthetic import PAYLOAD_BYTES, PHASES, RANKS, START_UNIX_S, STEPS, WAN_BYTES_S, make_run

pytestmark = pytest.mark.tier("all")
Points = dict[str, list[tuple[int, float, float]]]
"""(step, wall time, value) by tag."""


def read_back(folder: Path) -> Points:
    """Read the one event file of a folder, with its checksums."""
    (file,) = folder.glob("events.out.tfevents.*")
    data, found = file.read_bytes(), Points()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        body = data[12 : 12 + length]
        assert struct.unpack("<II", data[8:12] + data[12 + length : 16 + length]) == (
            masked_crc32c(data[:8]),
            masked_crc32c(body),
        )
        event = Event.FromString(body)
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, event.wall_time, value.simple_value))
        data = data[16 + length :]
    return found


def test_scalars_are_those_of_the_record(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert main(["tensorboard", "--output", str(tmp_path / "tb"), str(run.path)]) == 0
    found = read_back(tmp_path / "tb" / run.run_id)
    for tag, value in (
        ("train/loss", 2.0 / 7),
        ("train/payload_bytes", RANKS * PAYLOAD_BYTES),
        ("phase_s/backward", 0.2),
    ):
        assert [step for step, _, _ in found[tag]] == list(range(1, STEPS + 1))
        assert found[tag][6][1:] == (pytest.approx(START_UNIX_S + 7), pytest.approx(value))
    assert {tag for tag in found if tag.startswith("phase_s/")} == {f"phase_s/{phase}" for phase in PHASES}
    evaluations = found["evaluation/accuracy/rank_0"]
    assert [(step, round(value, 4)) for step, _, value in evaluations] == [(20, 0.8333), (40, 0.8667), (60, 0.9)]
    for source, target in (("oregon", "virginia"), ("virginia", "oregon")):
        rates = found[f"wan_rate_bit_s/oregon-virginia/{source}_to_{target}"]
        assert [value for *_, value in rates] == pytest.approx([8 * WAN_BYTES_S[source]] * len(rates)) and rates


def test_a_second_call_replaces_the_first(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for _ in range(2):
        write_event_files([run.path], tmp_path / "tb")
    assert len(read_back(tmp_path / "tb" / run.run_id)["train/loss"]) == STEPS


def test_a_run_is_followed_to_its_end(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    folder = tmp_path / "tb" / run.run_id
    whole = run.events.read_bytes()
    cut = len(whole) // 2
    run.events.write_bytes(whole[:cut])
    steps_seen: list[int] = []

    def grows(_: float) -> None:
        """Stand in for the time between two looks: first the rest of the events comes, then the summary."""
        steps_seen.append(len(read_back(folder)["train/loss"]))
        if len(steps_seen) == 1:
            run.events.write_bytes(whole)
        else:
            write_json(run.summary, empty_summary() | {"status": "completed"})

    with run.held():
        write_event_files([run.path], tmp_path / "tb", follow=True, sleep=grows)
    assert 0 < steps_seen[0] < steps_seen[1] == STEPS
    assert [step for step, *_ in read_back(folder)["train/loss"]] == list(range(1, STEPS + 1))


def test_a_killed_run_is_followed_no_longer(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write_event_files([run.path], tmp_path / "tb", follow=True, sleep=lambda _: pytest.fail("waits for a dead run"))
    assert len(read_back(tmp_path / "tb" / run.run_id)["train/loss"]) == STEPS


def test_wall_time_is_dilated_and_emulated_time_is_not(tmp_path: Path) -> None:
    run = dilated(make_run(tmp_path), 2.0)
    for clock, factor in (("wall", 2.0), ("emulated", 1.0)):
        write_event_files([run.path], tmp_path / clock, clock=clock)
        _, wall_s, _ = read_back(tmp_path / clock / run.run_id)["train/loss"][9]
        assert wall_s == pytest.approx(START_UNIX_S + 10 * factor)


def dilated(run: RunDir, factor: float) -> RunDir:
    run.spec.write_text(json.dumps(json.loads(run.spec.read_text()) | {"dilation": factor}))
    return run


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tensorboard", "--output", str(tmp_path / "tb"), str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    said = capsys.readouterr().err
    assert "a: holds neither" in said and "b: holds neither" in said
    assert not (tmp_path / "tb").exists()
