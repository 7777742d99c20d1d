"""`dilation=auto`: the smallest k at which the real work of all workers fits into the emulated time of a step.

Two things must fit. Computing: before a rank sends, all ranks that share its cores have computed, and at k the device
gives them k times its own time for it; what does not fit makes messages late. Everything: what a step costs in
CPU seconds, the packets of its messages included, must leave cores idle, or messages wait for cores and not for links;
and there must be time for evaluations, which take what nobody else wants.
Where most steps exchange nothing, as in local SGD, nobody waits for messages, so all ranks compute all the time: then
the steps between two exchanges must fit by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.core.costs.collective import CHAIN, ranks_of_regions, scaled_chunk_bytes
from testbed.core.device.profile import Collective, Profile
from testbed.core.spec.run_spec import RunSpec
from testbed.core.units import format_time
from testbed.orchestrator.config.grammar.offers import Refused
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.observation.verdict.lateness_rules import LATE_SUSPECT
from testbed.orchestrator.run.dilation.traffic import GLOO, Traffic
from testbed.orchestrator.run.offers import dilation_offers

LATE_SHARE = 0.01
"""Of a step: half of what makes a run suspect, since some runs are half as late again as this arithmetic has it."""
BUSY_SHARE = 0.75
"""Of all cores, on average."""
FULL_SHARE = 0.85
"""Likewise with evaluations, which yield to all others; less idle than 10% makes a run suspect."""
COMPUTE_MARGIN = 1.25
"""Beside others, or after each sleep, with cold caches, a step takes longer than alone. One worker by itself, slowed
three times, took 1.3 times the CPU seconds that it took at its own pace."""
MIN_CROWD = 1.2
"""Workers to a core, where each has one: routers, delay lines and the collector want a third of a core meanwhile. At
1.25 times their own pace, all that `COMPUTE_MARGIN` asks, two workers on two cores were 7 to 11% late."""
COLD_CODEC = 2.0
"""Factor of a codec's CPU seconds once in many steps. PowerSGD of three workers, 0.1 s alone, was 0.3 s late by it."""
WAKE_UP_S = 3e-4
"""Of a core, to wake one sleeping rank up and have it send: assumed."""
CROWDED_SHARE = 0.35
"""Of all cores, while collectives are under way: beyond, their messages wait for a core."""
FREE_SHARE, FULLY_CONTENDED_SHARE = 0.6, 1.2
"""Likewise with the computing that they overlap: up to the first neither is late for the other, from the second on a
step is late by all that its messages take, and in proportion between them. Two workers on a local network of 2.5 Gbit/s
were late by 0.06, 0.17, 0.7, 0.9 and 1.1 of it at 0.6, 0.67, 1, 1.14 and 1.38 of the cores: docs/decisions/0034."""
_STEP = 0.05
_MAX_DILATION = 1000.0


@dataclass(frozen=True, kw_only=True)
class Load:
    """What the steps of one cycle, from one exchange to the next, ask of the machine, and the emulated time they have
    for it. Most strategies exchange in every step."""

    workers: int
    cores: int
    steps: int
    compute_cpu_s: float
    """Of one worker."""
    compute_s: float
    """Emulated: of one worker."""
    codec_cpu_s: float
    """Part of `compute_cpu_s` that all workers begin at once; 0 if the run ends before the first exchange.

    All the codec of a rare exchange, and else the longest round of a bucket."""
    codec_s: float
    """Part of `compute_s` that the device gives it."""
    evaluate_cpu_s: float
    """Of the one that evaluates, beside its training."""
    exchange: Traffic
    """Of all workers, once in a cycle."""
    chains: Traffic
    """Of all workers, once in a cycle, at other times than the exchange."""
    inside: Traffic
    """Of the workers of each region, in every step, beside that."""

    @classmethod
    def of(cls, spec: RunSpec, cpu: Profile, device: Profile, cores: int) -> Load:
        """Of a cycle of `spec`; no collectives in the profile count as one dense all-reduce."""
        dense = [Collective(kind="all_reduce", size_bytes=4 * sum(layer.parameters for layer in cpu.layers))]
        collectives = [one for one in cpu.collectives if one.kind != CHAIN] or dense
        chains = [one.size_bytes for one in cpu.collectives if one.kind == CHAIN]
        steps, named = cpu.cycle_steps, str(spec.strategy.params.get("collective", GLOO))
        regions = ranks_of_regions(spec.topology) if spec.strategy.params.get("replicas") == "region" else []
        exchanges = steps <= (spec.steps or steps)
        longest = sorted(cpu.codec_rounds, key=lambda each: cpu.codec_s(*each))[-1:]
        begun = longest if steps == 1 else cpu.codec_rounds
        inside = [Traffic.of(dense, spec.topology.only(ranks), "ring") for ranks in regions if len(ranks) > 1]
        return cls(
            workers=spec.workers,
            cores=cores,
            steps=steps,
            compute_cpu_s=steps * cpu.cpu_step_s,
            compute_s=steps * device.step_s,
            codec_cpu_s=sum(cpu.codec_s(*each) for each in begun) * exchanges,
            codec_s=sum(device.codec_s(*each) for each in begun) * exchanges,
            evaluate_cpu_s=steps * cpu.evaluate_cpu_s / spec.evaluate_every,
            exchange=Traffic.of(collectives, spec.topology, named),
            chains=Traffic.of_chains(chains, spec.topology, scaled_chunk_bytes(spec.scale)),
            inside=Traffic(
                steps * sum(one.cpu_s for one in inside), steps * max((one.lasts_s for one in inside), default=0.0)
            ),
        )

    @property
    def needed_s(self) -> float:
        """Wall seconds that computing takes, all workers on all cores."""
        return self.compute_cpu_s * self._crowd

    @property
    def _crowd(self) -> float:
        """Wall seconds for each CPU second of one worker, while all compute."""
        crowd = self.workers / self.cores
        return COMPUTE_MARGIN * (max(crowd, MIN_CROWD) if crowd >= 1 else 1.0)

    def late_share(self, k: float) -> float:
        """Of a cycle's emulated time, how late its messages are to be expected."""
        late_s = max(0.0, self.needed_s - k * self.compute_s) + self.contended_s(k)
        # what is left over before it comes too early for a codec: workers sleep through it, and then all begin at once
        crowd = COLD_CODEC * self._crowd if self.steps > 1 else max(1.0, self.workers / self.cores)
        late_s = max(late_s, self.codec_cpu_s * crowd - k * self.codec_s)
        wake_ups = self.steps if self.inside.cpu_s else 1
        late_s += WAKE_UP_S * max(0.0, self.workers / self.cores - 1) * wake_ups
        return late_s / (k * self.cycle_s)

    def busy_share(self, k: float) -> float:
        """Of all cores, on average over a cycle."""
        network_s = self.exchange.cpu_s + self.chains.cpu_s + self.inside.cpu_s
        return (self.workers * self.compute_cpu_s + network_s) / (self.cores * k * self.cycle_s)

    def full_share(self, k: float) -> float:
        """Likewise with evaluations."""
        return self.busy_share(k) + self.evaluate_cpu_s / (self.cores * k * self.cycle_s)

    @property
    def cycle_s(self) -> float:
        """Emulated; at least. Where most steps exchange nothing, it is what they compute: cores are busy with that, and
        rest meanwhile is no rest then."""
        communicate_s = self.exchange.lasts_s + self.chains.lasts_s if self.steps == 1 else 0.0
        return max(self.compute_s + communicate_s / 2, communicate_s, 1e-6)

    @property
    def step_s(self) -> float:
        """Emulated seconds of a step, roughly: its mean over a cycle."""
        if self.steps == 1:
            return self.cycle_s
        return (self.compute_s + sum(one.lasts_s for one in self.kinds)) / self.steps

    @property
    def kinds(self) -> list[Traffic]:
        return [one for one in (self.exchange, self.chains, self.inside) if one.cpu_s]

    def crowded_share(self, k: float) -> float:
        """Of all cores, while messages are under way; 0 where all of it is as short as what a cycle may be late."""
        least_s = LATE_SHARE * k * self.cycle_s
        heavy = [one for one in self.kinds if one.cpu_s / self.cores > least_s]
        return max((one.crowded_share(k, self.cores) for one in heavy), default=0.0)

    def contended_share(self, one: Traffic, k: float) -> float:
        """Likewise, while these are, with the computing meanwhile."""
        window_s = max(self.compute_s, self.exchange.lasts_s, 1e-9)
        return one.crowded_share(k, self.cores) + self.needed_s / (k * window_s)

    def contended_s(self, k: float) -> float:
        """Wall seconds that computing and messages keep each other waiting. None where most steps exchange nothing."""
        if self.steps > 1:
            return 0.0
        span = FULLY_CONTENDED_SHARE - FREE_SHARE
        lost = [min(1.0, max(0.0, self.contended_share(one, k) - FREE_SHARE) / span) for one in self.kinds]
        return sum(share * one.cpu_s / self.cores for share, one in zip(lost, self.kinds, strict=True))

    def restless_share(self, k: float) -> float:
        """Of the time for computing, what computing needs; 0 where workers rest in each step while they communicate."""
        return self.needed_s / (k * max(self.compute_s, 1e-9)) if self.steps > 1 else 0.0

    def fits(self, k: float, late_share: float = LATE_SHARE) -> bool:
        """Return True if workers are late by that share of the time at most, and cores rest."""
        return not any(True for _ in self.excesses(k, late_share))

    def excesses(self, k: float, late_share: float = LATE_SHARE) -> Iterator[str]:
        """Yield in words each figure that is too large at this dilation."""
        for share, most, text in (
            (self.late_share(k), late_share, "phases would be late by {} of the time"),
            (self.restless_share(k), BUSY_SHARE, "computing between two exchanges would take {} of the cores"),
            (self.busy_share(k), BUSY_SHARE, "steps would take {} of the cores"),
            (self.full_share(k), FULL_SHARE, "steps and evaluations would take {} of the cores"),
            (self.crowded_share(k), CROWDED_SHARE, "messages would take {} of the cores while they are under way"),
        ):
            if share > most:
                yield f"{text.format(f'{share:.1%}')} ({most:.0%} at most)"


def choose(spec: RunSpec, cpu: Profile, device: Profile, cores: int) -> float:
    """Return the smallest dilation that suffices, in steps of 0.05 or, from 40 on, up to 0.25 %.

    It suffices before the model changes and after. Where only the largest that links bear may do, by what a `valid` run
    may be late, the pilot is to find out.

    Raises:
        Refused: None does that the topology bears; with what would.
    """
    if (k := smallest(spec, cpu, device, cores)) is not None:
        return k
    most = most_dilation(spec)
    loads = _loads(spec, cpu, device, cores)
    if all(load.fits(most, LATE_SUSPECT) for load in loads):
        return most

    def suffices(cpu: Profile, device: Profile) -> float | None:
        loads = _loads(spec, cpu, device, cores)  # looking through all dilations is only for what the largest one suits
        return smallest(spec, cpu, device, cores) if all(load.fits(most_dilation(spec)) for load in loads) else None

    def smallest_anew(other: RunSpec) -> float | None:
        return smallest(other, *dilation_offers.measured_anew(cpu, device), cores)

    offers = [
        *dilation_offers.paced(spec, cpu, device, suffices),
        *dilation_offers.interval(spec, cpu, device, suffices),
        *dilation_offers.congestion_control(spec, smallest_anew),
    ]
    raise Refused(_refusal(spec, loads), offers, smallest_anew)


def among_ranks(spec: RunSpec, devices: int) -> float:
    """Return the dilation at which the ranks that share a device, one at a time, come to the end of its time.

    What else there is to do is not known before; the pilot finds it.
    """
    ranks = math.ceil(spec.workers / max(1, devices))
    return min(on_grid(COMPUTE_MARGIN * ranks) if ranks > 1 else 1.0, most_dilation(spec))


def smallest(spec: RunSpec, cpu: Profile, device: Profile, cores: int) -> float | None:
    """Return the smallest dilation that suffices, before the model changes and after; None if none does."""
    loads, k, most = _loads(spec, cpu, device, cores), 1.0, most_dilation(spec)
    while k <= most + 1e-9:
        if all(load.fits(k) for load in loads):
            return round(k, 2)
        k += max(_STEP, math.floor(k / 20) * _STEP)
    return None


def _loads(spec: RunSpec, cpu: Profile, device: Profile, cores: int) -> list[Load]:
    """Return the load before the model changes, and that after it if it does."""
    pairs = [(cpu, device), (cpu.switched, device.switched)]
    return [Load.of(spec, c, d, cores) for c, d in pairs if c is not None and d is not None]


def on_grid(dilation: float) -> float:
    """Return the next larger multiple of 0.05: a dilation as it is chosen."""
    return round(math.ceil(dilation / _STEP - 1e-9) * _STEP, 2)


def most_dilation(spec: RunSpec) -> float:
    """Return the largest dilation, in steps of 0.05, at which TCP does here what it does unslowed."""
    rtt_s = spec.outermost_topology.farthest_rtt_s
    most = min(max(1.0, tcp.max_dilation(spec.tcp, rtt_s)), _MAX_DILATION)
    return round(math.floor(most / _STEP + 1e-9) * _STEP, 2)


def _refusal(spec: RunSpec, loads: Sequence[Load]) -> str:
    most, load = most_dilation(spec), loads[0]
    needed, given = (format_time(seconds / load.steps) for seconds in (load.needed_s, load.compute_s))
    excesses = max((list(load.excesses(most, LATE_SUSPECT)) for load in loads), key=len)
    return (
        f"dilation=auto: a step of {spec.workers} workers needs {needed} of wall time on {load.cores} cores,"
        f" device={spec.device.name} gives it {given}, and tcp={spec.tcp} bears a dilation of {most:.3g} at most here:"
        f" {'; '.join(excesses)}"
    )
