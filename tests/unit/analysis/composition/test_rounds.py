"""Rounds of clients in sequence as if each had a device and a link of its own, of a record reckoned by hand."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from testbed.analysis.__main__ import main
from testbed.analysis.composition.links import star_of
from testbed.analysis.composition.rounds import composed, rounds_of
from testbed.core.errors import InputError
from testbed.orchestrator.cli import main as cli
from tests.unit.analysis.in_sequence import RUN_ID, make, topology
from topologies import full_mesh, star


def test_a_round_has_all_messages_and_all_that_anybody_computes(tmp_path: Path) -> None:
    found = composed(make(tmp_path), star_of(topology()))
    # in order: 0.5 encoded, 4 for four models over the server's link, 0.04; clients take their seconds, 0.1 for both
    # messages, and half of what their worker took beside: they begin to send at 5.69, 6.69, 5.74 and 7.74 s, the first
    # and the third side by side; the last is there at 8.28, decoded in 0.1, and folding four takes 0.6
    # as made: two models until 2.54, two workers send at 5.74 and 6.84; 7.38, 0.1 and 0.3
    for one in (found["mean"], *found["rounds"]):
        assert one["kind"] == "simulated"
        assert one["composed_s"] == pytest.approx(8.98)
        assert one["as_made_s"] == pytest.approx(7.78)
        assert one["measured_s"] == pytest.approx(8.0)
    assert [one["round"] for one in found["rounds"]] == [1, 2], "connections begin slowly in the first"
    assert (found["kind"], found["verdict"], found["notes"]) == ("simulated", "valid", [])


def test_links_may_be_others_than_the_runs(tmp_path: Path) -> None:
    record = make(tmp_path)
    # the server's carries all at once: a model takes 1 s, an update half of one, the last client begins at 4.7 s
    fast = star_of(topology(), server_rate_bit_s=1e9)
    assert composed(record, fast)["mean"]["composed_s"] == pytest.approx(0.5 + 1.04 + 3.2 + 0.54 + 0.1 + 0.6)
    # of half the rates messages take twice as long, all else as long as before
    slower = composed(record, star_of(topology(), server_rate_bit_s=1e9), 0.5)["mean"]["composed_s"]
    assert slower == pytest.approx(0.5 + 2.04 + 3.2 + 1.04 + 0.1 + 0.6)
    with pytest.raises(InputError, match=r"--goodput 1\.5"):
        composed(record, fast, 1.5)


def test_what_all_paths_share_is_the_servers_link() -> None:
    found = star_of(topology()).to_json()
    assert found == {
        f"{way}_{key}": value
        for way in ("down", "up")
        for key, value in (("rate_bit_s", 8e6), ("server_rate_bit_s", 8e6), ("delay_s", pytest.approx(0.04)))
    }
    mesh = star_of(full_mesh.build(workers=3, regions=["a", "b", "c"], rate="8 Mbit/s", rtt="40 ms")).to_json()
    assert (mesh["up_rate_bit_s"], mesh["up_server_rate_bit_s"]) == (8e6, 2.5e9), "a WAN link for each client"
    alone = star_of(star.build(workers=2, rate="8 Mbit/s", rtt="40 ms")).to_json()
    assert (alone["down_rate_bit_s"], alone["up_server_rate_bit_s"]) == (8e6, 8e6)


def test_unlike_links_have_to_be_given() -> None:
    unlike = star.build(workers=4, regions=["a", "b"], rate="8 Mbit/s", rtt="40 ms")
    with pytest.raises(InputError) as refused:
        star_of(unlike)
    assert {fault.rpartition("give ")[2] for fault in refused.value.faults} == {"--rate", "--delay"}
    assert star_of(unlike, rate_bit_s=1e6, delay_s=0.1).down.rate_bit_s == 1e6


def test_a_round_that_lost_somebody_is_left_out_and_one_has_to_be_left(tmp_path: Path) -> None:
    assert [one.number for one in rounds_of(make(tmp_path / "a", rounds=4, lost_in=2))] == [1, 3]
    cut = make(tmp_path / "d", rounds=4, lost_in=2)
    assert any(
        "1 of 3 rounds after the first are left out" in note for note in composed(cut, star_of(topology()))["notes"]
    )
    with pytest.raises(InputError, match="none can be composed"):
        rounds_of(make(tmp_path / "b", rounds=1))
    with pytest.raises(InputError, match="strategy=ddp has no clients"):
        rounds_of(make(tmp_path / "c", strategy="ddp"))


def test_an_older_record_is_refused(tmp_path: Path) -> None:
    record = make(tmp_path)
    for event in record.of_kind("federated_round"):
        del event["elapsed_s"]
    with pytest.raises(InputError, match="older version"):
        rounds_of(record)


def test_the_table_says_simulated_in_every_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = make(tmp_path, verdict="suspect")
    path = str(record.run.path)
    assert main(["compose", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{RUN_ID}: 2 rounds of 4 clients, which 2 workers have run in sequence"
    rows = [line.split() for line in lines[lines.index("") + 2 :]][:4]
    assert [row[:2] for row in rows] == [["simulated", name] for name in ("mean", "median", "shortest", "longest")]
    assert rows[0][2:] == ["8", "s", "7.78", "s", "(-2.8%)", "8.98", "s"]
    assert "warning: the run is suspect: late" in lines
    assert main(["compose", path, "--json", "--server-rate=1 Gbit/s", "--rate=8 Mbit/s", "--delay=40 ms"]) == 0
    assert json.loads(capsys.readouterr().out)["mean"]["composed_s"] == pytest.approx(5.98)
    assert main(["compose", path, "--rate=fast", "--delay=8"]) == 2
    assert capsys.readouterr().err.count("\n") >= 2


def test_the_command_hands_over_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(words)
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(subprocess, "run", run)
    record = make(tmp_path)
    assert cli.main(["compose", RUN_ID, "--rate", "20 Mbit/s", "--json", "--runs", str(tmp_path)]) == 0
    assert asked[0][2:] == ["testbed.analysis", "compose", "--rate=20 Mbit/s", "--json", "--", str(record.run.path)]
    assert cli.main(["compose", "another", "--runs", str(tmp_path)]) == 2
    assert "another" in capsys.readouterr().err
