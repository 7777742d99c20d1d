"""Figures in one HTML file that needs no network: Plotly.js lies in it, packed, and the page's script unpacks it.

The page's policy runs two scripts alone, known by their digests: Longhaul's and Plotly.js. Nothing that a record says
can become a third one.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import gzip
import html
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.analysis.figures.table import Figure
from testbed.analysis.figures.web import panels_alone, web_figure
from testbed.analysis.style import html_page
from testbed.core.errors import InputError

SUFFIX = ".html"
_SCRIPT = Path(__file__).with_name("figures.js")
STYLE = """
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 1.5em; }
.plots figcaption { font-size: 13px; } .plot { min-height: 200px; }
.plot-legend { display: flex; flex-wrap: wrap; gap: .3em .5em; }
.plot-legend button { font: inherit; font-size: 13px; border: 1px solid #bbb; border-radius: 4px; background: none;
  padding: .1em .5em; cursor: pointer; color: inherit; }
.plot-legend button[aria-pressed=false] { opacity: .45; text-decoration: line-through; }
"""


@dataclasses.dataclass
class Drawing:
    """Figures of one page, in the order in which their places stand on it."""

    boxes: Mapping[str, Sequence[Sequence[str]]] = dataclasses.field(default_factory=dict)
    """Ids of check boxes by run id: the run is drawn while one of each list is checked."""
    figures: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def place(self, figure: Figure) -> str:
        """Return the markup of a figure's places, one for each panel."""
        places = []
        for panel, alone in panels_alone(figure):
            self.figures.append(_short(web_figure(alone)))
            caption = f"<figcaption>{html.escape(panel.title)}</figcaption>" if panel.title else ""
            places.append(f'<figure>{caption}<div class="plot"></div><div class="plot-legend"></div></figure>')
        return f'<div class="plots">{"".join(places)}</div>'

    def scripts(self) -> html_page.Scripts:
        """Return what draws the figures, for `html_page.document`."""
        text = json.dumps({"figures": self.figures, "boxes": self.boxes}, allow_nan=False, separators=(",", ":"))
        bundle, packed = _bundle()
        # Inside a script element only "<" could end or open something.
        data = {"figures": ("application/json", text.replace("<", "\\u003c")), "plotly": ("text/plain", packed)}
        return html_page.Scripts(data, _SCRIPT.read_text(encoding="utf-8"), (bundle,))


def write_page(figures: Sequence[Figure], path: Path) -> None:
    """Write a page of figures.

    Raises:
        InputError: `path` cannot be written.
    """
    drawing = Drawing()
    sections = [
        html_page.section(figure.title, drawing.place(figure), *map(html_page.note, figure.notes)) for figure in figures
    ]
    title = figures[0].title if len(figures) == 1 else "Figures"
    text = html_page.document(f"Longhaul: {title}", *sections, style=STYLE, scripts=drawing.scripts())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


@functools.cache
def _bundle() -> tuple[str, str]:
    """Return Plotly.js, and the same packed by gzip as base64. Only its file is used, so Plotly is not imported."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise InputError("a figure in HTML needs the package plotly, which is not installed")
    data = Path(spec.origin).with_name("package_data").joinpath("plotly.min.js").read_bytes()
    return data.decode(), base64.b64encode(gzip.compress(data, mtime=0)).decode()


def _short(value: Any) -> Any:
    """Return a figure with numbers of six digits, which are more than a screen shows."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    return [_short(one) for one in value] if isinstance(value, list) else value
