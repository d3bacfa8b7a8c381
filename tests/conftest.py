"""What tests of every room share."""

from pathlib import Path

import pytest
from helpers.repository_copy import Checkout, copy_checkout
from helpers.requires import absent
from hypothesis import HealthCheck, settings

pytest_plugins = ["helpers.lanes"]
# hypothesis gives an example 200 ms, which a busy machine exceeds
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real data beside the repository; NNLO_REQUIRE_ALL=1 turns its absence into a failure."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        absent("no real data at ../shared/data")
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """Return a copy of the repository's files, for Snakemake to run in as a user would."""
    return copy_checkout(tmp_path / "checkout")
