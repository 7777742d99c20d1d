"""PipeTransformer's runs: what their condition says of where pipelines lie."""

from __future__ import annotations

from experiments.common.papers.declaration import load
from experiments.reproductions.runs import ask_all
from testbed.worker.methods.pipeline.plan_request import placed


def test_pipelines_begin_inside_a_region_as_the_condition_says() -> None:
    system = load("pipetransformer")
    assert "pipelines of two stages inside a region at first" in system.setting
    for asked in ask_all(system.trials(False)):
        nodes, params = asked.spec.topology.nodes, asked.spec.strategy.params
        names = asked.spec.topology.regions
        regions = [[rank for rank, node in enumerate(nodes) if node.region == name] for name in names]
        pp = params["pp"]
        ranks = placed(params["placement"], regions, pp, 1)
        replicas = len(ranks) // pp
        for replica in range(replicas):
            assert len({nodes[rank].region for rank in ranks[replica::replicas]}) == 1
