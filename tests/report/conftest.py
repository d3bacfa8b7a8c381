"""Fixtures of the report tests: synthetic experiments, their pages, and a browser."""

from pathlib import Path

import pytest
from helpers.requires import absent
from helpers.synthetic_runs import Fake

from nnlo_lib.report.page import write_page
from nnlo_lib.report.tables import load_jobs, summarize, write_summary


@pytest.fixture
def fake(tmp_path) -> Fake:
    """Return a synthetic experiment without jobs; tests add jobs."""
    return Fake(tmp_path / "results")


@pytest.fixture
def report():
    """Return a function that writes summary.csv and report.html of a synthetic experiment and returns the page."""

    def make(fake: Fake, **options) -> Path:
        summary, page = fake.root / "summary.csv", fake.root / "report.html"
        write_summary(summarize(load_jobs(fake.folders)), summary)
        write_page(page, fake.file, summary, fake.folders, **options)
        return page

    return make


@pytest.fixture(scope="module")
def browser():
    """Start a headless chromium; skip the tests without chromium, or fail if NNLO_REQUIRE_ALL=1."""
    from helpers.headless_browser import find_chromium, started_browser  # imports playwright

    if find_chromium() is None:
        absent("no chromium on this machine")
    with started_browser() as started:
        yield started
