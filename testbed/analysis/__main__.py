"""`python -m testbed.analysis finish|report|compare|sweep|capture|compose|predict|budget|archive|live|…`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from testbed.analysis.record.record import Record, load
from testbed.analysis.report.derived_files import finish
from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, InputError, LonghaulError
from testbed.core.files import printable
from testbed.core.record.figure_kinds import CLOCKS
from testbed.core.record.table_formats import FORMATS, write_text


def main(arguments: list[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    try:
        status: int = parsed.command(parsed)
    except LonghaulError as error:
        _say(error.faults)
        return error.exit_status
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testbed.analysis", description="What runs left behind.")
    commands = parser.add_subparsers(required=True)

    _add_of_one_run(commands)
    _add_comparisons(commands)
    _add_figures(commands)
    _add_sweeps(commands)
    _add_simulator(commands)
    _add_dashboards(commands)
    return parser


def _add_of_one_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    one = commands.add_parser("finish", help="write samples.parquet, metrics.openmetrics and report.html of one run")
    one.add_argument("run", type=Path, metavar="RUN_DIR")
    one.add_argument("--summary", metavar="FILE", help="in place of summary.json, which a run writes last; - is stdin")
    one.set_defaults(command=_finish)

    packets = commands.add_parser("capture", help="what a run's packet capture holds")
    packets.add_argument("run", type=Path, metavar="RUN_DIR")
    packets.add_argument("--json", action="store_true", help="everything as JSON")
    packets.set_defaults(command=_capture)

    rounds = commands.add_parser("compose", help="rounds of clients in sequence as if side by side; simulated")
    rounds.add_argument("run", type=Path, metavar="RUN_DIR")
    rounds.add_argument("--rate", metavar="RATE", help="of a client's link; without, that of the run's workers")
    rounds.add_argument("--server-rate", metavar="RATE", help="of the server's link")
    rounds.add_argument("--delay", metavar="TIME", help="one way between client and server")
    rounds.add_argument("--goodput", type=float, default=1.0, metavar="SHARE", help="of rates, that messages get")
    rounds.add_argument("--json", action="store_true", help="everything as JSON")
    rounds.set_defaults(command=_compose)


def _add_sweeps(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    many = commands.add_parser("sweep", help="results of a sweep, read from stdin as JSON")
    many.add_argument("--runs", type=Path, required=True, metavar="DIR", help="where its runs lie")
    many.add_argument("--output", type=Path, required=True, metavar="DIR", help="takes tables, page and figures")
    many.set_defaults(command=_sweep)

    until = commands.add_parser("reached", help="what it took runs to reach their target, as JSON")
    until.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR")
    until.set_defaults(command=_reached)


def _add_simulator(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    guess = commands.add_parser("predict", help="step time and bytes of a run that is not made")
    guess.add_argument("question", metavar="FILE", help='{"spec", "cpu", "device"} as JSON; - is stdin')
    guess.add_argument("--calibration", type=Path, metavar="FILE", help="constants in place of those in the repository")
    guess.add_argument("--json", action="store_true", help="everything as JSON")
    guess.add_argument("--output", type=Path, metavar="FILE", help="takes it as JSON besides what is printed")
    guess.set_defaults(command=_predict)

    least = commands.add_parser("budget", help="which links do for a step time, asked and answered as JSON")
    least.set_defaults(command=_budget)


def _add_comparisons(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    page = commands.add_parser("report", help="one HTML page over several runs")
    page.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR")
    page.add_argument("-o", "--output", type=Path, default=Path("report.html"))
    page.add_argument("--all", action="store_true", help="draw invalid and unfinished runs too")
    page.set_defaults(command=_report)

    table = commands.add_parser("compare", help="one table over several runs")
    table.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR")
    table.add_argument("--all", action="store_true", help="take in invalid and unfinished runs too")
    table.add_argument("--format", choices=FORMATS, default="text", dest="form")
    table.add_argument("-o", "--output", type=Path, metavar="FILE", help="takes the table, of which nothing is printed")
    table.set_defaults(command=_compare)


def _add_figures(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    one = commands.add_parser("plot", help="one figure over several runs")
    one.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR")
    one.add_argument("--kind", required=True)
    one.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    one.add_argument("--columns", type=int, default=1)
    one.add_argument("--target", type=float)
    one.add_argument("--band", default="range")
    one.add_argument("--allow-invalid", action="store_true")
    one.set_defaults(command=_plot)

    one = commands.add_parser("tensorboard", help="event files for TensorBoard")
    one.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR")
    one.add_argument("--output", type=Path, required=True, metavar="DIR")
    one.add_argument("--clock", choices=CLOCKS, default="wall")
    one.add_argument("--follow", action="store_true")
    one.set_defaults(command=_tensorboard)


def _add_dashboards(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    store = commands.add_parser("archive", help="all finished runs as the data of one Prometheus")
    store.add_argument("runs_root", type=Path, metavar="RUNS_ROOT")
    store.add_argument("--output", type=Path, required=True, metavar="DIR")
    store.add_argument("--rebuild", action="store_true", help="rebuild everything, not only what is new")
    store.add_argument("--json", action="store_true", help="what was done as JSON")
    store.set_defaults(command=_archive)

    pages = commands.add_parser("live", help="pages over all runs, on loopback, until it is stopped")
    pages.add_argument("runs_root", type=Path, metavar="RUNS_ROOT")
    pages.add_argument("--port", type=int, default=0, metavar="N", help="0, the default, takes any free one")
    pages.set_defaults(command=_live)

    checked = commands.add_parser("dashboard-check", help="ask every query of every dashboard")
    checked.set_defaults(command=_dashboard_check)
    checked.add_argument("--prometheus", required=True, metavar="URL", help="that serves the archive, on loopback")


def _finish(parsed: argparse.Namespace) -> int:
    counts, faults = finish(load(parsed.run, _summary(parsed.summary)))
    _say(faults)
    sys.stdout.write(json.dumps(counts) + "\n")
    return EXIT_FAILED if faults else EXIT_COMPLETED


def _say(lines: Iterable[str]) -> None:
    sys.stderr.writelines(f"{printable(line)}\n" for line in lines)


def _summary(name: str | None) -> dict[str, Any] | None:
    if name is None:
        return None
    try:
        data = json.loads(sys.stdin.read() if name == "-" else Path(name).read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"--summary {name}: {error}") from error
    if not isinstance(data, dict):
        raise InputError(f"--summary {name}: expected one JSON object")
    return data


def _records(paths: list[Path]) -> list[Record]:
    """All of `paths`; those that are no runs are named all at once."""
    records: list[Record] = []
    faults: list[str] = []
    for path in paths:
        try:
            records.append(load(path))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(*faults)
    return records


def _report(parsed: argparse.Namespace) -> int:
    # matplotlib takes most of a second to load, and tables do not need it
    from testbed.analysis.comparison.comparison import compare
    from testbed.analysis.report.comparison_page import comparison_page, report_figures

    records = _records(parsed.runs)
    page = comparison_page(
        compare(records, take_all=parsed.all), report_figures(records, take_all=parsed.all), parsed.output
    )
    try:
        parsed.output.parent.mkdir(parents=True, exist_ok=True)
        parsed.output.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{parsed.output}: cannot be written: {error.strerror}") from error
    sys.stdout.write(f"{parsed.output}\n")
    return EXIT_COMPLETED


def _plot(parsed: argparse.Namespace) -> int:
    from testbed.analysis.figures.plot import write

    figure, _ = write(
        _records(parsed.runs),
        parsed.kind,
        parsed.output,
        columns=parsed.columns,
        target=parsed.target,
        band=parsed.band,
        allow_invalid=parsed.allow_invalid,
    )
    for note in figure.notes:
        more = " --allow-invalid draws them." if note in figure.left_out else ""
        sys.stderr.write(f"{printable(note)}{more}\n")
    sys.stdout.write(f"{parsed.output}\n")
    return EXIT_COMPLETED


def _tensorboard(parsed: argparse.Namespace) -> int:
    from testbed.analysis.tensorboard.event_files import write_event_files

    folders = write_event_files(parsed.runs, parsed.output, clock=parsed.clock, follow=parsed.follow)
    sys.stdout.writelines(f"{folder}\n" for folder in folders)
    return EXIT_COMPLETED


def _compare(parsed: argparse.Namespace) -> int:
    from testbed.analysis.comparison import tables
    from testbed.analysis.comparison.comparison import compare

    comparison = compare(_records(parsed.runs), take_all=parsed.all)
    text = tables.formatted(comparison, parsed.form)
    if parsed.form != "text" and (line := tables.left_out_line(comparison)):
        sys.stderr.write(f"{line}\n")
    if parsed.output is None:
        sys.stdout.write(f"{text}\n")
    else:
        write_text(parsed.output, text)
    return EXIT_COMPLETED


def _sweep(parsed: argparse.Namespace) -> int:
    from testbed.analysis.report.sweep_page import command

    sys.stdout.write(command(json.load(sys.stdin), parsed.runs, parsed.output) + "\n")
    return EXIT_COMPLETED


def _reached(parsed: argparse.Namespace) -> int:
    from testbed.analysis.record.curves import reached

    sys.stdout.write(json.dumps(reached(_records(parsed.runs)), allow_nan=False) + "\n")
    return EXIT_COMPLETED


def _capture(parsed: argparse.Namespace) -> int:
    from testbed.analysis.capture.packets import analyse
    from testbed.analysis.capture.text import text

    found = analyse(load(parsed.run))
    sys.stdout.write((json.dumps(found, indent=2) if parsed.json else text(found)) + "\n")
    return EXIT_COMPLETED


def _compose(parsed: argparse.Namespace) -> int:
    from testbed.analysis.composition.links import star_for
    from testbed.analysis.composition.rounds import composed, text

    record = load(parsed.run)
    star = star_for(record, rate=parsed.rate, server_rate=parsed.server_rate, delay=parsed.delay)
    found = composed(record, star, parsed.goodput)
    sys.stdout.write((json.dumps(found, indent=2, allow_nan=False) if parsed.json else text(found)) + "\n")
    return EXIT_COMPLETED


def _predict(parsed: argparse.Namespace) -> int:
    from testbed.analysis.simulator.predict_command import command

    sys.stdout.write(command(parsed.question, parsed.calibration, as_json=parsed.json, output=parsed.output) + "\n")
    return EXIT_COMPLETED


def _budget(_: argparse.Namespace) -> int:
    from testbed.analysis.simulator.budget import answer

    sys.stdout.write(json.dumps(answer(json.load(sys.stdin)), allow_nan=False) + "\n")
    return EXIT_COMPLETED


def _archive(parsed: argparse.Namespace) -> int:
    from testbed.analysis.archive.archive import update

    done = update(parsed.runs_root, parsed.output, rebuild=parsed.rebuild)
    _say(done.remarks)
    sys.stdout.write((json.dumps(done.to_json()) if parsed.json else done.text) + "\n")
    return EXIT_COMPLETED


def _live(parsed: argparse.Namespace) -> int:
    from testbed.analysis.live.serve import serve

    serve(parsed.runs_root, parsed.port)
    return EXIT_COMPLETED


def _dashboard_check(parsed: argparse.Namespace) -> int:
    from testbed.analysis.dashboard.check import check
    from testbed.analysis.dashboard.prometheus_queries import PrometheusClient

    found = check(PrometheusClient(parsed.prometheus))
    sys.stdout.write(f"{found.text}\n")
    return EXIT_FAILED if found.faults else EXIT_COMPLETED


if __name__ == "__main__":
    sys.exit(main())
