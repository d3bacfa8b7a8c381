"""Which tests belong to which lane of the Makefile; in `make test-fast`, one that starts a process fails.

Lanes run on workers side by side. mpi, snakemake, slurm, browser and processes are the marks of tests that start those.
"""

import sys
from collections.abc import Iterator

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from nnlo_lib.core.version import code_version

STARTS = {"mpi", "processes", "snakemake", "slurm", "browser"}  # marks of tests that start processes
UNHURRIED = STARTS | {"slow"}  # marks of tests that have STARTS_TIMEOUT_S
FIXTURES = {"slurm": "slurm", "browser": "browser", "checkout": "snakemake"}
SLURM = "tests/slurm/"  # its tests wait, and come first: others run beside them
STARTS_TIMEOUT_S = 900  # what starts processes may start more than once, and slowly on a busy machine
EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}


class _Guard:
    """Refuses starts while a test runs that has none of the marks, if asked to."""

    def __init__(self) -> None:
        self.on, self.test = False, ""

    def __call__(self, event: str, _: object) -> None:
        if self.on and self.test and event in EVENTS:
            raise AssertionError(f"{self.test} starts a process: mark it, with one of {sorted(STARTS)}")


GUARD = _Guard()
sys.addaudithook(GUARD)


class _FileScheduling(LoadFileScheduling):
    """Gives workers whole files, in their order; all that use the Slurm cluster go to the one that starts it."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return SLURM if file.startswith(SLURM) else file


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _FileScheduling | None:
    """Schedule by files, if asked to."""
    return _FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make test-fast`."""
    parser.addoption("--no-starts", action="store_true", help="fail tests that start processes unmarked")


def pytest_configure(config: pytest.Config) -> None:
    """Turn the guard on, once git has told which nnlo this is: every training writes that."""
    if config.getoption("--no-starts"):
        code_version()
        GUARD.on = True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they use and the transport that they run on; put Slurm's first."""
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
    """Guard the test with its fixtures."""
    GUARD.test = "" if STARTS & {mark.name for mark in item.iter_markers()} else item.nodeid
    try:
        return (yield)
    finally:
        GUARD.test = ""
