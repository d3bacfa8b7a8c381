"""Lanes of the Makefile: marks, timeouts, the distribution to workers, and the budget of `make test-real`."""

from collections import defaultdict

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

FIXTURES = {"slurm": "slurm", "browser": "browser", "checkout": "snakemake"}
UNHURRIED = {"real", "exhaustive", "mpi", "processes", "snakemake", "slurm", "browser"}
# A busy machine may be six times slower than a quiet one; a test may retry the start of its processes.
UNHURRIED_TIMEOUT_S = 900
REAL_TESTS = 40  # more would not fit into the minutes that a delivery has
LONG_S = 5.0  # a longer test of `make test` needs the mark `long` with its reason
SLURM = "tests/slurm/"  # one worker has the cluster, and begins with it: its tests mostly wait


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their fixtures and transport, set timeouts, and move the Slurm tests to the front."""
    for item in items:
        for fixture in FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(FIXTURES[fixture])
        callspec = getattr(item, "callspec", None)
        if callspec and callspec.params.get("transport") == "mpi":
            item.add_marker("mpi")
        if UNHURRIED & {mark.name for mark in item.iter_markers()} and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(UNHURRIED_TIMEOUT_S))
    real = sum(item.get_closest_marker("real") is not None for item in items)
    if real > REAL_TESTS:
        raise pytest.UsageError(
            f"{real} tests are marked real; at most {REAL_TESTS} fit into `make test-real`"
        )
    items.sort(key=lambda item: not item.nodeid.startswith(SLURM))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests of `make test` that took long without a mark that says why; a busy machine lists more."""
    seconds: dict[str, float] = defaultdict(float)
    for report in terminalreporter.getreports("passed"):
        if not {"real", "exhaustive", "long"} & set(report.keywords):
            seconds[report.nodeid] += report.duration
    if slow := {test: taken for test, taken in seconds.items() if taken > LONG_S}:
        terminalreporter.section(f"over {LONG_S:.0f} s without a mark `long`")
        for test, taken in sorted(slow.items(), key=lambda each: -each[1]):
            terminalreporter.line(f"{taken:6.1f} s {test}")
