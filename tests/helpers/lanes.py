"""Assignment of tests to the lanes of the Makefile; in `make test-fast`, an unmarked test that starts a process fails.

Lanes run on parallel workers. The marks mpi, snakemake, slurm, browser and processes denote tests that start these.
"""

import sys
from collections.abc import Iterator

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from nnlo_lib.core.version import code_version

STARTS = {"mpi", "processes", "snakemake", "slurm", "browser"}  # marks of tests that start processes
UNHURRIED = STARTS | {"slow"}  # marks of tests with the timeout STARTS_TIMEOUT_S
FIXTURES = {"slurm": "slurm", "browser": "browser", "checkout": "snakemake"}
SLURM = "tests/slurm/"  # scheduled first: its tests mostly wait, and other tests run in parallel
STARTS_TIMEOUT_S = 900  # a test may retry the start of its processes, which is slow on a busy machine
EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}


class _Guard:
    """Audit hook that fails a test without a mark of STARTS if the test starts a process; off by default."""

    def __init__(self) -> None:
        self.on, self.test = False, ""

    def __call__(self, event: str, _: object) -> None:
        if self.on and self.test and event in EVENTS:
            raise AssertionError(f"{self.test} starts a process: mark it, with one of {sorted(STARTS)}")


GUARD = _Guard()
sys.addaudithook(GUARD)


class _FileScheduling(LoadFileScheduling):
    """Assigns whole files to workers in order; all tests of the Slurm cluster go to the same worker."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return SLURM if file.startswith(SLURM) else file


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _FileScheduling | None:
    """Schedule by files if `--dist loadfile` is given."""
    return _FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make test-fast`."""
    parser.addoption("--no-starts", action="store_true", help="fail tests that start processes unmarked")


def pytest_configure(config: pytest.Config) -> None:
    """Turn the guard on after `code_version` has run git: every training writes the cached version."""
    if config.getoption("--no-starts"):
        code_version()
        GUARD.on = True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their fixtures and transport, set timeouts, and move the Slurm tests to the front."""
    for item in items:
        for fixture in FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(FIXTURES[fixture])
        callspec = getattr(item, "callspec", None)
        if callspec and callspec.params.get("transport") == "mpi":
            item.add_marker("mpi")
        if UNHURRIED & {mark.name for mark in item.iter_markers()} and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(STARTS_TIMEOUT_S))
    items.sort(key=lambda item: not item.nodeid.startswith(SLURM))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Guard a test and its fixtures."""
    GUARD.test = "" if STARTS & {mark.name for mark in item.iter_markers()} else item.nodeid
    try:
        return (yield)
    finally:
        GUARD.test = ""
