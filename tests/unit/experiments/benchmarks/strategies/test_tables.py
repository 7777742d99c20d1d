"""The tables of strategies: orders, shares and verdicts, and what figures depend on."""

from __future__ import annotations

from typing import Any

from experiments.benchmarks.diloco import diloco
from experiments.benchmarks.diloco import tables as diloco_tables
from experiments.benchmarks.strategies import strategies
from experiments.benchmarks.strategies import tables as strategies_tables
from experiments.common.harness import points_of


def timed(kind: str, topo: str, reached_s: float | None, workload: str = "digits") -> dict[str, Any]:
    return {
        "asked": {"kind": kind, "topo": topo, "workload": workload, "repeat": 0},
        "result": {
            "metric": {"name": "accuracy", "value": 0.98, "target": 0.97, "time_to_target_s": reached_s},
            "step_s": 0.0123,
            "mean_step_s": 0.0456,
            "time_s": 7.89,
            "payload_bytes": 2e6,
            "wan_bytes": 1.5e6,
            "dilation": 2.7,
            "verdict": "valid",
        },
        "is_disturbed": False,
        "others_cores": 0.0,
    }


POINTS = [
    timed("ddp", "wan100m", 23.7),
    timed("diloco", "wan100m", None),
    timed("local_sgd", "wan100m", 3.2),
    timed("ddp", "wan1g", 15.0),
    timed("ddp", "wan1g", 99.0, "glyphs"),
]


def test_what_reaches_the_target_first_comes_first_and_what_never_does_last() -> None:
    sections = strategies_tables.strategies(POINTS).split("\n\n")
    assert [s for s in sections if s.startswith("**")] == [
        "**digits on wan100m**",
        "**digits on wan1g**",
        "**glyphs on wan1g**",
    ]
    rows = sections[1].splitlines()
    assert rows[0].startswith("| strategy | s to 0.97 | accuracy | step, ms: mean | median |")
    assert rows[2] == "| local_sgd | 3.2 | 0.980 | 46 | 12 | 7.9 | 2.0 | 1.5 | 2.7 | valid |"
    assert [row.split(" | ")[:2] for row in rows[3:]] == [["| ddp", "23.7"], ["| diloco", "-"]]


def test_the_short_tables_are_of_each_link_and_of_the_quick_workload_alone() -> None:
    sections = strategies_tables.brief(POINTS).split("\n\n")
    assert [s for s in sections if s.startswith("**")] == ["**wan100m**", "**wan1g**"]
    rows = sections[1].splitlines()
    assert rows[0] == "| strategy | s to 97% | accuracy | step | over the WAN | verdict |"
    assert rows[2] == "| `local_sgd` | 3.2 | 98.0% | 46 ms | 1.5 MB | valid |"
    assert [row.split(" | ")[0] for row in rows[2:]] == ["| `local_sgd`", "| `ddp`", "| `diloco`"]
    assert [row.split(" | ")[0] for row in sections[3].splitlines()[2:]] == ["| `ddp`"]
    assert "99.0" not in "".join(sections)


def test_every_strategy_is_measured_on_both_links() -> None:
    asked = [point.asked for point in points_of("strategies") if point.asked["workload"] == "digits"]
    assert len(asked) == len(strategies.KINDS) * len(strategies.TOPOLOGIES)
    conf = strategies.CLONE / "experiments" / "conf" / "strategy"
    # second-order ones, those for large batches, a server that does not train, clients that share workers, and replicas
    # that are never all alike need a comparison of their own, as do models in stages, and one that trains nothing
    first = ("kfac", "lamb", "parameter_server", "federated", "fedbuff", "gossip")
    others = (*first, "hybrid", "pipetransformer", "kv_transfer")
    compared = {path.stem for path in conf.glob("*.yaml") if not path.stem.endswith(others)}
    assert {strategies.strategy_of(kind) for kind in strategies.KINDS} == compared


def test_a_strategys_figures_depend_on_its_own_files_and_what_they_import() -> None:
    files = {path.name for path in strategies.depends_on("diloco, regions", "wan1g", "digits", 0)}
    assert {"diloco.py", "reducer.py", "hierarchical.py", "digits.py", "diloco.yaml", "wan1g.yaml"} <= files
    assert not {"ddp.py", "dear.py", "glyphs.py", "topk.py", "wan100m.yaml"} & files
    assert "topk.py" in {path.name for path in diloco.members.compressor_files("topk")}


def learnt(kind: str, *values: float, workload: str = "glyphs", wan_bytes: float | None = 2e7) -> list[dict[str, Any]]:
    metric = {"glyphs": "accuracy", "bytelm": "bits_per_byte"}[workload]
    return [
        {
            "asked": {"kind": kind, "workload": workload, "seed": seed, "repeat": seed},
            "result": {"metric": {"name": metric, "value": value}, "wan_bytes": wan_bytes, "verdict": "valid"},
            "is_disturbed": False,
            "others_cores": 0.0,
        }
        for seed, value in enumerate(values)
    ]


def test_few_bytes_are_held_against_ddp_of_the_same_seeds() -> None:
    points = [
        *learnt("far", 0.85, 0.84, 0.845),
        *learnt("close", 0.869, 0.859, 0.865),
        *learnt("ddp", 0.87, 0.86, 0.865, wan_bytes=None),
    ]
    head, text = diloco_tables.diloco(points, {"glyphs": 2e9}).split("\n\n")
    assert head == "**glyphs**; `ddp` sends 2000 MB over `wan100m`"
    rows = [row.strip("| ").split(" | ") for row in text.splitlines()[2:]]
    assert [row[0] for row in rows] == ["ddp", "close", "far"]
    assert [row[4] for row in rows] == ["yes", "yes", "no"]
    # by hand: differences -0.1, -0.1 and 0 points, of standard deviation 0.0577; 4.303 * 0.0577 / sqrt(3) = 0.143
    assert rows[1][3:] == ["-0.07 ± 0.14", "yes", "20.0", "1.00", "valid"]
    assert rows[0][5:7] == ["2000.0", "100.00"]


def test_of_a_loss_less_is_better_and_a_share_counts() -> None:
    points = [*learnt("ddp", 2.0, 2.0, workload="bytelm"), *learnt("worse", 2.2, 2.2, workload="bytelm")]
    points += learnt("better", 1.9, 1.9, workload="bytelm")
    text = diloco_tables.diloco(points, {})
    rows = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| ")][2:]
    assert [row[0] for row in rows] == ["ddp", "better", "worse"]
    assert [row[3:5] for row in rows] == [["+0.00 ± 0.00", "yes"], ["+5.00 ± 0.00", "yes"], ["-10.00 ± 0.00", "no"]]
    assert rows[1][6] == "-"  # ddp's bytes are not known
