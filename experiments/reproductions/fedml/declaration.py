"""FedML Parrot (Tang et al., arXiv:2303.01778): a thousand clients one after another on a few unlike workers, placed
the longest first by what they have taken so far, against equally many on each."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.common.papers.declaration import System, Trial, step_s

CLIENTS, PARTICIPANTS, ROUNDS = 1000, 100, 12
SEEDS = {False: 1, True: 3}
"""By whether all was asked for."""
SPEEDS = (1.0, 1.0, 0.5, 0.25)
"""Of the workers beside the server."""
STEP_S, DILATION = 0.015, 6
"""A device that takes 15 ms for a batch of 20 samples, in both arms: what a core of this machine takes for it differs
from one minute to another."""
LONGEST, EQUAL = "longest first", "equal split"
ARMS = {LONGEST: "longest_first", EQUAL: "equal"}
_CASE = "glyphs, lan"
_SECONDS = {LONGEST: 115, EQUAL: 245}


def overrides(arm: str, seed: int) -> tuple[str, ...]:
    """Of a run."""
    return (
        *("topo=lan", f"workers={len(SPEEDS) + 1}", "strategy=federated", "workload=glyphs", "compressor=none"),
        *(f"strategy.clients={CLIENTS}", f"strategy.participants={PARTICIPANTS}", f"strategy.placement={ARMS[arm]}"),
        f"strategy.speeds=[{','.join(f'{speed:g}' for speed in SPEEDS)}]",
        *("batch_size=20", "device=paced", f"device.step_s={STEP_S}", f"dilation={DILATION}"),
        *(f"steps={ROUNDS}", f"evaluate_every={ROUNDS}", f"seed={seed}"),
    )


def trials(full: bool) -> list[Trial]:
    return [
        Trial(_CASE, arm, "emulated", overrides(arm, seed), _SECONDS[arm])
        for seed in range(SEEDS[full])
        for arm in ARMS
    ]


def facts(case: str, kind: str) -> Mapping[str, str]:
    del case, kind
    return {"clients": f"{CLIENTS}, {PARTICIPANTS} a round", "speeds": " ".join(f"{speed:g}" for speed in SPEEDS)}


SYSTEM = System(
    name="fedml",
    claim=(
        "placing the longest clients first, by times that are fitted meanwhile, simulates 1,000 clients and more 1.2x"
        " to 4x faster than another framework"
    ),
    claimed=1.2,
    source="Tang et al., FedML Parrot, arXiv:2303.01778",
    baseline="equally many clients on each worker",
    setting=(
        f"a server and four workers of speeds 1, 1, 0.5, 0.25 in one region, a device of {1e3 * STEP_S:g} ms a batch;"
        " clients' samples skewed, Dirichlet 0.3"
    ),
    candidates=(LONGEST,),
    baselines=(EQUAL,),
    trials=trials,
    figure=step_s,
    figure_name="round, s",
    facts=facts,
)
