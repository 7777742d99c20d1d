"""A page in headless Chromium, as a reader sees it: spoken to by its DevTools protocol over two pipes.

No driver and no package is needed for it. `pytest.mark.chromium` marks the tests that use it.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from tests.waiting import wait_until

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_TIME_LIMIT_S = 100.0
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--font-render-hinting=none", "--force-color-profile=srgb", "--remote-debugging-pipe"),
    "--proxy-server=127.0.0.1:9",
)
"""No sandbox: root may have none. The proxy is one that is not there, so that nothing is fetched."""


def program() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Chromium:
    """A browser with one page; a context manager."""

    def __init__(self, home: Path) -> None:
        """`home` takes its profile."""
        self._home = home
        self._ids = itertools.count(1)
        self._buffer = b""
        self.complaints: list[str] = []
        """What the page's console, its policy or its scripts complained of, and what it asked for beside itself."""
        self._address = ""

    def __enter__(self) -> Chromium:
        found = program()
        assert found, "no Chromium here"
        read_fd, self._write_fd = os.pipe()
        self._read_fd, write_fd = os.pipe()

        def as_three_and_four() -> None:  # where the browser looks for its pipes
            moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (read_fd, write_fd)]
            os.dup2(moved[0], 3)
            os.dup2(moved[1], 4)

        self._process = subprocess.Popen(
            [found, *_FLAGS, f"--user-data-dir={self._home}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=as_three_and_four,
            close_fds=False,
            start_new_session=True,
            env={**os.environ, "HOME": str(self._home)},
        )
        os.close(read_fd)
        os.close(write_fd)
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._write_fd)
        os.close(self._read_fd)
        os.killpg(self._process.pid, signal.SIGKILL)  # its own session: itself and what it started
        self._process.wait()

    def open(self, path: Path, width: int, height: int = 800) -> None:
        """Show a file in a window of this size; a narrow one is a phone's."""
        self.open_url(path.resolve().as_uri(), width, height)

    def open_url(self, address: str, width: int = 1280, height: int = 800) -> None:
        """Show a page by its address. It may ask its own origin for more; what else it asks for is a complaint."""
        is_phone = width < 600
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self._address = address
        self.call("Page.navigate", url=address)
        self._wait_for("Page.loadEventFired")

    def open_tab(self, address: str) -> str:
        """Show a page in one more tab, and return its session for `evaluate`."""
        target = self._call("Target.createTarget", url=address)["targetId"]
        session: str = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return session

    def evaluate(self, expression: str, session: str | None = None) -> Any:
        """Return the value of JavaScript in the page, or in another tab; a promise is waited for."""
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        found = self._call("Runtime.evaluate", session=session or self._session, **asked)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str, session: str | None = None) -> None:
        """Wait until JavaScript in the page is true."""
        wait_until(lambda: bool(self.evaluate(f"!!({expression})", session)), expression)

    def click(self, selector: str) -> None:
        """Click the middle of the first element of a selector with the mouse, as a reader does."""
        self.drag(selector, 0.0)

    def drag(self, selector: str, share: float) -> None:
        """Press the mouse in the middle of an element, move it to the right and down, and release it.

        Args:
            share: Way as a share of the element's width and height.
        """
        found = self.evaluate(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)}); if (!one) return null;"
            " one.scrollIntoView({block: 'center'}); const r = one.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2, r.width, r.height]; })()"
        )
        assert found, f"nothing to click: {selector}"
        x, y, width, height = found
        end = {"x": x + share * width, "y": y + share * height, "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", **{**end, "type": "mousePressed", "x": x, "y": y})
        if share:
            self.call("Input.dispatchMouseEvent", **{**end, "type": "mouseMoved"})
        self.call("Input.dispatchMouseEvent", **{**end, "type": "mouseReleased"})

    def type(self, text: str) -> None:
        """Type text into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press and release a key: "Tab", " " or "Enter"."""
        code, number = {"Tab": ("Tab", 9), " ": ("Space", 32), "Enter": ("Enter", 13)}[key]
        told: dict[str, Any] = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        self.call("Input.dispatchKeyEvent", type="keyDown", **told, **({"text": key} if key == " " else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG, with rows that the browser would paint only once they are scrolled to."""
        self.evaluate(_PAINT_ALL)
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def pdf(self, path: Path) -> None:
        """As it is printed on A4."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True, "printBackground": True}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", **paper)["data"]))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the DevTools protocol to the page."""
        return self._call(method, session=self._session, **params)

    def _call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write_fd, json.dumps(message).encode() + b"\0")
        deadline_s = time.monotonic() + _TIME_LIMIT_S
        while True:
            answer = self._receive(deadline_s)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def _wait_for(self, method: str) -> None:
        deadline_s = time.monotonic() + _TIME_LIMIT_S
        while self._receive(deadline_s).get("method") != method:
            pass

    def _receive(self, deadline_s: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left_s = deadline_s - time.monotonic()
            ready = left_s > 0 and select.select([self._read_fd], [], [], left_s)[0]
            assert ready, f"Chromium said nothing for {_TIME_LIMIT_S:.0f} s"
            read = os.read(self._read_fd, 1 << 20)
            assert read, "Chromium has ended"
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method"), message.get("params") or {})
        return message

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([one.get("value", one.get("description")) for one in params["args"]]))
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"]["text"])
        elif method == "Network.requestWillBeSent":
            address = params["request"]["url"]
            is_own = address.partition("#")[0] == self._address or address.startswith(_origin(self._address))
            if not is_own and not address.startswith(("data:", "blob:")):
                self.complaints.append(f"asked for {address}")


_PAINT_ALL = """(async () => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("* { content-visibility: visible !important; }");
  document.adoptedStyleSheets = [sheet];
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
})()"""


def _origin(address: str) -> str:
    """Return what all addresses of a served page's origin begin with; a file has none but itself."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}/" if parts.netloc else address
