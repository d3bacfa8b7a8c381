"""Fixtures of the report tests: synthetic experiments, the two scripts that read them, and a browser."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.headless_browser import Browser, find_chromium
from helpers.requires import absent
from helpers.synthetic_runs import Fake

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def fake(tmp_path) -> Fake:
    """Return a synthetic experiment without jobs; tests add jobs."""
    return Fake(tmp_path / "results")


@pytest.fixture
def report(tmp_path):
    """Return a function that writes summary.csv and report.html of a synthetic experiment and returns the page."""
    from nnlo_lib.report.finished_job import load_jobs
    from nnlo_lib.report.page import write_page
    from nnlo_lib.report.tables import summarize, write_summary

    def make(fake: Fake) -> Path:
        summary, page = fake.root / "summary.csv", fake.root / "report.html"
        write_summary(summarize(load_jobs(fake.folders)), summary)
        write_page(page, fake.file, summary, fake.folders)
        return page

    return make


@pytest.fixture
def script():
    """Return a function that runs one of the scripts and returns the completed process."""

    def run(name, *arguments):
        command = [sys.executable, SCRIPTS / name, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Start a headless chromium; skip the tests without chromium, or fail if NNLO_REQUIRE_ALL=1."""
    if find_chromium() is None:
        absent("no chromium on this machine")
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started
