"""The commands over many runs that are to be made: `sweep`."""

from __future__ import annotations

import argparse

from testbed.orchestrator.record_commands import Add, add_runs_root

_EPILOG = (
    "Values: compressor=none,topk seed=range(3) 'topo=glob(wan*)'. A named sweep is a file of experiments/sweeps, in"
    " which axes may hold for some runs alone. What is there already, of this code, is not made again; what failed or"
    " came out invalid is made once more. Exit status: 0 all runs count; 2 bad input; 3 the machine lacks something;"
    " 4 some failed or were not made; 5 all completed, some invalid."
)


def add_commands(add: Add) -> None:
    """`add` makes a subcommand's parser of its name, its function, its words and its epilog."""
    one = add("sweep", sweep, "Make all runs of a sweep that are not there yet, and their table.", _EPILOG)
    one.add_argument("overrides", nargs="*", metavar="NAME|key=a,b", help="a name or a YAML file, and axes")
    one.add_argument("--executor", default="local", metavar="NAME", help="where runs are made; there is local")
    one.add_argument("--plan", action="store_true", help="say what would be made and how long it takes, make nothing")
    one.add_argument("--retry", action="store_true", help="try again what was given up after two attempts")
    one.add_argument("--json", action="store_true", help="the table as JSON on stdout, all else on stderr")
    one.add_argument("--share", action="store_true", help="do not insist on having the machine alone")
    add_runs_root(one)


def sweep(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.sweep.command import sweep as perform

    flags = {"plan": parsed.plan, "retry": parsed.retry, "as_json": parsed.json, "share": parsed.share}
    return perform(parsed.overrides, parsed.runs, executor=parsed.executor, **flags)
