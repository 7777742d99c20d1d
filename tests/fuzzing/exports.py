"""Records whose words and numbers are hostile, as everything that is made of them: pages, tables, samples, terminals.

A payload is no text but a list of substitutions, so that each one leads to a record that is read: which place of the
record's files, by number, and what stands there.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import functools
import io
import json
import re
import shutil
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from testbed.analysis.archive.text import append_shifted
from testbed.analysis.comparison import tables
from testbed.analysis.comparison.comparison import compare
from testbed.analysis.composition.links import star_for
from testbed.analysis.composition.rounds import composed
from testbed.analysis.live import drawings, run_details
from testbed.analysis.record.openmetrics import write_openmetrics
from testbed.analysis.record.record import Record, load
from testbed.analysis.record.samples import series_of
from testbed.analysis.report.comparison_page import comparison_page
from testbed.analysis.report.run_page import run_report
from testbed.analysis.tensorboard.event_files import write_event_files
from testbed.core.errors import InputError
from testbed.core.files import parse_json
from testbed.core.record.directory import Directory
from testbed.core.record.run_directory import RunDir
from testbed.core.record.run_row import read_row
from testbed.core.record.table_formats import FORMATS
from testbed.orchestrator.observation.summary import summarise
from testbed.orchestrator.observation.verdict.judge import Judge
from testbed.orchestrator.run_store import listing
from testbed.orchestrator.terminal.summary_table import final_table
from testbed.orchestrator.terminal.terminal import Terminal
from testbed.worker.laws.cases.malformed import withstood
from testbed.worker.laws.cases.registry import require

_LINES = Path(__file__).resolve().parents[1] / "data" / "events" / "lines.jsonl"
_PLACE = struct.Struct("<HB")
_MOST = 40
"""Substitutions of one payload that count."""
WORDS = (
    "</script><img src=x onerror=evil>",
    "'><b evil=1>",
    '" onload="evil',
    "=1+1",
    "＝1+1",
    "+evil",
    "-evil",
    "@evil",
    "\t=evil",
    "\x1b[2Jevil",
    "\x9b2Jevil",
    "evil\nlonghaul: all is well",
    "evil\r\n# EOF\r\n",
    "\N{RIGHT-TO-LEFT OVERRIDE}evil",
    "\N{LINE SEPARATOR}evil",
    "evil\x00",
    "\\input{evil}",
    "[2cm] evil",
    "*evil",
    "$evil$ & % # _ { } ~ ^",
    'evil"} 1 1\n',
    "evil\\",
    "javascript:evil",
    "../../evil",
    "%s %n {0} {{evil}}",
    "[bold]evil[/]",
    "e" * 5000,
    "",
    " ",
    "NaN",
)
OTHERS: tuple[Any, ...] = (
    *(0, -1, 1, 2**53 + 1, 2**63 - 1, -(2**63), 1e308, -1e308, 5e-324, 1e18, 0.5, -0.0),
    *(True, None, [], {}, ["evil"], {"evil": [1]}, [[1]], [None]),
)
VALUES: tuple[Any, ...] = (*WORDS, *OTHERS)
_RENAMED = 128
"""From this value on the key of the place is renamed, and its value stays."""


class Exports:
    """All that is made of one record, and of two."""

    def resealed(self, data: bytes) -> bytes:
        return data

    def sound(self) -> list[bytes]:
        """One for each way, so that what they import is there before memory is limited."""
        return [bytes([number]) for number in range(len(_WAYS))]

    def meet(self, data: bytes, what: str) -> str | None:
        folder = Path(tempfile.mkdtemp(prefix="longhaul-fuzz-"))
        try:
            run = RunDir.create(folder, _template()[0])
            told = _written(run, data[1:])
            way = _way(data[0] if data else 0)
            return withstood(lambda: way(run, folder), data, f"{what} {way.__name__} {told}", InputError)
        finally:
            shutil.rmtree(folder)


def _way(number: int) -> Callable[[RunDir, Path], None]:
    if number < len(_WAYS):
        return _WAYS[number]
    quick = len(_WAYS) - _PAGES
    return _WAYS[quick + number // 8 % _PAGES] if number % 8 == 0 else _WAYS[number % quick]


@functools.cache
def _template() -> tuple[str, dict[str, list[Any]]]:
    """Return a run's id, and the lines of its files, each one JSON object."""
    from tests.unit.analysis.synthetic import make_run

    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder), steps=6)
        events = [json.loads(line) for line in run.events.read_text().splitlines()]
        events += [json.loads(line) for line in _LINES.read_text().splitlines()]
        summary = summarise(run, status="completed", verdict="valid", reasons=["a reason"], wall_s=9.0)
        files = {path.name: [json.loads(path.read_text())] for path in (run.spec, run.network, run.provenance)}
        return run.run_id, {**files, run.summary.name: [summary], run.events.name: _few(events)}


def _few(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each kind as many as tell something apart."""
    seen: dict[str, int] = {}
    found = []
    for event in events:
        seen[event["event"]] = seen.get(event["event"], 0) + 1
        if seen[event["event"]] <= 12:
            found.append(event)
    return found


@functools.cache
def _places() -> list[tuple[Any, ...]]:
    """Return the way to each value: file, line, then keys and numbers."""
    files = _template()[1]
    return [(name, *rest) for name, lines in files.items() for rest in _ways(lines)]


def _ways(value: Any) -> Iterator[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in pairs:
        yield (key,)
        yield from ((key, *rest) for rest in _ways(one))


def _written(run: RunDir, data: bytes) -> str:
    """Write the record with what `data` puts in its places, and return the first of these."""
    files, told = copy.deepcopy(_template()[1]), []
    for at in range(0, min(len(data), _MOST * _PLACE.size) - _PLACE.size + 1, _PLACE.size):
        place, value = _PLACE.unpack_from(data, at)
        way = _places()[place % len(_places())]
        told.append(f"{'.'.join(map(str, way))}={VALUES[value % len(VALUES)]!r:.40}")
        _put(files, way, value)
    with Directory(run.path) as folder:
        for name, lines in files.items():
            with folder.replaced(name) as file:
                file.writelines(json.dumps(line).encode() + b"\n" for line in lines)
    return "; ".join(told[:3])


def _put(files: Any, way: tuple[Any, ...], value: int) -> None:
    holder = files
    for key in way[:-1]:
        try:
            holder = holder[key]
        except (KeyError, IndexError, TypeError):
            return  # one before took it away
    new = VALUES[value % len(VALUES)]
    if isinstance(holder, dict) and value >= _RENAMED and len(way) > 2:
        holder[new if isinstance(new, str) else "evil"] = holder.pop(way[-1], None)
    elif isinstance(holder, dict) or (isinstance(holder, list) and way[-1] in range(len(holder))):
        holder[way[-1]] = copy.deepcopy(new)


def _tables(run: RunDir, folder: Path) -> None:
    row = read_row(run.path)
    for form in ("csv", "latex", "json"):
        _check_table(listing.formatted([row, row], form), form)
    comparison = compare([load(run.path)], take_all=True)
    for form in FORMATS:
        _check_table(tables.formatted(comparison, form), form)


def _run_page(run: RunDir, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)  # of no font that is installed
        _check_page(run_report(load(run.path))[0])


def _comparison_page(run: RunDir, folder: Path) -> None:
    _check_page(comparison_page(compare([load(run.path)], take_all=True), [], folder / "report.html"))


def _samples(run: RunDir, folder: Path) -> None:
    record = load(run.path)
    try:
        series = series_of(record)
        with run.openmetrics.open("w", encoding="utf-8", newline="\n") as file:
            write_openmetrics(record, series, file)
    except ValueError as error:
        require("cannot be" in str(error) or "began" in str(error) or "more than" in str(error), f"says {error}")
        return
    if record.spec is not None and record.time_fault is None:
        append_shifted(run.openmetrics, run.run_id, _shift(record), io.BytesIO())


def _shift(record: Record) -> int:
    from testbed.analysis.archive.text import EPOCH_MS

    return EPOCH_MS - round((record.start_unix_s or 0.0) * 1000)


def _live(run: RunDir, folder: Path) -> None:
    record = load(run.path)
    for found in (
        run_details.details(record, read_row(run.path)),
        run_details.events(record, None),
        drawings.drawings_of_run(record, dark=False),
        drawings.drawing_of_runs([run.path], "accuracy_over_time", allow_invalid=True),
    ):
        text = json.dumps(found, allow_nan=False)
        require("<img src=x" not in json.dumps(_drawn(found)), "a drawing holds markup")
        parse_json(text, strict=True)
    svg = run_details.details(record, read_row(run.path))["svg"]
    if svg:
        _check_page(f"<html>{svg}</html>")


def _drawn(found: Any) -> Any:
    """Return what Plotly reads tags in."""
    return [panel["layout"] for one in found for panel in one["panels"]] if isinstance(found, list) else None


def _sealed(run: RunDir, folder: Path) -> None:
    """A run that was killed, judged and sealed as a command would, and what a terminal shows of it."""
    record = load(run.path)
    if record.spec is None:
        return
    judge = Judge(record.spec)
    for event in run.read_events():
        judge.add(event)
    verdict, reasons = judge.verdict()
    summary = summarise(run, status="killed", verdict=verdict, reasons=reasons, wall_s=None)
    _check_table(_printed(final_table(summary, run.path)), "text")
    _check_table(_printed(listing.table([read_row(run.path)])), "text")


def _scalars(run: RunDir, folder: Path) -> None:
    """Event files for TensorBoard, and rounds as if clients ran side by side."""
    write_event_files([run.path], folder / "tensorboard")
    record = load(run.path)
    with contextlib.suppress(InputError):  # it is no federated run, unless its words have made it one
        found = composed(record, star_for(record, rate="100 Mbit/s", server_rate="1 Gbit/s", delay="10 ms"))
        parse_json(json.dumps(found, allow_nan=False), strict=True)


def _printed(picture: Any) -> str:
    out = io.StringIO()
    Terminal(file=out).print(picture)
    return out.getvalue()


_WAYS: tuple[Callable[[RunDir, Path], None], ...] = (
    *(_tables, _sealed, _live, _samples, _scalars),
    *(_comparison_page, _run_page),
)
_PAGES = 2
"""Ways at the end that take a second; the others have most of the turns."""


def _check_table(text: str, form: str) -> None:
    require(all(one.isprintable() or one == "\n" for one in text), f"{form}: characters that steer a terminal")
    if form == "csv":
        _check_csv(text)
    elif form == "latex":
        _check_latex(text)
    elif form == "json":
        parse_json(text, strict=True)


def _check_csv(text: str) -> None:
    rows = list(csv.reader(io.StringIO(text)))
    require(len({len(row) for row in rows}) == 1, "csv: rows of several lengths")
    for cell in (cell for row in rows for cell in row):
        formula = cell.strip()[:1] in tuple("=+-@＝＋－＠") and not _is_number(cell)
        require(not formula, f"csv: {cell!r:.40} is a formula")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


_MACRO = re.compile(
    r"\\(?:textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|textquotedbl|textmu|dots)\{\}"
    r"|\\[&%$#_{}]|\$\\pm\$|\{\[\}|\{\*\}"
)


def _check_latex(text: str) -> None:
    begun = False
    columns = 0
    for line in text.splitlines():
        if line.startswith("%"):
            continue
        if line.startswith("\\begin{tabular}"):
            begun, columns = True, len(line) - len("\\begin{tabular}{}")
        elif line.endswith("\\\\") and begun:
            plain = _MACRO.sub("", line.removesuffix("\\\\"))
            require(plain.count("&") == columns - 1, f"latex: {line!r:.80} has {plain.count('&') + 1} columns")
            raw = set(plain) & set('\\%$#_{}~^<>|"')
            require(not raw, f"latex: {line!r:.80} holds {''.join(sorted(raw))}")
            require(plain.lstrip()[:1] not in ("[", "*"), f"latex: {line!r:.40} is read as an option of the row before")
        else:
            require(line in _RULES, f"latex: {line!r:.80} is no row")


_RULES = ("\\toprule", "\\midrule", "\\bottomrule", "\\end{tabular}")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[str, str]] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {(tag, name) for name, _ in attrs} | {(tag, "")}
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "action")]


def _check_page(page: str) -> None:
    page.encode()
    tags = _Tags()
    tags.feed(page)
    strange = {one for one in tags.found if "evil" in one[1] or one[1].startswith("on") or one[0] in ("img", "b")}
    require(not strange, f"html: {sorted(strange)[:3]}")
    wrong = [link for link in tags.links if not link.startswith(("./", "#", "../"))]
    require(not wrong, f"html: leads to {wrong[:1]!r:.60}")
    steering = {one for one in page if not one.isprintable() and one not in "\n\t"}
    require(not steering, f"html: characters that steer: {sorted(map(repr, steering))[:3]}")
