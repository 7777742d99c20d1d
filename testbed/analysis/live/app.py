"""The application: its addresses, and what answers them."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from testbed.analysis.comparison.groups import MEASURES
from testbed.analysis.live import drawings, run_details, sweeps
from testbed.analysis.live.run_index import RunIndex
from testbed.analysis.live.tail import tail
from testbed.analysis.live.verdicts import VerdictClient
from testbed.analysis.record.record import Record, load
from testbed.core.errors import InputError, LonghaulError, RunError
from testbed.core.record.figure_kinds import BANDS, FIGURE_KINDS
from testbed.core.record.run_directory import RunDir
from testbed.core.record.run_row import read_row

STATIC = Path(__file__).with_name("static")
HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Names by which a browser may call this server: another one would be that of a foreign page."""
MAX_RUNS = 400
"""Runs in one figure."""
_POLICY = "; ".join(
    (
        *("default-src 'none'", "script-src 'self'", "style-src 'self' 'unsafe-inline'", "connect-src 'self'"),
        *("img-src 'self' data: blob:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_MAX_FIGURES = 32


class _Headers:
    """Adds `_HEADERS` to every answer, and asks browsers to check whether what they kept is still the same."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                added = [(key.lower().encode(), value.encode()) for key, value in _HEADERS.items()]
                added += [(b"cache-control", b"no-cache")] if b"cache-control" not in names else []
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await self._app(scope, receive, with_headers)


class Pages:
    """Answers of the application over one folder of runs."""

    def __init__(self, runs_root: Path) -> None:
        self.index = RunIndex(runs_root)
        self._verdicts = VerdictClient()
        self._figures = functools.lru_cache(_MAX_FIGURES)(self._drawn)

    def runs(self, request: Request) -> Response:
        """Answer all rows; nothing, with status 204, if the asker's version is the present one."""
        found = self.index.to_json()
        if request.query_params.get("version") == str(found["version"]):
            return Response(status_code=204)
        names = sweeps.sweep_names(self.index.runs_root)
        return JSONResponse({**found, "sweeps": names, "kinds": FIGURE_KINDS, "bands": BANDS})

    async def figure(self, request: Request) -> Response:
        """Answer the figure of a kind over the runs that the body names."""
        asked = await request.json()
        if not isinstance(asked, dict) or not isinstance(asked.get("runs"), list):
            raise InputError('expected {"runs": [run ids], "kind", "band", "invalid", "dark"} as JSON')
        run_ids = [str(run_id) for run_id in asked["runs"][:MAX_RUNS]]
        words = str(asked.get("kind", "accuracy_over_time")), str(asked.get("band", "range"))
        flags = bool(asked.get("invalid")), bool(asked.get("dark"))
        return JSONResponse(await run_in_threadpool(self._figure, run_ids, *words, *flags))

    def run(self, request: Request) -> Response:
        run = self._run(request)
        return JSONResponse(run_details.details(load(run.path), read_row(run.path)))

    def run_figures(self, request: Request) -> Response:
        record = self._record(request)
        return JSONResponse(drawings.drawings_of_run(record, dark="dark" in request.query_params))

    def run_events(self, request: Request) -> Response:
        return JSONResponse(run_details.events(self._record(request), request.query_params.get("kind") or None))

    def run_verdicts(self, request: Request) -> Response:
        """Answer the verdict over time; of a run that cannot be judged again, why."""
        run = self._run(request)
        try:
            return JSONResponse(self._verdicts.over_time(run))
        except RunError as error:
            return JSONResponse({"changes": [], "faults": list(error.faults)})

    def run_tail(self, request: Request) -> Response:
        """Answer new lines of events as they are; where the next ones begin is in the headers."""
        text = request.query_params.get("from", "0")
        if not text.isascii() or not text.isdecimal() or len(text) > 18:
            raise InputError(f"from={text}: must be the number of a byte, as the header X-Next-Byte gave it")
        found = tail(self._run(request), int(text))
        told: Mapping[str, object] = {
            "X-Next-Byte": found.next_byte,
            "X-Has-More": int(found.has_more),
            "X-Is-Restarted": int(found.is_restarted),
            "X-Is-Ended": int(found.is_ended),
            "Cache-Control": "no-store",
        }
        headers = {name: str(value) for name, value in told.items()}
        return Response(found.lines, media_type="text/plain; charset=utf-8", headers=headers)

    def sweep(self, request: Request) -> Response:
        """Answer a sweep's results, and a figure along `axis` where the question names one."""
        results = sweeps.read_results(self.index.runs_root, request.path_params["name"])
        axis, measure = (request.query_params.get(key) for key in ("axis", "measure"))
        figure = None
        if axis and measure:
            found = sweeps.along_axis(results, axis, measure)
            figure = drawings.drawing(found, dark="dark" in request.query_params)
        measures = [[one.key, one.heading, one.kind] for one in MEASURES]
        return JSONResponse({"results": results, "measures": measures, "figure": figure})

    def _figure(self, run_ids: list[str], kind: str, band: str, allow_invalid: bool, dark: bool) -> drawings.Drawing:
        runs = [run for run_id in run_ids if (run := self.index.run(run_id))]
        stamps = tuple(_stamp(run) for run in runs)
        return self._figures(tuple(run.path for run in runs), stamps, kind, band, allow_invalid, dark)

    @staticmethod
    def _drawn(
        paths: tuple[Path, ...], _stamps: tuple[object, ...], kind: str, band: str, allow_invalid: bool, dark: bool
    ) -> drawings.Drawing:
        return drawings.drawing_of_runs(paths, kind, band=band, allow_invalid=allow_invalid, dark=dark)

    def _run(self, request: Request) -> RunDir:
        run_id = request.path_params["run_id"]
        if (run := self.index.run(run_id)) is None:
            raise InputError(f"run {run_id}: is not in {self.index.runs_root}")
        return run

    def _record(self, request: Request) -> Record:
        return load(self._run(request).path)


def _stamp(run: RunDir) -> tuple[float, ...]:
    files = (run.summary, run.events, run.samples)
    return tuple(file.stat().st_mtime if file.exists() else 0.0 for file in files)


def plotly_file() -> Path:
    """Return Plotly.js as the package `plotly` brings it; the package is not imported."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise InputError("pages need the package plotly, which is not installed")
    return Path(spec.origin).with_name("package_data") / "plotly.min.js"


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _page(name: str, plotly: str, *scripts: str) -> str:
    """Return a page whose content is the file `<name>.html`."""
    tags = "\n".join(f'<script defer src="/static/{script}.js"></script>' for script in scripts)
    parts = {"plotly": plotly, "name": name, "scripts": tags, "main": _static(f"{name}.html")}
    text = _static("page.html")
    for part, content in parts.items():
        text = text.replace(f"{{{{{part}}}}}", content)
    return text


def application(runs_root: Path) -> Starlette:
    """Return the application over a folder of runs. It writes nothing and asks no other host."""
    pages = Pages(runs_root)
    plotly = f"/plotly-{version('plotly')}.js"
    file = plotly_file()

    def bundle(_: Request) -> Response:
        return FileResponse(
            file, media_type="text/javascript", headers={"Cache-Control": "max-age=31536000, immutable"}
        )

    def page(name: str, *scripts: str) -> Callable[[Request], Response]:
        text = _page(name, plotly, "common", "plots", *scripts, name)
        return lambda _: Response(text, media_type="text/html; charset=utf-8")

    def missing(_: Request, error: HTTPException) -> Response:
        return Response(_page("missing", plotly), error.status_code, media_type="text/html; charset=utf-8")

    routes = [
        Route("/", page("runs")),
        Route("/run/{run_id}", page("run", "follow")),
        Route("/sweep/{name}", page("sweep")),
        Route("/api/runs", pages.runs),
        Route("/api/figure", pages.figure, methods=["POST"]),
        Route("/api/runs/{run_id}", pages.run),
        Route("/api/runs/{run_id}/figures", pages.run_figures),
        Route("/api/runs/{run_id}/events", pages.run_events),
        Route("/api/runs/{run_id}/verdicts", pages.run_verdicts),
        Route("/api/runs/{run_id}/tail", pages.run_tail),
        Route("/api/sweeps/{name}", pages.sweep),
        Route(plotly, bundle),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    middleware = [
        Middleware(_Headers),
        Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
    ]
    handlers: dict[Any, Callable[[Request, Any], Response | Awaitable[Response]]]
    handlers = {LonghaulError: _fault, 404: missing}
    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)


def _fault(_: Request, error: LonghaulError) -> Response:
    return JSONResponse({"faults": list(error.faults)}, status_code=404 if isinstance(error, InputError) else 503)
