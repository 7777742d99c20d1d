"""`python -m testbed.analysis preview`: every dashboard as a page, and one that leads to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboards.interpolate import targets
from testbed.analysis.dashboard import layout
from testbed.analysis.dashboard.opened import Opened, excuse_of, open_dashboard
from testbed.analysis.dashboard.panels import Board, markup
from testbed.analysis.dashboard.prometheus_queries import PrometheusClient, QueryError
from testbed.analysis.style import html_page
from testbed.core.errors import InputError, raise_input_faults
from testbed.core.files import read_object

DASHBOARDS = Path(__file__).resolve().parents[3] / "dashboards" / "grafana"
_MAX_RUN_PAGES = 12
_NEEDED = ("uid", "title", "panels", "templating", "time")


@dataclass(frozen=True)
class Page:
    """One page to write."""

    file_name: str
    title: str
    opened: Opened


def read_dashboards(folder: Path = DASHBOARDS) -> list[dict[str, Any]]:
    """Raises:
    InputError: no dashboards there, or one that is none.
    """
    found, faults = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(read_object(path))
        except (OSError, ValueError) as error:
            faults.append(f"{path}: is no dashboard: {error}")
            continue
        if lacking := [key for key in _NEEDED if key not in found[-1]]:
            faults.append(f"{path}: is no dashboard: has no {', '.join(lacking)}")
    raise_input_faults(faults)
    if not found:
        raise InputError(f"{folder}: no dashboards (*.json) there")
    return found


def preview(
    source: PrometheusClient, output: Path, runs: Sequence[str] = (), folder: Path = DASHBOARDS
) -> tuple[list[Path], list[str]]:
    """Write the pages.

    Returns:
        Their paths, the index first, and a line for each panel that could not be drawn.

    Raises:
        InputError: no runs, none of the name, or no dashboards.
        QueryError: Prometheus did not answer.
    """
    pages = [one for dashboard in read_dashboards(folder) for one in _pages(dashboard, source, runs)]
    links = {run: one.file_name for one in pages if _is_of_one_run(one.opened.dashboard) for run in _runs(one.opened)}
    output.mkdir(parents=True, exist_ok=True)
    written, faults = [output / "index.html"], []
    written[0].write_text(_index(pages, without_page(runs)), encoding="utf-8")
    for one in pages:
        text, wrong = _page(one, pages, links)
        faults += wrong
        written.append(output / one.file_name)
        written[-1].write_text(text, encoding="utf-8")
    return written, faults


def without_page(runs: Sequence[str]) -> str | None:
    """Which of the runs that were asked for have no page of their own, in words."""
    left = runs[_MAX_RUN_PAGES:]
    if not left:
        return None
    return f"Only the first {_MAX_RUN_PAGES} runs have a page of their own; without one: {', '.join(left)}."


def _pages(dashboard: dict[str, Any], source: PrometheusClient, runs: Sequence[str]) -> list[Page]:
    """One; of a dashboard of one run, one for each of `runs`."""
    name = str(dashboard["uid"]).removeprefix("longhaul-")
    if not _is_of_one_run(dashboard) or len(runs) < 2:
        return [Page(f"{name}.html", str(dashboard["title"]), open_dashboard(dashboard, source, runs))]
    return [
        Page(
            f"{name}{'' if number == 1 else f'-{number}'}.html",
            f"{dashboard['title']} {number}",
            open_dashboard(dashboard, source, [run]),
        )
        for number, run in enumerate(runs[:_MAX_RUN_PAGES], 1)
    ]


def _is_of_one_run(dashboard: Mapping[str, Any]) -> bool:
    return any(one["name"] == "run" and not one.get("multi") for one in dashboard["templating"]["list"])


def _runs(opened: Opened) -> list[str]:
    runs = opened.variables["run"]
    return [runs] if isinstance(runs, str) else runs


def _page(one: Page, pages: Sequence[Page], links: Mapping[str, str]) -> tuple[str, list[str]]:
    opened, faults = one.opened, []
    board = Board(opened, links)

    def inside(panel: Mapping[str, Any]) -> str:
        try:
            return markup(board, panel) or _no_data(opened, panel)
        except (InputError, QueryError) as error:
            faults.append(f"{one.title}, {panel['title']}: {error}")
            return f'<p class="fault">{html_page.text(error)}</p>'

    drawn = layout.board(opened.dashboard, inside, opened.text)
    title = f"Longhaul: {opened.dashboard['title']}"
    about = html_page.note(str(opened.dashboard.get("description") or ""))
    said = html_page.note(f"{_shown(opened)} Drawn without Grafana, from the same JSON.")
    return html_page.document(title, _navigation(pages, one), about, said, drawn, style=layout.STYLE), faults


def _no_data(opened: Opened, panel: Mapping[str, Any]) -> str:
    asked = [target for target in targets(opened.dashboard) if target.panel_id == panel["id"]]
    whys = dict.fromkeys(why for target in asked if (why := excuse_of(opened, target)))
    return f'<p class="none">No data{html_page.text(": " if whys else "")}{html_page.text("; ".join(whys))}</p>'


def _shown(opened: Opened) -> str:
    """Which runs, and how much of them."""
    runs = _runs(opened)
    others = [
        f"{name} {value if isinstance(value, str) else ', '.join(value)}"
        for name, value in opened.variables.items()
        if name != "run"
    ]
    which = runs[0] if len(runs) == 1 else f"{len(runs)} runs"
    minutes = opened.range_s / 60
    span = "minute" if minutes == 1 else f"{minutes:g} minutes"
    return f"The first {span} of {which}; {'; '.join(others)}."


def _navigation(pages: Sequence[Page], current: Page | None) -> str:
    items = ["<b>All</b>" if current is None else '<a href="index.html">All</a>']
    for one in pages:
        title = html_page.text(one.title)
        items.append(f"<b>{title}</b>" if one is current else f'<a href="{html_page.text(one.file_name)}">{title}</a>')
    return f"<nav>{''.join(items)}</nav>"


def _index(pages: Sequence[Page], remark: str | None) -> str:
    rows = [
        (
            html_page.Html(f'<a href="{html_page.text(one.file_name)}">{html_page.text(one.title)}</a>'),
            one.opened.dashboard.get("description"),
            ", ".join(_runs(one.opened)) if len(_runs(one.opened)) < 3 else f"{len(_runs(one.opened))} runs",
        )
        for one in pages
    ]
    made = html_page.note(f"Made from what {pages[0].opened.source.url} held. longhaul dashboard makes them anew.")
    table = html_page.table(("dashboard", "answers", "shows"), rows)
    said = html_page.note(remark) if remark else ""
    return html_page.document("Longhaul: dashboards", table, said, made, style=layout.STYLE)
