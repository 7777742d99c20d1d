"""The commands over runs that are over: `list`, `compare`, `report`, `plot`, `tensorboard`, `compose`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from testbed.core.errors import EXIT_COMPLETED, InputError
from testbed.core.record.figure_kinds import BANDS, CLOCKS, FIGURE_KINDS
from testbed.core.record.run_row import Row
from testbed.core.record.table_formats import FORMATS, aligned, format_for, write_text
from testbed.orchestrator.machine.clone import RUNS_ROOT
from testbed.orchestrator.machine.ownership import give_to_caller, outermost_new
from testbed.orchestrator.terminal.terminal import say, show, tell

Add = Callable[..., argparse.ArgumentParser]
_FILTERS = (
    "Filters: topo, workload, strategy, compressor, workers, seed, status, verdict, since (an age: 90s, 30m, 12h, 7d;"
    " or a date); all must hold; a comma means or, as in compressor=topk,int8."
)
_KINDS = f"Kinds: {'; '.join(f'{kind} ({words})' for kind, words in FIGURE_KINDS.items())}."
_COMPOSED = "Links not given are those of the run's own workers and of its server."


def add_commands(add: Add) -> None:
    """`add` makes a subcommand's parser of its name, its function, its words and its epilog."""
    one = add("list", list_runs, "The runs there are.", _FILTERS)
    one.add_argument("overrides", nargs="*", metavar="key=value", help="only those, as in topo=wan1g since=1d")
    add_formats(one)
    add_runs_root(one)
    one = add("compare", compare, "One table over several runs, a row for each configuration and its seeds.", _FILTERS)
    _add_choice(one)
    add_formats(one)
    one.add_argument("--all", action="store_true", help="take in invalid and unfinished runs too")
    add_runs_root(one)
    one = add("report", report, "One HTML page over several runs.", _FILTERS)
    _add_choice(one)
    one.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="FILE")
    one.add_argument("--all", action="store_true", help="draw invalid and unfinished runs too")
    add_runs_root(one)
    one = add("plot", plot, "One figure over several runs, for print or for the browser.", f"{_KINDS} {_FILTERS}")
    one.add_argument("kind", choices=FIGURE_KINDS, metavar="KIND", help="what to draw; listed below")
    _add_choice(one)
    words = "its suffix tells the format: .pdf, .svg, .png, or .html to zoom in a browser; KIND.pdf by default"
    one.add_argument("-o", "--output", type=Path, metavar="FILE", help=words)
    one.add_argument("--columns", type=int, choices=(1, 2), default=1, help="width, in columns of a paper")
    one.add_argument("--target", metavar="VALUE", help="of the metric, such as 95%% or 0.95; by default the runs' own")
    one.add_argument("--band", choices=BANDS, default="range", help="around a mean: the seeds' range or its interval")
    one.add_argument("--allow-invalid", action="store_true", help="draw invalid and unfinished runs too")
    add_runs_root(one)
    one = add("tensorboard", tensorboard, "Scalars of runs as event files for TensorBoard, a folder a run.", _FILTERS)
    _add_choice(one)
    one.add_argument("--output", type=Path, default=Path("tensorboard"), metavar="DIR", help="takes them")
    one.add_argument("--follow", action="store_true", help="go on until the chosen runs have ended")
    one.add_argument("--clock", choices=CLOCKS, default="wall", help="of times: this machine's, or emulated")
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


def add_formats(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose the format of a table, and its file; the attributes are `form` and `output`."""
    group = parser.add_mutually_exclusive_group()
    words = "text, csv or json (all fields, in base units), or latex (for booktabs); without, that of FILE's suffix"
    group.add_argument("--format", dest="form", choices=FORMATS, help=words)
    for form in FORMATS[1:]:
        group.add_argument(
            f"--{form}", dest="form", action="store_const", const=form, help=f"the same as --format {form}"
        )
    words = "write the table there and print nothing: .csv, .tex, .json or .txt"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=words)


def list_runs(parsed: argparse.Namespace) -> int:
    """Print the table of the runs, or write it."""
    from testbed.core.record.run_row import is_readable, read_rows
    from testbed.orchestrator.run.seal import seal_killed_or_say
    from testbed.orchestrator.run_store.filter import parse

    form = format_for(parsed.form, parsed.output)
    rows = read_rows(parsed.runs)
    wanted = parse("list", parsed.overrides, rows)
    if any(row["status"] == "killed" for row in rows):
        seal_killed_or_say(parsed.runs)
    found = [row for row in rows if wanted.takes(row)]
    unread = [row for row in rows if not is_readable(row) and row not in found]
    if unread:
        words = "cannot be read; `longhaul list` without filters names them"
        say(f"{len(unread)} of {len(rows)} entries of {parsed.runs} {words}")
    if not found and form == "text":
        tell(f"no such runs in {parsed.runs}" if parsed.overrides else f"no runs in {parsed.runs}")
        return EXIT_COMPLETED
    _give(found, form, parsed.output)
    return EXIT_COMPLETED


def _give(rows: Sequence[Row], form: str, output: Path | None) -> None:
    from testbed.orchestrator.run_store.listing import formatted, shown, table

    if output is not None:
        headings, cells, notes = shown(rows)
        text = "\n".join([*aligned([headings, *cells]), "", *notes]) if form == "text" else formatted(rows, form)
        made = outermost_new(output)
        write_text(output, text)
        give_to_caller(made)
    elif form == "text":
        show(table(rows), whole=True)
    else:
        tell(formatted(rows, form))


def compare(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli.report import compare as write_table

    form = format_for(parsed.form, parsed.output)
    return write_table(parsed.overrides, parsed.runs, form, parsed.output, take_all=parsed.all)


def report(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli.report import report as write_report

    return write_report(parsed.overrides, parsed.runs, parsed.output, draw_all=parsed.all)


def plot(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli.report import plot as draw

    flags = ["--columns", str(parsed.columns), "--band", parsed.band]
    flags += ["--target", str(_target(parsed.target))] if parsed.target is not None else []
    flags += ["--allow-invalid"] if parsed.allow_invalid else []
    return draw(parsed.kind, parsed.overrides, parsed.runs, parsed.output or Path(f"{parsed.kind}.pdf"), flags)


def tensorboard(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli.report import tensorboard as write

    flags = ["--clock", parsed.clock, *(["--follow"] if parsed.follow else [])]
    return write(parsed.overrides, parsed.runs, parsed.output, flags)


def _target(text: str) -> float:
    """Return a value of a metric: a number, or a percentage."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"--target {text}: must be a number such as 0.95, or a percentage such as 95%")
    return value


def compose(parsed: argparse.Namespace) -> int:
    from testbed.orchestrator.cli.capture import compose as analyse

    links = {"rate": parsed.rate, "server_rate": parsed.server_rate, "delay": parsed.delay}
    return analyse(parsed.run_id, parsed.runs, **links, goodput=parsed.goodput, as_json=parsed.json)
