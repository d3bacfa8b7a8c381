"""A headless chromium of the system, controlled by playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

TIMEOUT_MS = 120_000  # of the start and of each call, on a busy machine


def find_chromium() -> str | None:
    """Return the path of chromium; return None if it is missing."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One page in a chromium.

    Attributes:
        page: the page, with all methods of playwright.
        requests: addresses that the page requested since it was opened.
        complaints: its console messages and exceptions since it was opened.
    """

    def __init__(self, page: Page) -> None:
        self.page, self.requests, self.complaints = page, [], []
        page.set_default_timeout(TIMEOUT_MS)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, path: Path, width: int = 1280, dark: bool = False) -> None:
        """Load a file in a window of `width` pixels; assert that it is quiet and as wide as the window."""
        self.requests.clear()
        self.complaints.clear()
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        self.page.goto(path.resolve().as_uri())
        assert self.requests == [path.resolve().as_uri()]
        assert self.complaints == []
        assert self.page.evaluate("document.documentElement.scrollWidth") == width

    def count(self, selector: str) -> int:
        """Return the number of elements of a CSS selector."""
        return self.page.locator(selector).count()

    def charts_with_marks_outside(self, charts: str, marks: str) -> int:
        """Return the number of charts with a mark beyond their frame; both are CSS selectors."""
        found = self.page.evaluate(
            """([charts, marks]) => [...document.querySelectorAll(charts)].filter(chart => {
                const frame = chart.getBoundingClientRect();
                return [...chart.querySelectorAll(marks)].some(each => {
                    const box = each.getBoundingClientRect();
                    return box.left < frame.left - 3 || box.right > frame.right + 3
                        || box.top < frame.top - 3 || box.bottom > frame.bottom + 3;
                });
            }).length""",
            [charts, marks],
        )
        assert isinstance(found, int)
        return found


@contextmanager
def started_browser() -> Iterator[Browser]:
    """Start a chromium; stop it at the end."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox"], timeout=TIMEOUT_MS
        )
        yield Browser(chromium.new_page())
        chromium.close()
