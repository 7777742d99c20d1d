"""`python -m testbed.analysis finish|report|compare|sweep|capture|compose|predict|budget|archive|preview|…`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from testbed.analysis.record.record import Record, load
from testbed.analysis.report.derived_files import finish
from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, InputError, LonghaulError


def main(arguments: list[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    try:
        status: int = parsed.command(parsed)
    except LonghaulError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testbed.analysis", description="What runs left behind.")
    commands = parser.add_subparsers(required=True)

    _add_of_one_run(commands)
    _add_comparisons(commands)
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
    rounds.add_argument("--server-rate", metavar="RATE", help="of the server's link, likewise")
    rounds.add_argument("--delay", metavar="TIME", help="one way between client and server, likewise")
    rounds.add_argument("--goodput", type=float, default=1.0, metavar="SHARE", help="of rates, that messages get")
    rounds.add_argument("--json", action="store_true", help="everything as JSON")
    rounds.set_defaults(command=_compose)


def _add_sweeps(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    many = commands.add_parser("sweep", help="what came of a sweep, told on stdin as JSON")
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
    page.add_argument("--figures", type=Path, metavar="DIR", help="write each figure there too, as an SVG file")
    page.set_defaults(command=_report)

    table = commands.add_parser("compare", help="one table over several runs")
    table.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR")
    table.add_argument("--all", action="store_true", help="take in invalid and unfinished runs too")
    forms = table.add_mutually_exclusive_group()
    for form in ("json", "csv", "latex"):
        forms.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=f"as {form}, not text")
    table.set_defaults(command=_compare)


def _add_dashboards(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    store = commands.add_parser("archive", help="all finished runs as the data of one Prometheus")
    store.add_argument("runs_root", type=Path, metavar="RUNS_ROOT")
    store.add_argument("--output", type=Path, required=True, metavar="DIR")
    store.add_argument("--rebuild", action="store_true", help="make all of it anew, not what is new alone")
    store.add_argument("--json", action="store_true", help="what was done as JSON")
    store.set_defaults(command=_archive)

    pages = commands.add_parser("preview", help="every dashboard as a page, without Grafana")
    pages.add_argument("--output", type=Path, required=True, metavar="DIR")
    pages.add_argument("--run", nargs="+", default=[], dest="runs", metavar="ID", help="these, not all that there are")
    pages.set_defaults(command=_preview)

    checked = commands.add_parser("dashboard-check", help="ask every query of every dashboard")
    checked.set_defaults(command=_dashboard_check)
    for each in (pages, checked):
        each.add_argument("--prometheus", required=True, metavar="URL", help="that serves the archive, on loopback")


def _finish(parsed: argparse.Namespace) -> int:
    counts, faults = finish(load(parsed.run, _summary(parsed.summary)))
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    sys.stdout.write(json.dumps(counts) + "\n")
    return EXIT_FAILED if faults else EXIT_COMPLETED


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
    from testbed.analysis.comparison.figures import figures
    from testbed.analysis.comparison.page import comparison_page
    from testbed.analysis.style.chart import standalone

    comparison = compare(_records(parsed.runs), take_all=parsed.all)
    drawn, faults = figures(comparison)
    page = comparison_page(comparison, drawn, faults, parsed.output)
    written = [(parsed.output, page)]
    if parsed.figures:
        written += [(parsed.figures / f"{figure.file_name}.svg", standalone(figure.svg)) for figure in drawn]
    for path, text in written:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        sys.stdout.write(f"{path}\n")
    return EXIT_COMPLETED


def _compare(parsed: argparse.Namespace) -> int:
    from testbed.analysis.comparison import tables
    from testbed.analysis.comparison.comparison import compare

    comparison = compare(_records(parsed.runs), take_all=parsed.all)
    if parsed.form == "json":
        text = json.dumps(tables.to_json(comparison), indent=2, allow_nan=False)
    else:
        text = {"csv": tables.to_csv, "latex": tables.latex, None: tables.text}[parsed.form](comparison)
    if parsed.form and (line := tables.left_out_line(comparison)):
        sys.stderr.write(f"{line}\n")
    sys.stdout.write(f"{text}\n")
    return EXIT_COMPLETED


def _sweep(parsed: argparse.Namespace) -> int:
    from testbed.analysis.comparison.sweep_page import command

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
    sys.stderr.writelines(f"{remark}\n" for remark in done.remarks)
    sys.stdout.write((json.dumps(done.to_json()) if parsed.json else done.text) + "\n")
    return EXIT_COMPLETED


def _preview(parsed: argparse.Namespace) -> int:
    from testbed.analysis.dashboard.preview_command import preview, without_page
    from testbed.analysis.dashboard.prometheus_queries import PrometheusClient

    try:
        written, faults = preview(PrometheusClient(parsed.prometheus), parsed.output, parsed.runs)
    except OSError as error:
        raise InputError(f"--output {parsed.output}: cannot be written: {error.strerror}") from error
    remark = without_page(parsed.runs)
    sys.stderr.writelines(f"{line}\n" for line in [*faults, *([remark] if remark else [])])
    sys.stdout.write(f"{written[0]}\n")
    return EXIT_FAILED if faults else EXIT_COMPLETED


def _dashboard_check(parsed: argparse.Namespace) -> int:
    from testbed.analysis.dashboard.check import check
    from testbed.analysis.dashboard.prometheus_queries import PrometheusClient

    found = check(PrometheusClient(parsed.prometheus))
    sys.stdout.write(f"{found.text}\n")
    return EXIT_FAILED if found.faults else EXIT_COMPLETED


if __name__ == "__main__":
    sys.exit(main())
