"""A client of a parameter server, or the server, killed in its container and started again: the run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulation.support import Longhaul, gone_within, host_state

WORKERS, LOCAL_STEPS = 4, 2
ROUNDS, SERVER_ROUNDS = 14, 6
"""Of the run whose clients crash, and of those of the server's crash."""
BACK, GONE = "site-2-0", "site-3-0"
# The device paces it, so that events find the same rounds on any machine: two steps are 0.8 s, and a model takes 0.08 s
# or more down and up.
ASKED = (
    *("topo=star", "topo.rate='100 Mbit/s'", "workload=sensors", "device=paced", "device.step_s=0.4"),
    *(f"workers={WORKERS}", "evaluate_every=4"),
)
SERVER = ("strategy=parameter_server", f"strategy.local_steps={LOCAL_STEPS}")


@pytest.mark.tier("slow")
@pytest.mark.timeout(900)
def test_a_run_outlives_the_crashes_of_clients(machine_lock: None, tmp_path: Path) -> None:
    """One comes back, one does not."""
    before, asked_steps = host_state(), LOCAL_STEPS * ROUNDS
    events = tmp_path / "crash.yaml"
    # a round begins meanwhile, which the first misses: it may have sent its part of the one it was killed in
    events.write_text(f"- at: 2.5 s\n  crash: {BACK}\n- at: 4.5 s\n  join: {BACK}\n- at: 11 s\n  crash: {GONE}\n")
    longhaul = Longhaul(tmp_path / "runs", *ASKED, *SERVER, f"steps={asked_steps}", f"events={events}")
    assert longhaul.wait() in (0, 5), longhaul.said
    run, summary = longhaul.run, longhaul.summary()
    gone_within(run.run_id)
    assert host_state() == before
    assert summary["status"] == "completed"
    assert (summary["steps"], summary["workers_at_end"]) == (asked_steps, WORKERS - 1)
    assert not any(reason.startswith("worker ") for reason in summary["reasons"]), "events asked for it"

    found = list(run.read_events())
    left = [event for event in found if event["event"] == "left"]
    assert [(event["rank"], event["node"]) for event in left] == [(2, BACK), (3, GONE)]
    assert all("was ended by SIGKILL" in event["message"] for event in left)
    rounds = [event for event in found if event["event"] == "round"]
    assert [event["round"] for event in rounds] == list(range(ROUNDS))
    clients = [event["clients"] for event in rounds]
    missed = clients.index(WORKERS - 2)
    assert set(clients[:missed]) == {WORKERS - 1} and WORKERS - 1 in clients[missed:]
    assert clients[-1] == WORKERS - 2
    done = [event for event in found if event["event"] == "done"]
    assert {event["rank"] for event in done} == {0, 1, 2}
    assert len({event["parameters_crc32"] for event in done}) == 1
    assert sum(event["event"] == "start" for event in found) == WORKERS + 1


@pytest.mark.tier("slow")
@pytest.mark.timeout(900)
def test_a_run_outlives_the_crash_of_a_server_that_left_its_state(machine_lock: None, tmp_path: Path) -> None:
    """Nobody can tell by the parameters, evaluations or rounds; the first of two runs is undisturbed."""
    before, asked_steps = host_state(), LOCAL_STEPS * SERVER_ROUNDS
    events = tmp_path / "crash.yaml"
    events.write_text("- at: 3 s\n  crash: site-0-0\n- at: 4 s\n  join: site-0-0\n")
    checksums, evaluated = [], []
    for number, given in enumerate(([], [f"events={events}"])):
        asked = (*ASKED, *SERVER, f"steps={asked_steps}", "strategy.checkpoint=true", *given)
        longhaul = Longhaul(tmp_path / f"runs{number}", *asked)
        assert longhaul.wait() in (0, 5), longhaul.said
        run, summary = longhaul.run, longhaul.summary()
        gone_within(run.run_id)
        assert host_state() == before
        assert (summary["status"], summary["workers_at_end"]) == ("completed", WORKERS)
        assert not any(reason.startswith("worker ") for reason in summary["reasons"]), "an event asked for it"
        found = list(run.read_events())
        done = [event for event in found if event["event"] == "done"]
        assert {event["rank"] for event in done} == set(range(WORKERS))
        checksums += [event["parameters_crc32"] for event in done]
        evaluated.append([(event["step"], event["value"]) for event in found if event["event"] == "evaluation"])
        rounds = [event for event in found if event["event"] == "round"]
        assert [event["round"] for event in rounds] == list(range(SERVER_ROUNDS))
        assert all(event["clients"] == WORKERS - 1 and not event["left"] for event in rounds)
        for rank in range(WORKERS):
            steps = [event["step"] for event in found if event["event"] == "step" and event["rank"] == rank]
            assert steps == list(range(1, asked_steps + 1)), "each is told once"
        left = [event for event in found if event["event"] == "left"]
        assert [event["rank"] for event in left] == [0] * len(given)
        assert sum(event["event"] == "start" for event in found) == WORKERS + len(given)
    assert len(set(checksums)) == 1
    # those that still waited when it crashed may be lost, the last is not
    assert set(evaluated[1]) <= set(evaluated[0]) and evaluated[1][-1] == evaluated[0][-1]
