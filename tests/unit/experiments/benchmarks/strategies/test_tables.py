"""The tables of strategies: orders, shares and verdicts, and what figures depend on."""

from __future__ import annotations

from typing import Any

from experiments.benchmarks.strategies import measure, tables
from experiments.common.sources import CONF, of_compressor


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
    sections = tables.strategies(POINTS).split("\n\n")
    assert [s for s in sections if s.startswith("**")] == [
        "**digits on wan100m**",
        "**digits on wan1g**",
        "**glyphs on wan1g**",
    ]
    rows = sections[1].splitlines()
    assert rows[0].startswith("| strategy | s to 0.97 | accuracy | step, ms: mean | median |")
    assert rows[2] == "| local_sgd | 3.2 | 0.980 | 46 | 12 | 7.9 | 2.0 | 1.5 | 2.7 | valid |"
    assert [row.split(" | ")[:2] for row in rows[3:]] == [["| ddp", "23.7"], ["| diloco", "-"]]


def test_every_strategy_is_measured_on_both_links() -> None:
    asked = [point.asked for point in measure.points(quick=False) if point.asked["workload"] == "digits"]
    assert len(asked) == len(measure.KINDS) * len(measure.TOPOLOGIES)
    # second-order ones, those for large batches, a server that does not train, clients that share workers, and replicas
    # that are never all alike need a comparison of their own, as do models in stages, and one that trains nothing
    first = ("kfac", "lamb", "parameter_server", "federated", "fedbuff", "gossip")
    others = (*first, "hybrid", "pipetransformer", "kv_transfer")
    compared = {path.stem for path in (CONF / "strategy").glob("*.yaml") if not path.stem.endswith(others)}
    assert {measure.strategy_of(kind) for kind in measure.KINDS} == compared


def test_a_strategys_figures_depend_on_its_own_files_and_what_they_import() -> None:
    files = {path.name for path in measure.depends_on("diloco, regions", "wan1g", "digits", 0)}
    assert {"diloco.py", "reducer.py", "hierarchical.py", "digits.py", "diloco.yaml", "wan1g.yaml"} <= files
    assert not {"ddp.py", "dear.py", "glyphs.py", "topk.py", "wan100m.yaml"} & files
    assert "topk.py" in {path.name for path in of_compressor("topk")}
