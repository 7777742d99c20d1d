"""FedBuff (Nguyen et al., AISTATS 2022, arXiv:2106.06639): a server that waits for nobody against one of rounds, when
clients last unequally long."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.common.papers.declaration import System, Trial
from testbed.core.record.run_directory import RunDir

CLIENTS, WORKERS, SIGMA, STEP_S = 100, 10, 1.0, 0.05
TARGET = 0.75
SEEDS = {False: 1, True: 3}
"""By whether all was asked for."""
ROUNDS = "rounds"
BUFFERED = {f"FedBuff, {size}": (size, steps) for size, steps in ((10, 140), (4, 260))}
"""By how many updates a version takes, and versions enough for the target."""
_ROUNDS = 110
_CASE = "blocks, star 50 Mbit/s"
_SHARED = (
    *("topo=star", "topo.rate='50 Mbit/s'", f"workers={WORKERS + 1}", "workload=blocks", "compressor=none"),
    *("device=paced", f"device.step_s={STEP_S}", "batch_size=32", f"target={TARGET}", "dilation=3"),
    *(f"strategy.clients={CLIENTS}", f"strategy.straggler_sigma={SIGMA:g}"),
)


def overrides(arm: str, seed: int) -> tuple[str, ...]:
    """Of a run; evaluated after as many updates in each arm."""
    if arm == ROUNDS:
        own = ("strategy=federated", f"strategy.participants={WORKERS}", "strategy.placement=equal")
        return (*own, *_SHARED, f"steps={_ROUNDS}", "evaluate_every=2", f"seed={seed}")
    size, steps = BUFFERED[arm]
    own = ("strategy=fedbuff", f"strategy.size={size}")
    return (*own, *_SHARED, f"steps={steps}", f"evaluate_every={2 * WORKERS // size}", f"seed={seed}")


def trials(full: bool) -> list[Trial]:
    return [
        Trial(_CASE, arm, "emulated", overrides(arm, seed), 230 if arm == ROUNDS else 100)
        for seed in range(SEEDS[full])
        for arm in (ROUNDS, *BUFFERED)
    ]


def time_to_target_s(run: RunDir) -> float | None:
    """Emulated; None: it was never there."""
    value = run.read_json(run.summary)["metric"]["time_to_target_s"]
    return None if value is None else float(value)


def facts(case: str, kind: str) -> Mapping[str, str]:
    del case, kind
    return {"clients": f"{CLIENTS}, {WORKERS} at a time", "slowness": f"lognormal, sigma {SIGMA:g}"}


SYSTEM = System(
    name="fedbuff",
    claim="updates that are aggregated in a buffer as they come are 3.3 times more efficient than synchronous learning",
    claimed=3.3,
    source="Nguyen et al., AISTATS 2022, arXiv:2106.06639",
    baseline="FedAvg in rounds of as many clients as train at once",
    setting=(
        "a server and ten workers of one client each at a time over 50 Mbit/s and 40 ms; clients' samples skewed,"
        " Dirichlet 0.3, and each run of a client longer by a lognormal factor"
    ),
    candidates=tuple(BUFFERED),
    baselines=(ROUNDS,),
    trials=trials,
    figure=time_to_target_s,
    figure_name=f"to {TARGET:.0%}, s",
    facts=facts,
)
