"""Whether compression pays behind one server: rounds out of records, the table, its crossings and its figure, of runs
made up by the formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.benchmarks.break_even import measure, tables
from experiments.benchmarks.break_even.measure import ARMS, COMPRESSED, RAW
from experiments.common.whole_run import WholeRun
from testbed.orchestrator.config.config import resolve
from testbed.worker.methods.parameter_server.bounds.break_even import Codec, ServerRound

SIZE_BYTES, RATIO, WIRE = 1e6, 5.0, 1.25
HANDLING = {"client_compress_s": 2e-3, "client_decompress_s": 1e-3, "server_compress_s": 3e-3}
"""Of what is raw; the server's of each client takes 1 ms."""
CODEC = {"client_compress_s": 4e-3, "client_decompress_s": 2e-3, "server_compress_s": 8e-3}
"""Beside that; to decode an update takes 2 ms."""


def ideal(rate_gbit_s: float) -> ServerRound:
    up = Codec(compress_bytes_s=SIZE_BYTES / 4e-3, decompress_bytes_s=SIZE_BYTES / 2e-3, ratio=RATIO)
    down = Codec(compress_bytes_s=SIZE_BYTES / 8e-3, decompress_bytes_s=SIZE_BYTES / 2e-3, ratio=RATIO)
    return ServerRound(size_bytes=SIZE_BYTES, rate_bit_s=1e9 * rate_gbit_s / WIRE, up=up, down=down)


def point(rate_gbit_s: float, clients: int, arm: str, verdict: str = "valid", slower_s: float = 0.0) -> dict[str, Any]:
    """Of a round as long as the formula says, or by `slower_s` longer."""
    codec = CODEC if arm == COMPRESSED else dict.fromkeys(CODEC, 0.0)
    phases = {key: seconds + codec[key] for key, seconds in HANDLING.items()}
    one = ideal(rate_gbit_s)
    round_s = 6e-3 + 1e-3 * clients + (one.raw_s(clients) if arm == RAW else one.compressed_s(clients)) + slower_s
    size_bytes = SIZE_BYTES / (1 if arm == RAW else RATIO)
    result = {
        **phases,
        "server_decompress_s": clients * (1e-3 if arm == RAW else 3e-3),
        "round_s": round_s,
        "least_round_s": round_s - 1e-3,
        "most_round_s": round_s + 1e-3,
        "model_bytes": size_bytes,
        "update_bytes": size_bytes,
        "wire_over_payload": WIRE * 15 / 14,  # the last model is on the wire, and in no step
        "verdict": verdict,
        "dilation": 24.0,
    }
    asked = {"rate_gbit_s": rate_gbit_s, "clients": clients, "arm": arm}
    return {"asked": asked, "result": result, "is_disturbed": False, "others_cores": 0.0}


def points(rate_gbit_s: float, *numbers: int) -> list[dict[str, Any]]:
    return [point(rate_gbit_s, clients, arm) for clients in numbers for arm in ARMS]


def test_the_formula_is_found_again_in_rounds_made_by_it() -> None:
    # by hand: S / B is 2 ms, so that each client gains 4 - 0.8 - 2 = 1.2 ms and 14 ms once are made up for by 11.67
    ((rate, by_clients),) = tables.pairs(points(5, 4, 8, 16)).items()
    found = tables.formula(rate, by_clients)
    assert found.codecs.crossing.clients == pytest.approx(14 / 1.2)
    assert tables.crossings(by_clients) == [pytest.approx(14 / 1.2)]
    for arm in ARMS:
        assert found.round_s(arm, 8) == pytest.approx(by_clients[8][arm]["result"]["round_s"])
    # handled while others arrive: raw 4 ms a client (the link is slower), else 0.4 + 3; 20 + 0.4 once against 6 + 1
    assert found.crossing_overlapping.clients == pytest.approx((20.4 - 7) / (4 - 3.4))
    # 14 ms once and 2 ms a client are what 1.6 of 32 raw transfers each take: 1.4875... ms for a transfer's own
    assert found.near_bit_s == pytest.approx(1e9 * 5 * 2 / ((14 / 32 + 2) / 1.6))


def test_the_table_says_from_how_many_clients_on_it_pays() -> None:
    near, always = tables.break_even(points(5, 4, 16) + points(0.5, 2, 4)).split("**The server's link at ")[:0:-1]
    assert near.startswith("5 Gbit/s**") and always.startswith("0.5 Gbit/s**")
    assert "as measured: **as long either way at 11.7 clients**; by the formula: **from 12 clients on**" in near
    assert "; if updates were handled while others arrive: from 23 clients on. Medians" in near
    assert "up 250 / 500 MB/s and R = 5.00, down 125 / 500 MB/s" in near and "4 Gbit/s of payload" in near
    assert "| 4 | 26.0 [25.0 to 27.0] (26.0) | 35.2 [34.2 to 36.2] (35.2) | 0.74 (0.74) |" in near
    assert "as measured: **always, with 2 to 4 clients**; by the formula: **always**" in always


def test_what_is_measured_need_not_be_what_the_formula_says() -> None:
    slower = [point(5, clients, arm, slower_s=0.1 * (arm == COMPRESSED)) for clients in (4, 16) for arm in ARMS]
    text = tables.break_even(slower)
    assert "**never, with 4 to 16 clients**; by the formula: **from 12 clients on**" in text


def test_a_run_that_may_not_be_believed_and_an_arm_alone_are_left_out() -> None:
    found = [*points(5, 4, 16), point(5, 32, RAW), point(5, 64, RAW), point(5, 64, COMPRESSED, "invalid")]
    assert list(tables.pairs(found)[5]) == [4, 16]
    assert tables.pairs([point(1, 2, RAW)]) == {}


def test_the_figure_is_the_same_for_the_same_points() -> None:
    found = points(5, 4, 16, 32) + points(0.5, 2, 4)
    drawn = tables.draw(found)
    assert drawn == tables.draw(found) != tables.draw(found[:4])
    assert "0.5 Gbit/s, measured" in drawn and "raw round / compressed round" in drawn


def step(rank: int, number: int, step_s: float, payload_bytes: float, **phases: float) -> dict[str, Any]:
    zero = dict.fromkeys(("forward", "backward", "optimizer", "compress", "decompress"), 0.0)
    told = {"step": number, "rank": rank, "step_s": step_s, "payload_bytes": payload_bytes}
    return {**told, "phase_s": zero | phases, "late_s": 0.0, "queued_s": 0.0}


def test_a_round_is_the_servers_step_without_training_and_without_the_mean() -> None:
    by_step = {
        number: {
            0: step(0, number, seconds, 300.0, compress=0.2, decompress=0.9, optimizer=0.25),
            **{
                rank: step(rank, number, 9.0, 50.0 + rank, forward=1, backward=2, optimizer=0.5, compress=0.1 * rank)
                for rank in (1, 2, 3)
            },
        }
        for number, seconds in ((2, 5.0), (3, 7.0), (4, 6.0))
    }
    summary = {"verdict": "valid", "reasons": [], "dilation": 4.0, "bytes": {"wire_total": 110.0, "payload": 100.0}}
    found = measure.figures(WholeRun({}, summary, {}, by_step, {}, []))
    assert found["round_s"] == pytest.approx(6 - 3.5 - 0.25)
    assert (found["least_round_s"], found["most_round_s"]) == (pytest.approx(1.25), pytest.approx(3.25))
    assert (found["training_s"], found["client_compress_s"]) == (3.5, pytest.approx(0.2))
    assert (found["server_compress_s"], found["server_decompress_s"]) == (0.2, 0.9)
    assert (found["model_bytes"], found["update_bytes"], found["wire_over_payload"]) == (100.0, 52.0, 1.1)
    assert found["verdict"] == "valid"


def test_every_case_is_a_run_that_can_be_asked_for() -> None:
    asked = [one.asked for one in measure.points(quick=False)]
    assert len(asked) == len(ARMS) * sum(map(len, measure.CLIENTS.values()))
    for one in (asked[0], asked[-1]):
        found = resolve(measure.overrides(**one))
        assert not found.faults
        assert found.spec.workers == one["clients"] + 1
        assert {link.forward.rate_bit_s for link in found.spec.topology.wan_links} == {1e9 * one["rate_gbit_s"]}
        assert found.spec.strategy.params["uplink"]["codec"] == one["arm"]
    for one in asked:
        assert one["clients"] / measure.dilation(one["rate_gbit_s"], one["clients"]) <= 4 / 3


def test_figures_depend_on_the_server_and_those_of_what_is_compressed_on_the_codec() -> None:
    def files(arm: str) -> set[Path]:
        return set(measure.depends_on(1, 2, arm))

    assert {"server.py", "client.py", "decoders.py", "baselines.py", "star.yaml"} <= {one.name for one in files(RAW)}
    assert {"codec_child.py", "sz3.yaml"} <= {one.name for one in files(COMPRESSED) - files(RAW)}
