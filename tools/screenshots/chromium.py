"""A headless Chromium, spoken to over its DevTools protocol by two pipes: no port, no other package.

with running() as browser:
    page = browser.page()
    page.open("http://127.0.0.1:8250/")
    page.evaluate("document.title")
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from select import select
from typing import Any, Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_S: Final = 60.0
FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # a container may have no user namespaces; only pages of the tests are opened
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--remote-debugging-pipe",
)


def found() -> str | None:
    """The program; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """The protocol: numbered questions, answers, and events between them."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._kept = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self._number += 1
        question = {"id": self._number, "method": method, "params": params}
        if session:
            question["sessionId"] = session
        os.write(self._to, json.dumps(question).encode() + b"\0")
        while True:
            told = self.next()
            if told.get("id") == self._number:
                assert "error" not in told, f"{method}: {told['error']}"
                answer: dict[str, Any] = told["result"]
                return answer

    def next(self) -> dict[str, Any]:
        """The next message; events are kept, too."""
        deadline_s = time.monotonic() + PATIENCE_S
        while b"\0" not in self._kept:
            ready, _, _ = select([self._from], [], [], max(0.0, deadline_s - time.monotonic()))
            assert ready, "Chromium says nothing"
            data = os.read(self._from, 1 << 20)
            assert data, "Chromium has ended"
            self._kept += data
        message, _, self._kept = self._kept.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        if "method" in told:
            self.events.append(told)
        return told

    def page(self) -> Page:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session)


class Page:
    """One tab. `requests`: every address that it has asked for."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **params)

    def _events(self, method: str) -> list[dict[str, Any]]:
        all_events = self._browser.events
        return [
            one for one in all_events if one["method"] == method and one.get("sessionId") == self._session
        ]

    def open(self, url: str, *, scripts: bool = True) -> None:
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        loaded = len(self._events("Page.loadEventFired"))
        self.ask("Page.navigate", url=url)
        while len(self._events("Page.loadEventFired")) == loaded:
            self._browser.next()

    def evaluate(self, expression: str) -> Any:
        """Its value; a promise's, once it is kept."""
        answer = self.ask(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, silent=False
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait for it to be true."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not self.evaluate(expression):
            assert time.monotonic() < deadline_s, f"did not come: {expression}"

    def look(self, *, dark: bool = False, width: int = 1200, height: int = 900) -> None:
        """As a browser that likes the dark, or a telephone, shows it."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def picture(self, *, height: int, top: str = "") -> bytes:
        """Of a part of the page, as PNG: from its beginning on, or from the heading `top`."""
        find = f"[...document.querySelectorAll('h2')].find((one) => one.textContent === {json.dumps(top)})"
        y = self.evaluate(f"{find}.getBoundingClientRect().top - 20") if top else 0
        width = self.evaluate("document.documentElement.clientWidth")
        whole = self.evaluate("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": y, "width": width, "height": min(height, whole - y), "scale": 1}
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(answer["data"])

    @property
    def requests(self) -> list[str]:
        return [one["params"]["request"]["url"] for one in self._events("Network.requestWillBeSent")]

    @property
    def complaints(self) -> list[str]:
        """What the browser has against the page: errors of scripts, what the policy refused."""
        logged = [one["params"]["entry"]["text"] for one in self._events("Log.entryAdded")]
        thrown = [
            one["params"]["exceptionDetails"]["text"] for one in self._events("Runtime.exceptionThrown")
        ]
        return logged + thrown


@contextlib.contextmanager
def running() -> Iterator[Browser]:
    """A browser with a profile of its own, gone afterwards."""
    program = found()
    assert program is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        # The browser reads at 3 and writes at 4, whatever numbers the pipes have here.
        line = f'exec 3<&{to_read} 4>&{from_write}; exec "$0" "$@"'
        process = subprocess.Popen(
            ["/bin/bash", "-c", line, program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_read, from_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        try:
            yield Browser(to_write, from_read)
        finally:
            os.close(to_write)
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(from_read)
