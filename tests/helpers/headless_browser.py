"""A headless chromium, controlled through its debugging pipe without a port or an extra package."""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --hide-scrollbars --remote-debugging-pipe"
)


def find_chromium():
    """Return the path of chromium; return None if it is missing."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """One page in a separate chromium process; `events` contains all events of the page since it was opened."""

    def __init__(self, profile: Path, deadline: float = 60):
        self._to_read, self._write = os.pipe()
        self._read, self._to_write = os.pipe()
        self._deadline, self._buffer, self._calls = deadline, b"", 0
        self._answers, self.events = {}, []
        command = [find_chromium(), *FLAGS.split(), f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3</dev/fd/{self._to_read} 4>/dev/fd/{self._to_write}', "sh", *command],
            pass_fds=(self._to_read, self._to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(self._to_read)
        os.close(self._to_write)
        self._session = None
        pages = [each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page"]
        target = pages[0]["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # The process leads its own group because it was started in a new session.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def open(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False):
        """Load a file and wait for its load event; `width` and `height` are in pixels."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        self._wait(lambda: any(event["method"] == "Page.loadEventFired" for event in self.events))

    def evaluate(self, expression: str):
        """Return the value of a JavaScript expression."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def picture(self, path: Path):
        """Save the whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))

    def printed(self, path: Path):
        """Save the page as PDF."""
        answer = self.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)
        path.write_bytes(base64.b64decode(answer["data"]))

    def requests(self):
        """Return the addresses that the page requested."""
        asked = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in asked]

    def complaints(self):
        """Return console messages, exceptions and entries of the browser's log."""
        kinds = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        return [event["params"] for event in self.events if event["method"] in kinds]

    def call(self, method: str, **parameters):
        """Send a command and return its result."""
        self._calls += 1
        number = self._calls
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda: self._answers.pop(number, None))
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _wait(self, ready):
        end = time.monotonic() + self._deadline
        while not (found := ready()):
            left = end - time.monotonic()
            assert left > 0, "chromium does not answer"
            if select.select([self._read], [], [], left)[0]:
                self._receive()
        return found

    def _receive(self):
        chunk = os.read(self._read, 1 << 20)
        assert chunk, "chromium ended"
        *messages, self._buffer = (self._buffer + chunk).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self.events.append(message)
