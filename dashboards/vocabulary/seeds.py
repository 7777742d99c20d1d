"""Runs that differ in their seed alone, as PromQL: how many, their mean, and how far it may be off.

A mean is never shown without the number of seeds and its 95% interval.
"""

from __future__ import annotations

from dashboards.vocabulary.queries import by, described, time_to_target

BASE = "topo, workload, strategy, workers, device, kind, setting"
"""What a compressor is compared within; `setting` is a digest of all that was asked but compressor and seed."""
GROUP = f"compressor, parameters, {BASE}"
"""Runs alike in all of these are the same experiment."""
BELIEVED = 'verdict=~"$verdict"'
_DESCRIPTION = f"{BASE}, parameters, seed"
_ALL_RUNS = ('topo=~"$topo"',)


def of_seeds(expr: str) -> str:
    """A value of each run as one of each seed, so that a seed that ran twice does not count for two."""
    return by("avg", f"{GROUP}, seed", described(expr, _DESCRIPTION, BELIEVED))


def count(expr: str) -> str:
    return by("count", GROUP, of_seeds(expr))


def mean(expr: str) -> str:
    return by("avg", GROUP, of_seeds(expr))


def deviation(expr: str) -> str:
    """Standard deviation over seeds, of a sample; of a single seed there is none."""
    n = count(expr)
    return f"{by('stddev', GROUP, of_seeds(expr))} * sqrt({n} / ({n} - 1 > 0))"


def half_interval(expr: str) -> str:
    """By how much the mean may be off, with 95% confidence; of a single seed nobody knows.

    Student's t, by its expansion around the normal quantile (Abramowitz and Stegun, 26.7.5) as a fraction whose last
    coefficient is right at one degree of freedom: within 0.2% at two and more.
    """
    free = f"({count(expr)} - 1 > 0)"
    student_t = f"(1.959964 + 2.372271 / ({free} - 1.18979 + 0.410543 / {free}))"
    return f"{student_t} * {by('stddev', GROUP, of_seeds(expr))} / sqrt({free})"


def speed_up() -> str:
    """How many times sooner than without compression the target is reached, in the mean over seeds."""
    alone = by(
        "avg",
        f"{BASE}, seed",
        described(
            time_to_target('compressor="none"', scope=_ALL_RUNS),
            _DESCRIPTION,
            'compressor="none"',
            BELIEVED,
            scope=_ALL_RUNS,
        ),
    )
    return f"{by('avg', BASE, alone)} / on ({BASE}) group_right () {mean(time_to_target())}"
