"""Each word of an events file compiled; bad input all at once; traces by vectors made by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.core.spec.schedule import Change
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.config.events import traces
from testbed.orchestrator.config.events.compiler import compile_events, read_events
from testbed.orchestrator.machine.clone import CLONE
from tests.unit.orchestrator.events_of import MESH, SLANTED, compiled, faults, said, topology, wan

# --- set


def test_set_takes_absolute_values_with_their_units() -> None:
    (change,) = compiled(
        {"at": "1 min", "set": "us-eu", "rate": "10 Mbit/s", "rtt": "120 ms", "jitter": "3 ms", "loss": "0.1%"}
    )
    assert change == Change(
        t_s=60,
        kind="set",
        link="us-eu",
        values={"rate_bit_s": 10e6, "delay_s": 0.06, "jitter_s": 0.003, "loss_ratio": 0.001},
        cause="set us-eu, rate 10 Mbit/s, rtt 120 ms, jitter 3 ms, loss 0.1%",
    )


def test_a_percentage_is_of_the_topologys_own_value_but_for_loss() -> None:
    first, again = compiled(
        {"at": 0, "set": "us-eu", "rate": "50%", "rtt": "200%", "jitter": "50%", "loss": "2%"},
        {"at": "1 s", "set": "us-eu", "rate": "50 %"},
    )
    assert first.values == {"rate_bit_s": 50e6, "delay_s": 0.08, "jitter_s": 0.001, "loss_ratio": 0.02}
    assert again.values == {"rate_bit_s": 50e6}


def test_one_direction_and_its_own_values_again() -> None:
    changes = compiled({"at": "2 s", "set": "us-eu", "from": "eu", "delay": "60 ms", "for": "3 s"})
    assert [(c.t_s, c.source, c.values) for c in changes] == [
        (2, "eu", {"delay_s": 0.06}),
        (5, "eu", {"delay_s": 0.04}),
    ]
    assert changes[1].cause.startswith("end of set us-eu")


def test_an_rtt_is_divided_as_the_topologys_delays_are() -> None:
    changes = compiled(
        {"at": 0, "set": "us-eu", "rtt": "80 ms", "rate": "10%"}, network=topology(SLANTED, regions=("us", "eu"))
    )
    assert [(c.source, c.values["delay_s"], c.values["rate_bit_s"]) for c in changes] == [
        ("us", pytest.approx(0.06), 10e6),
        ("eu", pytest.approx(0.02), 5e6),
    ]


def test_an_rtt_where_there_was_none_is_halved() -> None:
    (change,) = compiled(
        {"at": 0, "set": "us-eu", "rtt": "80 ms"},
        network=topology(wan("us", "eu", 0.0, jitter_s=0.0), regions=("us", "eu")),
    )
    assert change.values == {"delay_s": 0.04}


def test_all_links_or_all_that_begin_somewhere() -> None:
    assert {c.link for c in compiled({"at": 0, "set": "all", "loss": 0})} == {"us-eu", "us-asia", "eu-asia"}
    changes = compiled({"at": 0, "set": "all", "from": "asia", "loss": 0})
    assert {(c.link, c.source) for c in changes} == {("us-asia", "asia"), ("eu-asia", "asia")}
    assert {c.link for c in compiled({"at": 0, "set": ["us-eu", "us-asia"], "loss": 0})} == {"us-eu", "us-asia"}


# --- flap, partition, heal


def test_a_flap_goes_down_in_turns_before_its_end() -> None:
    changes = compiled({"at": "1 s", "flap": "us-eu", "for": "500 ms", "every": "2 s", "until": "5 s"})
    down, up = "down", "up"
    assert said(changes) == [(1, down, "us-eu"), (1.5, up, "us-eu"), (3, down, "us-eu"), (3.5, up, "us-eu")]
    assert changes[0].cause == "flap us-eu, for 500 ms, every 2 s, until 5 s"


def test_turns_of_decimal_lengths_are_counted_exactly() -> None:
    changes = compiled({"at": 0, "flap": "us-eu", "for": "50 ms", "every": "100 ms", "until": "1 s"})
    assert [c.t_s for c in changes if c.kind == "down"] == [round(0.1 * turn, 9) for turn in range(10)]


def test_a_partition_takes_every_link_between_its_sets() -> None:
    changes = compiled({"at": "10 s", "partition": [["us"], ["eu", "asia"]], "for": "5 s"})
    assert sorted(said(changes)) == [
        (10, "down", "us-asia"),
        (10, "down", "us-eu"),
        (15, "up", "us-asia"),
        (15, "up", "us-eu"),
    ]
    assert {c.cause for c in changes if c.kind == "up"} == {"end of partition [[us], [eu, asia]], for 5 s"}


def test_three_sets_part_all() -> None:
    changes = compiled({"at": 0, "partition": ["us", "eu", "asia"]})
    assert {c.link for c in changes if c.kind == "down"} == {"us-eu", "us-asia", "eu-asia"}
    assert not [c for c in changes if c.kind == "up"]


def test_a_partition_that_leaves_a_way_round_is_refused() -> None:
    hub = topology(wan("us", "hub"), wan("eu", "hub"), regions=("us", "eu", "hub"))
    (line,) = faults({"at": 0, "partition": [["us"], ["eu"]]}, network=hub)
    assert line.endswith("the sets are still joined by way of hub; put it into one of them")
    (line,) = faults({"at": 0, "partition": [["us"], ["eu"]]})
    assert "by way of asia" in line
    assert said(compiled({"at": 0, "partition": [["us", "hub"], ["eu"]]}, network=hub)) == [(0, "down", "eu-hub")]


@pytest.mark.parametrize("what", ["all", "us-eu", ["us-eu", "us-asia"], [["us"], ["eu", "asia"]]])
def test_heal_ends_what_is_down(what: Any) -> None:
    changes = compiled({"at": "1 s", "partition": [["us"], ["eu", "asia"]]}, {"at": "4 s", "heal": what})
    healed = {c.link for c in changes if c.kind == "up" and c.t_s == 4}
    assert healed == ({"us-eu"} if what == "us-eu" else {"us-eu", "us-asia"})


def test_a_link_is_down_as_long_as_any_outage_lasts() -> None:
    changes = compiled(
        {"at": "1 s", "flap": "us-eu", "for": "1 s", "every": "2 s", "until": "8 s"},
        {"at": "2 s", "partition": [["us"], ["eu", "asia"]], "for": "3500 ms"},
    )
    own = tuple(c for c in changes if c.link == "us-eu")
    assert said(own) == [(1, "down", "us-eu"), (6, "up", "us-eu"), (7, "down", "us-eu"), (8, "up", "us-eu")]
    assert [c.cause.split()[0] for c in own[:1]] == ["flap"]


def test_heal_leaves_a_flaps_later_turns() -> None:
    changes = compiled(
        {"at": "1 s", "flap": "us-eu", "for": "1 s", "every": "4 s", "until": "8 s"}, {"at": "1500 ms", "heal": "us-eu"}
    )
    assert [(c.t_s, c.kind) for c in changes] == [(1, "down"), (1.5, "up"), (5, "down"), (6, "up")]
    assert changes[1].cause == "heal us-eu"


def test_a_heal_without_an_outage_is_refused() -> None:
    (line,) = faults({"at": "1 s", "partition": ["us", ["eu", "asia"]], "for": "1 s"}, {"at": "2 s", "heal": "all"})
    assert line == "events, entry 2 (heal): nothing to heal: none of its links is down at 2 s"


# --- nodes


def test_nodes_crash_leave_and_join() -> None:
    assert said(compiled({"at": "3 s", "crash": "eu-1"})) == [(3, "crash", "eu-1")]
    changes = compiled({"at": "5 s", "join": "eu-0"}, {"at": "3 s", "leave": ["eu-0", "us-1"]}, workload="script")
    assert said(changes) == [(3, "leave", "eu-0"), (3, "leave", "us-1"), (5, "join", "eu-0")]


def test_only_scripts_are_asked_to_leave() -> None:
    (line,) = faults({"at": "3 s", "leave": "eu-0"})
    assert "workload=digits is not asked to leave, only workload=script is; any takes crash" in line


def test_whether_a_training_takes_one_in_again_is_for_its_strategy_to_say() -> None:
    changes = compiled({"at": "3 s", "crash": "eu-0"}, {"at": "5 s", "join": "eu-0"})
    assert said(changes) == [(3, "crash", "eu-0"), (5, "join", "eu-0")]


def test_only_who_is_away_can_join_and_only_who_is_there_can_go() -> None:
    (line,) = faults({"at": "1 s", "join": "eu-0"}, workload="script")
    assert line == "events, entry 1 (join): eu-0 is there: only who left or crashed can join at 1 s"
    (line,) = faults({"at": "1 s", "crash": "eu-0"}, {"at": "2 s", "crash": "eu-0"})
    assert line == "events, entry 2 (crash): eu-0 is not there any more at 2 s"


# --- order, faults


def test_changes_are_in_order_of_time_and_the_same_every_time() -> None:
    entries = (
        {"at": "9 s", "set": "us-eu", "rate": "50%"},
        {"at": "2 s", "partition": [["us"], ["eu", "asia"]], "for": "7 s"},
        {"at": "2 s", "set": "us-eu", "rate": "1%"},
        {"at": "2 s", "set": "us-eu", "rate": "20%"},
    )
    changes = compiled(*entries)
    assert [c.t_s for c in changes] == sorted(c.t_s for c in changes)
    assert [c.values["rate_bit_s"] for c in changes if c.kind == "set"] == [1e6, 20e6, 50e6]
    assert compiled(*entries) == changes


def test_a_share_of_what_a_link_does_not_have_is_refused() -> None:
    network = topology(SLANTED, regions=("us", "eu"))
    (fault,) = faults({"at": 0, "set": "us-eu", "jitter": "50%"}, network=network)
    assert fault.endswith("jitter: 50% is of the topology's own jitter, which is 0; give it with a unit")
    assert compiled({"at": 0, "set": "us-eu", "jitter": "0%"}, network=network)[0].values == {"jitter_s": 0}


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ({"set": "us-eu", "rate": "50%"}, "entry 1 (set): at must be given"),
        ({"at": 10, "crash": "us-0"}, "entry 1 (crash): at: time 10: no unit"),
        ({"at": "10 s", "crash": "us-9"}, "entry 1 (crash): crash: us-9: unknown node; did you mean us-1?"),
        ({"at": 0, "crash": False}, "entry 1 (crash): crash: False is no node's name; put a name such as 'no'"),
        ({"at": 0, "crash": ["us-0", "us-0"]}, "entry 1 (crash): crash: us-0 is named twice"),
        ({"at": 0, "crash": []}, "entry 1 (crash): crash: names no node"),
        ({"at": 0, "set": "us-ey", "loss": 0}, "entry 1 (set): set: us-ey: unknown WAN link; did you mean us-eu?"),
        ({"at": 0, "set": "us-eu"}, "entry 1 (set): set: sets nothing; give rate, rtt, delay, jitter, loss"),
        ({"at": 0, "set": "us-eu", "rate": "5 Mbps"}, "entry 1 (set): rate: rate '5 Mbps': unknown unit 'Mbps'"),
        ({"at": 0, "set": "us-eu", "rate": 5}, "entry 1 (set): rate: rate 5: no unit"),
        ({"at": 0, "set": "us-eu", "rate": "1 bit/s"}, "entry 1 (set): link us-eu from us at 0 s: rate must be from"),
        ({"at": 0, "set": "us-eu", "rate": "0%"}, "entry 1 (set): rate: 0 is no rate; for an outage give flap"),
        ({"at": 0, "set": "us-eu", "loss": 0.5}, "entry 1 (set): loss: ratio 0.5: has no %, and may mean 0.5% or 50%"),
        ({"at": "1e9 s", "set": "us-eu", "loss": 0}, "entry 1 (set): at: 1e+09 s is a time of the calendar"),
        ({"at": 0, "set": "us-eu", "loss": "150%"}, "entry 1 (set): loss: ratio '150%': must be from 0 to 1"),
        ({"at": 0, "set": "us-eu", "from": "asia", "loss": 0}, "entry 1 (set): from: link us-eu begins at us or eu"),
        ({"at": 0, "set": "all", "from": "mars", "loss": 0}, "entry 1 (set): from: no WAN link begins at 'mars'"),
        ({"at": 0, "set": "us-eu", "from": "us", "rtt": "9 ms"}, "entry 1 (set): rtt is of both directions together"),
        ({"at": 0, "set": "us-eu", "delay": "9 ms", "rtt": "9 ms"}, "entry 1 (set): rtt and delay exclude each other"),
        (
            {"at": 0, "set": "us-eu", "bandwidth": "50%", "loss": 0},
            "entry 1 (set): bandwidth: unknown key; did you mean rate? known:",
        ),
        ({"at": 0, "set": "us-eu", "loss": 0, "for": 0}, "entry 1 (set): for: must be above 0"),
        ({"at": 0, "partition": "us"}, "entry 1 (partition): partition: must be two or more sets of regions"),
        ({"at": 0, "partition": [["us"], ["us", "eu"]]}, "entry 1 (partition): partition: us is in more than one set"),
        ({"at": 0, "partition": ["us", "mars"]}, "entry 1 (partition): partition: mars: unknown region"),
        (
            {"at": 0, "flap": "us-eu", "for": "2 s", "every": "1 s", "until": "9 s"},
            "entry 1 (flap): every: must be longer than for, 2 s",
        ),
        (
            {"at": "9 s", "flap": "us-eu", "for": "1 s", "every": "2 s", "until": "9 s"},
            "entry 1 (flap): until: a time of the run, as at is, and after it",
        ),
        (
            {"at": 0, "flap": "us-eu", "for": "1 ns", "every": "1 us", "until": "1 s"},
            "entry 1 (flap): makes up to 2000000 changes, at most 100000 are taken",
        ),
        ({"at": 0}, "entry 1: must say one of set, flap, partition, heal, crash, leave, join, trace; found 'at'"),
        ({"at": 0, "crash": "us-0", "heal": "all"}, "entry 1: must say one of"),
        ("crash us-0", "entry 1: must be keys and values"),
        ({"at": 0, "trace": "us-eu"}, "entry 1 (trace): file must be given"),
        ({"at": 0, "trace": "us-eu", "file": "no.csv"}, "entry 1 (trace): no.csv: cannot be read: No such file"),
        (
            {"at": 0, "trace": "us-eu", "file": "a.csv", "loop": True},
            "entry 1 (trace): loop: give for, how long it is repeated",
        ),
    ],
)
def test_each_fault_names_its_entry(entry: Any, line: str) -> None:
    assert any(fault.startswith(f"events, {line}") for fault in faults(entry)), faults(entry)


def test_all_faults_come_at_once() -> None:
    lines = faults(
        {"at": "soon", "set": "us-ey", "rate": "fast", "colour": "red"},
        {"at": "1 s", "set": "us-eu", "rate": "1 bit/s"},
        {"at": "2 s", "set": "us-eu", "rtt": "1 ms"},
        {"at": "3 s", "dance": True},
        {"at": "4 s", "crash": "nobody"},
    )
    assert [re.search(r"entry (\d)", line)[1] for line in lines] == ["1"] * 4 + ["4", "5"] + ["2"] * 2 + ["3"] * 2  # type: ignore[index]
    assert "jitter must be from 0 to the delay" in lines[-1]  # the link's own 2 ms, set by nobody


def test_a_network_without_wan_links_has_nothing_to_set() -> None:
    (line,) = faults({"at": 0, "set": "all", "loss": 0}, network=topology(regions=("us",)))
    assert line == "events, entry 1 (set): set: topology test has no WAN link"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, ": cannot be read: No such file or directory"),
        ("", ", line 1: must hold a list of events, each '- at: …' (docs/events.md); found nothing"),
        ("at: 10 s\n", ", line 1: must hold a list of events, each '- at: …' (docs/events.md); found dict"),
        ("- at: [\n", ", line 1: is not YAML: a bracket is not closed"),
        ("- {at: 1 s, crash: us-0}\n- at: 1 s\n  at: 2 s\n", ", line 3: the key 'at' is there twice, first in line 2"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, text: str | None, line: str) -> None:
    path = tmp_path / "events.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_events(str(path))
    (fault,) = caught.value.faults
    assert fault.startswith(f"events={path}{line}") and "\n" not in fault


# --- the files of the clone, the page, the command line


def test_the_examples_of_the_page_compile(tmp_path: Path) -> None:
    for name in ("sine-outage.mahimahi", "evening.csv"):
        (tmp_path / name).write_bytes((CLONE / "experiments" / "traces" / name).read_bytes())
    blocks = re.findall(r"^```yaml\n(.*?)^```", (CLONE / "docs" / "events.md").read_text(), re.MULTILINE | re.DOTALL)
    words = set()
    for block in blocks:
        path = tmp_path / "events.yaml"
        path.write_text(block)
        listed = read_events(str(path))
        assert compile_events(listed, MESH, "script")
        words |= {key for entry in listed.entries for key in entry}
    assert words >= {"set", "flap", "partition", "heal", "crash", "leave", "join", "trace"}


@pytest.mark.parametrize("name", sorted(path.name for path in (CLONE / "experiments" / "events").glob("*.yaml")))
def test_the_events_of_the_clone_compile(name: str) -> None:
    spec = compose([f"events={CLONE}/experiments/events/{name}", "topo=wan10m"])
    assert spec.events and spec.hash != compose(["topo=wan10m"]).hash


def test_the_readme_of_the_traces_makes_the_trace() -> None:
    folder = CLONE / "experiments" / "traces"
    (block,) = re.findall(r"^```python\n(.*?)^```", (folder / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    made: dict[str, Any] = {}
    exec(block, made)
    assert made["text"] == (folder / "sine-outage.mahimahi").read_text()
    rates = list(traces.mahimahi_rates(traces.read_mahimahi(folder / "sine-outage.mahimahi"), 5.0, 100))
    assert (2.0, pytest.approx(12e3 / 0.5)) in rates  # the outage
    assert max(rate for _, rate in rates) == pytest.approx(5e6, rel=0.03)


def test_events_are_given_in_place_or_by_path(tmp_path: Path) -> None:
    spec = compose(["topo=wan10m", "events=[{at: 10 s, partition: [[oregon],[virginia]], for: 5 s}]"])
    assert said(spec.events) == [(10, "down", "oregon-virginia"), (15, "up", "oregon-virginia")]
    assert type(spec).from_json(spec.to_json()) == spec
    path = tmp_path / "e.yaml"
    path.write_text("- {at: 10 s, partition: [[oregon], [virginia]], for: 5 s}\n")
    assert compose(["topo=wan10m", f"events={path}"]).events == spec.events
    assert compose(["topo=wan10m", "events=[]"]).events == compose(["topo=wan10m"]).events == ()


def test_a_rate_that_a_links_queue_cannot_hold_is_refused() -> None:
    words = ["topo=wan100m", "topo.queue='30 kB'"]
    event = "events=[{at: 5 s, set: all, rate: RATE}]"
    assert compose([*words, event.replace("RATE", "50 Mbit/s")]).events
    with pytest.raises(InputError) as caught:
        compose([*words, event.replace("RATE", "200 Mbit/s")])
    assert len(caught.value.faults) == 2, "one a direction"
    assert "events: topology wan100m: link oregon-virginia" in caught.value.faults[0]
    assert "30000 bytes holds not one super-packet (65550 bytes) at 200 Mbit/s" in caught.value.faults[0]


def test_faults_of_events_come_with_those_of_other_keys(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        compose(["events=[{at: 10 s, crash: nobody},{at: 1 s, leave: oregon-0}]", "steps=0"])
    assert [fault.split(":")[0] for fault in caught.value.faults] == [
        "events, entry 1 (crash)",
        "events, entry 2 (leave)",
        "steps=0",
    ]
    with pytest.raises(InputError) as caught:
        compose([f"events={tmp_path}/none.yaml", "topo=mars"])
    assert len(caught.value.faults) == 2
    with pytest.raises(InputError, match="events=3: must be a path or a list"):
        compose(["events=3"])
