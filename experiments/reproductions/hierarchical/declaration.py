"""Hierarchical federated averaging (Liu et al., ICC 2020, arXiv:1905.06641): a server in each region against one for
all, by what crosses the link between regions."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.common.papers.declaration import System, Trial
from testbed.core.record.run_directory import RunDir

CLIENTS_A_REGION, ROUNDS, LOCAL_STEPS, GROUP_ROUNDS = 4, 16, 5, 4
SEEDS = {False: 1, True: 3}
"""By whether all was asked for."""
FLAT, REGIONS, SEVERAL = "one server", "a server a region", f"{GROUP_ROUNDS} rounds of a region"
OWN: Mapping[str, tuple[str, ...]] = {
    FLAT: (f"workers={2 * CLIENTS_A_REGION + 1}",),
    REGIONS: (f"workers={2 * CLIENTS_A_REGION + 2}", "strategy.region_servers=true"),
    SEVERAL: (
        *(f"workers={2 * CLIENTS_A_REGION + 2}", "strategy.region_servers=true"),
        f"strategy.group_rounds={GROUP_ROUNDS}",
    ),
}
"""Of each arm; so that each region has as many clients beside its server."""
_CASE = "glyphs, wan100m"


def overrides(arm: str, seed: int) -> tuple[str, ...]:
    """Of a run."""
    return (
        *("topo=wan100m", "strategy=parameter_server", "workload=glyphs", "compressor=none"),
        *("strategy.uplink.codec=raw", "strategy.downlink.codec=raw", "batch_size=32"),
        *(f"strategy.local_steps={LOCAL_STEPS}", f"steps={ROUNDS * LOCAL_STEPS}", "evaluate_every=1000"),
        *(f"seed={seed}", *OWN[arm]),
    )


def trials(full: bool) -> list[Trial]:
    return [Trial(_CASE, arm, "emulated", overrides(arm, seed), 120) for seed in range(SEEDS[full]) for arm in OWN]


def wan_megabytes(run: RunDir) -> float | None:
    """That left the links between regions, framing and acknowledgements among them."""
    return float(run.read_json(run.summary)["bytes"]["wire_wan"]) / 1e6


def facts(case: str, kind: str) -> Mapping[str, str]:
    del case, kind
    return {"clients": f"{CLIENTS_A_REGION} in each of two regions", "rounds of clients": str(ROUNDS)}


SYSTEM = System(
    name="hierarchical",
    claim=(
        "if a server in each region averages its clients first, one update of a region crosses the far link instead of"
        " one of each client: N x fewer bytes with N clients in a region"
    ),
    claimed=float(CLIENTS_A_REGION),
    source="Liu et al., ICC 2020, arXiv:1905.06641; the ratio is arithmetic's, not theirs",
    baseline="one server, of which clients of both regions are clients",
    setting="two regions of four clients each, 100 Mbit/s and 67 ms between them, five steps of each client in a round",
    candidates=(REGIONS,),
    baselines=(FLAT,),
    beside=(SEVERAL,),
    trials=trials,
    figure=wan_megabytes,
    figure_name="over the WAN, MB",
    facts=facts,
)
