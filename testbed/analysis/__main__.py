"""`python -m testbed.analysis finish|report|compare|capture|predict`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from testbed.analysis.finish import finish
from testbed.analysis.load import Record, load
from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, InputError


def main(arguments: list[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    try:
        status: int = parsed.command(parsed)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testbed.analysis", description="What runs left behind.")
    commands = parser.add_subparsers(required=True)

    one = commands.add_parser("finish", help="write samples.parquet, metrics.openmetrics and report.html of one run")
    one.add_argument("run", type=Path, metavar="RUN_DIR")
    one.add_argument("--summary", metavar="FILE", help="in place of summary.json, which a run writes last; - is stdin")
    one.set_defaults(command=_finish)

    page = commands.add_parser("report", help="one HTML page over several runs")
    page.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR")
    page.add_argument("-o", "--output", type=Path, default=Path("report.html"))
    page.add_argument("--all", action="store_true", help="draw invalid and unfinished runs too")
    page.add_argument("--figures", type=Path, metavar="DIR", help="write each figure there too, as an SVG file")
    page.set_defaults(command=_report)

    table = commands.add_parser("compare", help="one table over several runs")
    table.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR")
    table.add_argument("--json", action="store_true", help="the summaries as JSON")
    table.set_defaults(command=_compare)

    packets = commands.add_parser("capture", help="what a run's packet capture holds")
    packets.add_argument("run", type=Path, metavar="RUN_DIR")
    packets.add_argument("--json", action="store_true", help="everything as JSON")
    packets.set_defaults(command=_capture)

    guess = commands.add_parser("predict", help="step time and bytes of a run that is not made")
    guess.add_argument("question", metavar="FILE", help='{"spec", "cpu", "device"} as JSON; - is stdin')
    guess.add_argument("--calibration", type=Path, metavar="FILE", help="constants in place of those in the repository")
    guess.add_argument("--json", action="store_true", help="everything as JSON")
    guess.set_defaults(command=_predict)
    return parser


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
    from testbed.analysis.comparison import comparison_page, drawn_records, figures

    records = _records(parsed.runs)
    parsed.output.write_text(comparison_page(records, include_invalid=parsed.all), encoding="utf-8")
    sys.stdout.write(f"{parsed.output}\n")
    if parsed.figures:
        from testbed.analysis.chart import standalone

        parsed.figures.mkdir(parents=True, exist_ok=True)
        for title, svg in figures(drawn_records(records, include_invalid=parsed.all)):
            path = parsed.figures / f"{title.lower().replace(' ', '-')}.svg"
            path.write_text(standalone(svg), encoding="utf-8")
            sys.stdout.write(f"{path}\n")
    return EXIT_COMPLETED


def _compare(parsed: argparse.Namespace) -> int:
    from testbed.analysis.comparison import summaries, text_table

    records = _records(parsed.runs)
    sys.stdout.write((json.dumps(summaries(records), indent=2) if parsed.json else text_table(records)) + "\n")
    return EXIT_COMPLETED


def _capture(parsed: argparse.Namespace) -> int:
    from testbed.analysis.packets import analyse
    from testbed.analysis.packets_text import text

    found = analyse(load(parsed.run))
    sys.stdout.write((json.dumps(found, indent=2) if parsed.json else text(found)) + "\n")
    return EXIT_COMPLETED


def _predict(parsed: argparse.Namespace) -> int:
    from testbed.analysis.simulator.command import command

    sys.stdout.write(command(parsed.question, parsed.calibration, as_json=parsed.json) + "\n")
    return EXIT_COMPLETED


if __name__ == "__main__":
    sys.exit(main())
