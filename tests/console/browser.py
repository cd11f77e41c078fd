"""Chromium without a window, driven over pipes (the DevTools protocol): no driver, no port, no other package."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-pipe",
]  # fmt: skip
PATIENCE_S = 90.0
WHOLE = "document.body.dataset.outline === undefined"
PROGRAM = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execvp(sys.argv[3], sys.argv[3:])"
)
"""A browser reads its commands from descriptor 3 and answers on 4."""


class Browser:
    """One tab. Collects the errors of its pages, and the addresses that they load."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.loaded: list[str] = []
        self._profile = TemporaryDirectory(prefix="chromium-")
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(to_browser), str(from_browser)]
            + ["chromium", *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._loads = 0
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        os.close(self._to)  # the browser ends with its pipe
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)
        self._profile.cleanup()

    def call(self, method: str, /, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def _receive(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(until - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            data = os.read(self._from, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        self._note(found.get("method", ""), found.get("params", {}))
        return found

    def _note(self, method: str, parameters: dict[str, Any]) -> None:
        match method:
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(parameters["exceptionDetails"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.errors.append(parameters["entry"]["text"])
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning", "assert"):
                self.errors.append(json.dumps(parameters["args"]))
            case "Page.loadEventFired":
                self._loads += 1
            case "Network.requestWillBeSent":
                self.loaded.append(parameters["request"]["url"])

    # -- what tests do

    def screen(self, width: int, height: int = 900, scheme: str = "light") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        """Load a page, its style sheet and its script; if it is an outline, until its script has completed it."""
        self.call("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.href !== 'about:blank' && {WHOLE}")

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str, found: Callable[[Any], bool] = bool) -> Any:
        """Wait until the expression has a value that fits."""
        until = time.monotonic() + PATIENCE_S
        while not found(value := self.evaluate(expression)):
            assert time.monotonic() < until, f"{expression} is still {value!r}"
            time.sleep(0.02)
        return value

    def follow(self, lead: Callable[[], object]) -> None:
        """Do what leads to another page, and wait until that one is loaded."""
        before = self._loads
        lead()
        while self._loads == before:
            self._receive()

    def submit(self) -> None:
        """Send the page's form by its button."""
        self.follow(lambda: self.evaluate("document.querySelector('main form .buttons button').click()"))

    def write(self, field: str, text: str) -> None:
        """Into the field with this id, in place of what it has."""
        self.evaluate(f"document.getElementById('{field}').select()")
        self.call("Input.insertText", text=text)

    def enter(self) -> None:
        """Send the form of the field that has the focus, with the Enter key."""
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        self.follow(lambda: self.call("Input.dispatchKeyEvent", type="keyDown", text="\r", **key))
        self.call("Input.dispatchKeyEvent", type="keyUp", **key)

    def accessibility(self) -> list[str]:
        """What axe-core finds wrong with the page. The package's own code, which needs Playwright, is not imported."""
        found = find_spec("axe_playwright_python")
        assert found is not None, "make test-console installs axe-core"
        [folder] = found.submodule_search_locations or ()
        self.evaluate(f"{(Path(folder) / 'axe.min.js').read_text(encoding='utf-8')};0")
        violations = json.loads(self.evaluate("axe.run().then(result => JSON.stringify(result.violations))"))
        return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html']}" for one in violations]

    def press(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def shot(self, height: int) -> bytes:
        """A picture of the page from its top, as PNG."""
        width = self.evaluate("document.documentElement.clientWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(answer["data"])
