"""The commands over many runs that are to be made: `sweep`, `tune`, `budget`."""

from __future__ import annotations

import argparse
import math

from testbed.core.record.table_formats import format_for
from testbed.orchestrator.cli.record import Add, add_formats, add_runs_root

_EPILOG = (
    "Values: compressor=none,topk seed=range(3) 'topo=glob(wan*)'. A named sweep is a file of experiments/sweeps, in"
    " which axes may hold for some runs alone. What is there already, of this code, is not made again; what failed or"
    " came out invalid is repeated once. Exit status: 0 all runs count; 2 bad input; 3 the machine lacks something;"
    " 4 some failed or were not made; 5 all completed, some invalid."
)
_TUNE_EPILOG = (
    "Such as topo=wan100m compressor=none,topk 'compressor.density=tag(log,interval(0.001,0.1))'; without such, usual"
    " settings of compressors and strategies. Invalid runs are failed trials. The same call again goes on where it was,"
    " with more --trials further. Exit status: 0 a trial reached the target; 2 bad input; 3 the machine lacks"
    " something; 4 none did, or it was stopped."
)
_BUDGET_EPILOG = (
    "Such as workload=digits target_step_s=0.3 price_per_gb=0.02 strategy=ddp,dear compressor=none,topk 'topo.rtt=20"
    " ms,80 ms'. One rate and round trip for all WAN links of topo. What is predicted is simulated; --check emulates"
    " some of it as `longhaul run` does. Exit status: 0; 2 bad input, or all refused; of checks as of `sweep`."
)


def add_commands(add: Add) -> None:
    """`add` makes a subcommand's parser of its name, its function, its words and its epilog."""
    one = add("sweep", sweep, "Make all runs of a sweep that are not there yet, and their table.", _EPILOG)
    one.add_argument("overrides", nargs="*", metavar="NAME|key=a,b", help="a name or a YAML file, and axes")
    one.add_argument("--executor", default="local", metavar="NAME", help="where runs are made: local, ray or slurm")
    text = "of the executor, such as address=10.0.0.1:6379 or partition=long; as often as there are any"
    one.add_argument("--executor-option", action="append", default=[], metavar="KEY=VALUE", help=text)
    text = "begin no run that would end later than this after the call; replaces the sweep's max_hours"
    one.add_argument("--max-hours", type=_hours, metavar="H", help=text)
    text = "print which runs would be made and how long they take, and end; --plan is the older name"
    one.add_argument("--dry-run", "--plan", action="store_true", dest="plan", help=text)
    one.add_argument("--retry", action="store_true", help="retry runs that were given up after two attempts")
    text = "where runs are refused, take the first override that would do, for all runs"
    one.add_argument("--fix", action="store_true", help=text)
    add_formats(one)
    one.add_argument("--share", action="store_true", help="run even if the machine is in use; timing may suffer")
    add_runs_root(one)
    one = add("tune", tune, "Search settings by time to the target, bytes, or both; each trial is a run.", _TUNE_EPILOG)
    one.add_argument("overrides", nargs="*", metavar="key=a,b", help="settings to search, and what all trials have")
    one.add_argument("--by", default="time", metavar="OBJECTIVE", help="time (the default), bytes or both")
    one.add_argument("--trials", type=int, default=20, metavar="N", help="in all, those made before included")
    one.add_argument("--json", action="store_true", help="the trials as JSON on stdout, everything else on stderr")
    one.add_argument("--share", action="store_true", help="run even if the machine is in use; timing may suffer")
    add_runs_root(one)
    one = add("budget", budget, "The least links for a step time, what is sent, and what that costs.", _BUDGET_EPILOG)
    one.add_argument("overrides", nargs="*", metavar="key=value", help="target_step_s, price_per_gb, and as of a run")
    one.add_argument("--check", type=int, default=0, metavar="N", help="emulate N of the points, and compare")
    one.add_argument("--repeats", type=int, default=3, metavar="N", help="measurements of computing; 3 by default")
    one.add_argument("--json", action="store_true", help="everything as JSON on stdout, everything else on stderr")
    one.add_argument("--share", action="store_true", help="run --check even if the machine is in use")
    add_runs_root(one)


def sweep(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.search.sweep.sweep_command import sweep as perform

    flags = {"plan": parsed.plan, "retry": parsed.retry, "fix": parsed.fix, "share": parsed.share}
    flags |= {"form": format_for(parsed.form, parsed.output), "output": parsed.output}
    where = {"executor": parsed.executor, "options": parsed.executor_option}
    return perform(parsed.overrides, parsed.runs, max_hours=parsed.max_hours, **where, **flags)


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0 < hours < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be a number above 0")
    return hours


def tune(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.search.tune.tune_command import tune as search

    flags = {"by": parsed.by, "count": parsed.trials, "as_json": parsed.json, "share": parsed.share}
    return search(parsed.overrides, parsed.runs, **flags)


def budget(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.search.budget.budget_command import budget as answer

    flags = {"check": parsed.check, "repeats": parsed.repeats, "as_json": parsed.json, "share": parsed.share}
    return answer(parsed.overrides, parsed.runs, **flags)
