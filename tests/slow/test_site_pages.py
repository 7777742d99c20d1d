"""The site in a browser: nothing is cut off at the width of a telephone, it is dark or light, and its search finds."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scripts import make_site
from tests.chromium import Chromium

pytestmark = [pytest.mark.chromium, pytest.mark.timeout(600)]
WIDTH = 400
_CUT_OFF = """(() => {
    const width = document.documentElement.clientWidth, found = [];
    const scrolls = (element) => element && element.tagName !== "HTML" && (scrolls(element.parentElement) ||
        ["auto", "scroll", "hidden"].includes(getComputedStyle(element).overflowX) &&
        element.getBoundingClientRect().right <= width + 1);
    for (const element of document.querySelectorAll(".md-content *")) {
        const place = element.getBoundingClientRect();
        if (place.width && place.right > width + 1 && !scrolls(element.parentElement))
            found.push(`${element.tagName} ${element.className}: ${element.textContent.slice(0, 60)}`);
    }
    return JSON.stringify([document.documentElement.scrollWidth, found.slice(0, 3)]);
})()"""
"""The page's width, and what reaches beyond it and cannot be scrolled to by itself."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert make_site.build(folder) == []
    return folder / "site"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    with Chromium(tmp_path / "profile") as one:
        yield one


def test_no_page_is_wider_than_a_telephone(site: Path, browser: Chromium) -> None:
    pages = [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]
    assert len(pages) > 80
    wide = {}
    for page in pages:
        browser.open(page, WIDTH)
        width, cut_off = json.loads(browser.evaluate(_CUT_OFF))
        if width > WIDTH or cut_off:
            wide[page.relative_to(site).as_posix()] = (width, cut_off)
    assert wide == {}


def test_a_reader_switches_to_dark_and_finds_by_searching(site: Path, browser: Chromium) -> None:
    handler = functools.partial(_Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            browser.open_url(f"http://127.0.0.1:{server.server_port}/index.html")
            colour = "getComputedStyle(document.body).backgroundColor"
            before = browser.evaluate(colour)
            browser.click("label[title=Dark]")
            browser.wait_for(f"{colour} !== {json.dumps(before)}")
            browser.click(".md-search__input")
            browser.type("evaluations")
            browser.wait_for("document.querySelectorAll('.md-search-result__item').length > 0")
            found = browser.evaluate("document.querySelector('.md-search-result__list').textContent")
            assert "Python API" in found
            assert browser.complaints == []  # among them, what is asked for from anywhere else
        finally:
            server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """The tests' output is not its log."""
