"""Made-up experiments, the two commands that read them, and a browser."""

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
    """An empty experiment, to be filled with jobs."""
    return Fake(tmp_path / "results")


@pytest.fixture
def report(tmp_path):
    """Make summary.csv and report.html of a fake experiment in this process and return the page."""
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
    """Run one of the scripts and return how it ended."""

    def run(name, *arguments):
        command = [sys.executable, SCRIPTS / name, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A headless chromium; NNLO_REQUIRE_ALL=1 turns its absence into a failure."""
    if find_chromium() is None:
        absent("no chromium on this machine")
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started
