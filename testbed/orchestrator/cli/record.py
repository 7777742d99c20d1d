"""The commands over runs that are over: `list`, `compare`, `report`, `compose`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from testbed.core.errors import EXIT_COMPLETED
from testbed.orchestrator.machine.clone import RUNS_ROOT
from testbed.orchestrator.terminal.terminal import say, show, tell

Add = Callable[..., argparse.ArgumentParser]
_FILTERS = (
    "Filters: topo, workload, strategy, compressor, workers, seed, status, verdict, since (an age: 90s, 30m, 12h, 7d;"
    " or a date); all must hold; a comma means or, as in compressor=topk,int8."
)
_COMPOSED = "Links not given are those of the run's own workers and of its server."


def add_commands(add: Add) -> None:
    """`add` makes a subcommand's parser of its name, its function, its words and its epilog."""
    one = add("list", list_runs, "The runs there are.", _FILTERS)
    one.add_argument("overrides", nargs="*", metavar="key=value", help="only those, as in topo=wan1g since=1d")
    _add_forms(one, json="as JSON", csv="as CSV, in base units")
    add_runs_root(one)
    one = add("compare", compare, "One table over several runs, a row for each configuration and its seeds.", _FILTERS)
    _add_choice(one)
    forms = {"json": "all of it as JSON", "csv": "as CSV, in base units", "latex": "as LaTeX, for booktabs"}
    _add_forms(one, **forms)
    one.add_argument("--all", action="store_true", help="take in invalid and unfinished runs too")
    add_runs_root(one)
    one = add("report", report, "One HTML page over several runs.", _FILTERS)
    _add_choice(one)
    one.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="FILE")
    one.add_argument("--all", action="store_true", help="draw invalid and unfinished runs too")
    add_runs_root(one)
    one = add("compose", compose, "A federated run's rounds as if its clients ran side by side; simulated.", _COMPOSED)
    one.add_argument("run_id", metavar="RUN_ID", help="of strategy=federated")
    one.add_argument("--rate", metavar="RATE", help="of each client's link, such as '100 Mbit/s'")
    one.add_argument("--server-rate", metavar="RATE", help="of the server's link")
    one.add_argument("--delay", metavar="TIME", help="one way between a client and the server, such as '20 ms'")
    one.add_argument("--goodput", type=float, metavar="SHARE", help="of links' rates, that messages get; 1 by default")
    one.add_argument("--json", action="store_true", help="everything as JSON")
    add_runs_root(one)


def add_runs_root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, default=RUNS_ROOT, metavar="DIR", help="where runs lie")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    words = "run ids and filters such as topo=wan1g since=1d; all runs where there are none"
    parser.add_argument("overrides", nargs="*", metavar="RUN_ID|key=value", help=words)


def _add_forms(parser: argparse.ArgumentParser, **forms: str) -> None:
    """At most one of them; `form` is its name."""
    group = parser.add_mutually_exclusive_group()
    for form, words in forms.items():
        group.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=words)


def list_runs(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.run.seal import seal_killed_or_say
    from testbed.orchestrator.run_store.filter import parse
    from testbed.orchestrator.run_store.listing import csv_text, is_readable, read_runs, table

    rows = read_runs(parsed.runs)
    wanted = parse("list", parsed.overrides, rows)
    if any(row["status"] == "killed" for row in rows):
        seal_killed_or_say(parsed.runs)
    found = [row for row in rows if wanted.takes(row)]
    unread = [row for row in rows if not is_readable(row) and row not in found]
    if unread:
        words = "cannot be read; `longhaul list` without filters names them"
        say(f"{len(unread)} of {len(rows)} entries of {parsed.runs} {words}")
    if parsed.form == "json":
        tell(json.dumps(found, indent=2, allow_nan=False))
    elif parsed.form == "csv":
        tell(csv_text(found))
    elif found:
        show(table(found), whole=True)
    else:
        tell(f"no such runs in {parsed.runs}" if parsed.overrides else f"no runs in {parsed.runs}")
    return EXIT_COMPLETED


def compare(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli.report import compare as write_table

    return write_table(parsed.overrides, parsed.runs, parsed.form, take_all=parsed.all)


def report(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli.report import report as write_report

    return write_report(parsed.overrides, parsed.runs, parsed.output, draw_all=parsed.all)


def compose(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli.capture import compose as analyse

    links = {"rate": parsed.rate, "server_rate": parsed.server_rate, "delay": parsed.delay}
    return analyse(parsed.run_id, parsed.runs, **links, goodput=parsed.goodput, as_json=parsed.json)
