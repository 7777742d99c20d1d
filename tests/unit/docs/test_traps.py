"""docs/traps.md is complete: every trap once, and each has tests that exist."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "traps.md"
_KERNEL, _COMMUNICATION = "tests/unit/orchestrator/emulation/kernel", "tests/unit/worker/communication"
_ORCHESTRATOR = "tests/unit/orchestrator"
TESTS: Final[Mapping[str, Sequence[str]]] = {
    "T1": (
        "tests/emulation/test_traps.py::test_a_rate_above_1_gbit_s_is_limited",
        f"{_KERNEL}/test_tc.py::test_an_unshaped_interface_is_noticed",
        f"{_ORCHESTRATOR}/test_mininet_use.py::test_a_run_uses_mininets_nodes_and_links_alone",
    ),
    "T2": (
        "tests/unit/core/spec/test_topology.py::test_a_round_trip_is_halved_once",
        "tests/emulation/test_traps.py::test_a_round_trip_is_there_once_also_one_of_2_ms",
        "tests/emulation/test_links.py::test_a_wan_link_has_its_rate_and_round_trip_idle_and_busy",
    ),
    "T3": (
        "tests/emulation/test_traps.py::test_a_delay_line_has_room_for_all_that_is_under_way",
        "tests/netem/test_shaper.py::test_all_packets_in_flight_are_held_which_netem_by_itself_would_not",
        f"{_KERNEL}/test_rate_limits.py::test_a_burst_bridges_a_millisecond_and_a_queue_a_round_trip",
    ),
    "T4": ("tests/emulation/test_traps.py::test_rate_and_delay_sit_on_different_hops_and_no_delay_on_a_worker",),
    "T5": ("tests/emulation/test_traps.py::test_rate_and_delay_sit_on_different_hops_and_no_delay_on_a_worker",),
    "T6": (
        "tests/emulation/test_traps.py::test_a_round_trip_is_there_once_also_one_of_2_ms",
        "tests/netem/test_rates.py::test_every_link_has_its_round_trip",
        f"{_ORCHESTRATOR}/observation/verdict/test_judge.py::test_each_rule_fires",
    ),
    "T7": ("tests/emulation/test_traps.py::test_a_rate_is_tbfs_nowhere_htbs_with_a_burst_of_a_millisecond",),
    "T8": (
        f"{_KERNEL}/test_rate_limits.py::test_a_burst_bridges_a_millisecond_and_a_queue_a_round_trip",
        f"{_KERNEL}/test_rate_limits.py::test_at_1_gbit_s_and_above_whole_super_packets_fit_into_a_burst",
        "tests/emulation/test_traps.py::test_a_rate_is_tbfs_nowhere_htbs_with_a_burst_of_a_millisecond",
    ),
    "T9": (
        "tests/emulation/test_traps.py::test_the_unit_of_loss_is_recorded_and_true",
        "tests/emulation/test_capture.py::test_a_capture_agrees_with_the_queues",
    ),
    "T10": (
        "tests/emulation/test_traps.py::test_tcp_is_what_the_profile_says_in_every_namespace_and_in_the_record",
        "tests/emulation/test_traps.py::test_both_ends_of_a_connection_use_the_profiles_congestion_control",
        f"{_KERNEL}/test_tcp.py::test_every_profile_pins_everything",
    ),
    "T11": (
        f"{_KERNEL}/test_tcp.py::test_stock_has_the_stock_buffers_whatever_the_network",
        f"{_KERNEL}/test_tcp.py::test_the_others_hold_one_flow_back_by_no_buffer",
    ),
    "T12": (
        f"{_KERNEL}/test_tcp.py::test_every_profile_names_its_congestion_control",
        "tests/emulation/test_traps.py::test_both_ends_of_a_connection_use_the_profiles_congestion_control",
    ),
    "T13": ("tests/emulation/test_traps.py::test_no_packet_waits_for_arp_or_goes_by_ipv6",),
    "T14": (
        "tests/emulation/test_traps.py::test_no_bridge_and_no_rule_of_the_hosts_is_on_a_path",
        "tests/emulation/test_hand.py::test_two_sessions_at_once_do_not_see_each_other",
    ),
    "T15": (
        "tests/emulation/test_traps.py::test_a_worker_has_one_way_out",
        f"{_COMMUNICATION}/test_interface.py::test_a_worker_names_its_interface_before_it_meets_the_others",
        f"{_COMMUNICATION}/test_interface.py::test_a_users_script_is_told_too",
        f"{_ORCHESTRATOR}/observation/verdict/test_judge.py::test_each_rule_fires",
    ),
    "T16": (
        f"{_ORCHESTRATOR}/test_mininet_use.py::test_nothing_ends_processes_by_name",
        f"{_ORCHESTRATOR}/test_mininet_use.py::test_a_run_uses_mininets_nodes_and_links_alone",
        "tests/emulation/endings.py::Endings::test_kill_9_leaves_nothing_and_the_next_command_seals_it",
    ),
    "T17": ("tests/emulation/test_traps.py::test_no_interface_has_a_name_too_long_however_long_the_users_are",),
    "T18": (
        f"{_ORCHESTRATOR}/test_mininet_use.py::test_setup_takes_pythons_3_11_to_3_13",
        f"{_ORCHESTRATOR}/test_mininet_use.py::test_one_module_of_the_testbed_imports_mininet",
        f"{_ORCHESTRATOR}/run/test_preflight.py::test_what_mininet_itself_lacks_is_refused_by_name",
    ),
    "T19": ("tests/emulation/test_traps.py::test_a_container_has_shared_memory_enough_and_no_processor_quota",),
    "T20": (
        "tests/emulation/test_traps.py::test_a_container_has_shared_memory_enough_and_no_processor_quota",
        f"{_ORCHESTRATOR}/observation/verdict/test_judge.py::test_each_rule_fires",
    ),
    "T21": (f"{_ORCHESTRATOR}/test_mininet_use.py::test_a_run_uses_mininets_nodes_and_links_alone",),
    "T22": (
        "tests/emulation/test_traps.py::test_a_loss_is_the_links_and_not_the_senders",
        "tests/emulation/test_links.py::test_loss_that_was_asked_is_what_the_delay_line_drops",
    ),
    "T23": (
        "tests/emulation/test_traps.py::test_a_delay_line_has_room_for_all_that_is_under_way",
        "tests/emulation/test_traps.py::test_what_a_delay_line_has_no_room_for_is_counted_by_the_kernel",
        f"{_ORCHESTRATOR}/observation/verdict/test_judge.py::test_each_rule_fires",
        "tests/emulation/endings.py::Endings::test_a_dead_delay_line_is_named",
    ),
    "T24": (
        "tests/netem/test_shaper.py::test_delay_is_what_was_asked_and_can_be_changed_while_packets_flow",
        "tests/netem/test_rates.py::test_links_of_the_rates_it_carries_have_them",
        "tests/netem/test_run.py::test_it_completed_and_is_doubted_for_its_machine_alone",
        f"{_ORCHESTRATOR}/observation/verdict/test_unknowns.py::test_each_figure_that_nothing_told_is_named",
    ),
    "T25": (
        "tests/unit/core/test_units.py::test_a_bare_number_other_than_0_has_no_unit",
        "tests/unit/core/test_units.py::test_an_unknown_unit_of_a_rate_is_refused_with_the_known_ones",
        f"{_ORCHESTRATOR}/config/test_config.py::test_a_rate_in_furlongs_names_the_units",
        f"{_KERNEL}/test_tc.py::test_the_kernels_answer_is_read_back_whole",
    ),
}
"""Tests of each trap, as `file::test` or `file::Class::test`."""


@functools.cache
def named_tests(path: Path) -> frozenset[str]:
    """Those of a class by `Class::test`."""
    tree = ast.parse(path.read_text())
    classes = [(f"{node.name}::", node.body) for node in tree.body if isinstance(node, ast.ClassDef)]
    return frozenset(
        f"{prefix}{node.name}"
        for prefix, body in [("", tree.body), *classes]
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def faults(text: str) -> Iterator[str]:
    found = re.findall(r"^- \*\*(T\d+), [^*]+\*\*: .+(?:\n  .+)*", text, re.MULTILINE)
    if found != list(TESTS):
        yield f"the traps are {', '.join(found)}; they should be {', '.join(TESTS)}, once each"
    if len(re.findall(r"\sLonghaul:\s", text)) != len(TESTS):
        yield "a trap lacks what Longhaul does"
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target and not (PAGE.parent / target).exists():
            yield f"it links to {target}, which does not exist"


def faults_of_tests(tests: Sequence[str]) -> Iterator[str]:
    if not tests:
        yield "names no test"
    for one in tests:
        file, _, test = one.partition("::")
        if not (ROOT / file).is_file():
            yield f"{file} does not exist"
        elif test not in named_tests(ROOT / file):
            yield f"{file} has no test {test!r}"


def test_every_trap_says_what_longhaul_does() -> None:
    assert list(faults(PAGE.read_text())) == []


@pytest.mark.parametrize("trap", TESTS)
def test_every_trap_has_tests_that_exist(trap: str) -> None:
    assert list(faults_of_tests(TESTS[trap])) == []


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (("- **T7, ", "- **About "), "the traps are"),
        (("- **T7, ", "- **T8, "), "the traps are"),
        (("Longhaul: tbf, no htb", "Here: tbf, no htb"), "a trap lacks what Longhaul does"),
        (("](../testbed/core/units.py)", "](../testbed/units.py)"), "it links to ../testbed/units.py"),
    ],
)
def test_a_damaged_page_is_noticed(damage: tuple[str, str], fault: str) -> None:
    text = PAGE.read_text()
    assert damage[0] in text
    found = list(faults(text.replace(*damage)))
    assert any(line.startswith(fault) for line in found), found


@pytest.mark.parametrize(
    ("tests", "fault"),
    [
        ([], "names no test"),
        (["tests/unit/core/test_topologies.py::test_x"], "tests/unit/core/test_topologies.py does not exist"),
        (["tests/unit/core/test_units.py::test_x"], "tests/unit/core/test_units.py has no test 'test_x'"),
    ],
)
def test_a_test_that_does_not_exist_is_noticed(tests: list[str], fault: str) -> None:
    assert list(faults_of_tests(tests)) == [fault]
