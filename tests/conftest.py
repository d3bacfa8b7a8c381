"""Fixtures and plugins that all test folders share."""

import os
import signal
from pathlib import Path

import pytest
from helpers.repository_copy import Checkout, copy_checkout
from helpers.requires import absent
from hypothesis import HealthCheck, settings

pytest_plugins = ["helpers.lanes"]
# A shell ignores SIGINT in background jobs, and commands inherit and respect it.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A check that another test has passed would not run again; nothing can be written below this path.
os.environ["NNLO_CACHE"] = os.devnull
# An example takes longer than hypothesis' default deadline of 200 ms on a busy machine. The examples depend on the test
# alone, so that no machine finds one that no other has tried.
settings.register_profile(
    "any machine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real data beside the repository; without it skip, or fail if NNLO_REQUIRE_ALL=1."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        absent("no real data at ../shared/data")
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """Return a copy of the repository in which Snakemake runs as for a user."""
    return copy_checkout(tmp_path / "checkout")
