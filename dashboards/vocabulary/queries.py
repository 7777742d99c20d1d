"""PromQL in the project's words. Metric names are those of `testbed.core.record.metrics`; an unknown one is an error
here.

Two ways to read a series. Over time: as it is, or `rate` of a counter. At the end of the range, for tables and bars:
`last`, since an archived run ends long before the range does, and 5 s after its last sample a series is gone.
Counters begin at 0 with the first step, so what `last` gives is the run's total, and exact, which `increase` is not.
"""

from __future__ import annotations

from testbed.core.record.metrics import METRICS

SCOPE = ('run=~"$run"', 'compressor=~"$compressor"', 'topo=~"$topo"')
"""What the variables choose. Every series bears these labels."""
RATE_WINDOW = "$__rate_interval"
RANGE = "$__range"
EACH_SECOND = "$__range:1s"
"""A subquery's window: the archive has a sample each second."""

RUN = "run, compressor"
"""What tells runs apart; the compressor goes along for legends and colours."""
DIRECTION = "run, link, source, target"

ACCURACY = 'name="accuracy"'
LESS_IS_BETTER = "bits_per_byte"
"""Metrics of workloads of which the least value is the best; of all others it is the highest."""

COMPUTE = 'phase=~"forward|backward|optimizer"'
EXPOSED = 'phase="exposed_communication"'
COMMUNICATE = 'phase="communicate"'
STEP = 'phase!="communicate"'
"""Communication that computing hides is no part of a step's length; what it exposes is."""


def series(name: str, *matchers: str, scope: tuple[str, ...] = SCOPE) -> str:
    """A metric's series, by its name without a counter's `_total`."""
    return f"{METRICS[name].series}{{{','.join((*matchers, *scope))}}}"


def rate(name: str, *matchers: str) -> str:
    return f"rate({series(name, *matchers)}[{RATE_WINDOW}])"


def last(name: str, *matchers: str, scope: tuple[str, ...] = SCOPE) -> str:
    return f"last_over_time({series(name, *matchers, scope=scope)}[{RANGE}])"


def by(operator: str, labels: str, expr: str) -> str:
    """An aggregation: `by("sum", "run", x)`."""
    return f"{operator} by ({labels}) ({expr})"


def quantile(share: float, labels: str, expr: str) -> str:
    return f"quantile by ({labels}) ({share:g}, {expr})"


def ratio(numerator: str, denominator: str, on: str, *, keep: bool = False) -> str:
    """Where the denominator is 0 there is no ratio, rather than NaN or infinity.

    Args:
        on: labels by which the two are matched.
        keep: the numerator has further labels, which stay.
    """
    return f"{numerator} / on ({on}){' group_left ()' if keep else ''} ({denominator} > 0)"


def wall_rate(operator: str, labels: str, name: str) -> str:
    """Of a counter of wall-clock or processor seconds: its increase in a second of the wall clock.

    Samples have emulated times, of whose seconds each lasts `dilation` on the wall clock.
    """
    dilation = by("max", "run", series("longhaul_run_dilation_ratio"))
    return ratio(by(operator, labels, rate(name)), dilation, "run", keep=True)


def shortly_named(expr: str) -> str:
    """Add the label `short`, for legends: topology, strategy and compressor of a run, and the time of day of its start.

    A run's id has the date and a hash too, and a legend of ids is cut off.
    """
    return f'label_replace({expr}, "short", "$4 $1:$2:$3", "run", ".{{9}}(..)(..)(..)Z-(.*?)(?:-[0-9a-f]{{8}})?")'


# Links --------------------------------------------------------------------------------------------------------------


def on_wan(expr: str, *, over_range: bool = False) -> str:
    """Of WAN links alone: those of which a round trip was asked."""
    asked = last if over_range else series
    return f"({expr} and on (run, link) {asked('longhaul_link_configured_rtt_seconds')})"


def from_workers(expr: str, *, over_range: bool = False) -> str:
    """Of what leaves the workers' own interfaces, each byte once: access links in the direction away from a node."""
    asked, worker = (last, last) if over_range else (series, rate)
    nodes = worker("longhaul_node_cpu_seconds")
    wan = asked("longhaul_link_configured_rtt_seconds")
    return f'(label_join({expr}, "node", "", "source") and on (run, node) {nodes} unless on (run, link) {wan})'


def wan_bytes(labels: str = RUN) -> str:
    """Bytes that left the WAN links in all."""
    return by("sum", labels, on_wan(last("longhaul_link_transmit_bytes"), over_range=True))


def sent_bytes() -> str:
    """Bytes that left the workers' own interfaces in all."""
    return by("sum", RUN, from_workers(last("longhaul_link_transmit_bytes"), over_range=True))


def asked_rate() -> str:
    """Bytes a second asked of each direction at each moment."""
    return by("max", DIRECTION, series("longhaul_link_asked_bytes_per_second"))


def asked_round_trip() -> str:
    """Seconds asked of each WAN link at each moment, there and back."""
    each = by("max", DIRECTION, series("longhaul_link_asked_delay_seconds"))
    return by("sum", f"{RUN}, link", each)


# Training -----------------------------------------------------------------------------------------------------------


def phase_rate(phase: str, labels: str = RUN) -> str:
    """Seconds a second spent in phases, all ranks."""
    return by("sum", labels, rate("longhaul_train_phase_seconds", phase))


def step_clock() -> str:
    """Emulated seconds since the first step began, by the steps of the slowest rank: the same live, where the wall
    clock goes `dilation` times as fast, and archived."""
    return by("max", RUN, by("sum", f"{RUN}, rank", series("longhaul_train_phase_seconds", STEP)))


def run_time() -> str:
    """Emulated seconds of all steps, of the slowest rank."""
    return by("max", RUN, by("sum", f"{RUN}, rank", last("longhaul_train_phase_seconds", STEP)))


def wall_time() -> str:
    """The same on the wall clock."""
    return f"{run_time()} * on ({RUN}) {by('max', RUN, last('longhaul_run_dilation_ratio'))}"


def best_metric() -> str:
    """The best value so far."""
    more = series("longhaul_train_metric_ratio", f'name!~"{LESS_IS_BETTER}"')
    less = series("longhaul_train_metric_ratio", f'name=~"{LESS_IS_BETTER}"')
    most = by("max", f"{RUN}, name", f"max_over_time({more}[{RANGE}])")
    least = by("min", f"{RUN}, name", f"min_over_time({less}[{RANGE}])")
    return f"{most} or {least}"


def time_to_target(*matchers: str, scope: tuple[str, ...] = SCOPE) -> str:
    """As the run's own summary has it; nothing where the target was not reached."""
    return by("max", RUN, last("longhaul_run_time_to_target_seconds", *matchers, scope=scope))


def time_to_accuracy() -> str:
    """The step clock when `$accuracy` was reached for the first time; nothing where it was not."""
    reached = f"{series('longhaul_train_metric_ratio', ACCURACY)} >= $accuracy"
    return by("min", RUN, f"min_over_time(({step_clock()} and on (run) ({reached}))[{EACH_SECOND}])")


def dense_over(sent: str) -> str:
    """How many times fewer bytes than uncompressed data parallel would have sent in as many steps."""
    steps = by("max", RUN, last("longhaul_train_steps"))
    dense = by("max", RUN, last("longhaul_dense_bytes_per_step"))
    return f"{dense} * on ({RUN}) {ratio(steps, sent, RUN)}"


def payload_bytes() -> str:
    """Bytes the algorithm says it sent, all ranks."""
    return by("sum", RUN, last("longhaul_payload_bytes"))


# Verdict ------------------------------------------------------------------------------------------------------------


def verdict_code() -> str:
    """0 valid, 1 suspect, 2 invalid."""
    suspect = by("max", RUN, last("longhaul_verdict", 'verdict="suspect"'))
    invalid = by("max", RUN, last("longhaul_verdict", 'verdict="invalid"'))
    return f"{suspect} + 2 * {invalid}"


def described(expr: str, labels: str, *matchers: str, scope: tuple[str, ...] = SCOPE) -> str:
    """A value of each run, with labels that `longhaul_run_info` alone has; of the runs that `matchers` choose by it."""
    info = by("max", f"run, {labels}", last("longhaul_run_info", *matchers, scope=scope))
    return f"({expr} * on (run) group_left ({labels}) {info})"
