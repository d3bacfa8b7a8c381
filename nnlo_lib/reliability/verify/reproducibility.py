"""Check whether a run can be reproduced bit for bit from its summary."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from nnlo_lib.config import Run
from nnlo_lib.config.algorithm import UserAlgorithmConfig
from nnlo_lib.config.input_files import input_files
from nnlo_lib.reliability.verify.finding import Finding, failed, note, ok
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.input_record import has_copy


def check_reproducibility(run: FinishedRun) -> Iterator[Finding]:
    """Check the hash of the configuration, and note every reason why the run is not reproducible."""
    if run.config.hash != run.summary["config_hash"]:
        yield failed("the configuration in summary.json was modified: its hash differs from config_hash")
    reasons = [
        *_code_reasons(str(run.summary["code_version"])),
        *_nondeterminism_reasons(run.config),
        *_external_file_reasons(run),
        *_run_segment_reasons(run),
        *_pause_reasons(run),
    ]
    yield from (note(f"not reproducible bit for bit: {reason}") for reason in reasons)
    if not reasons:
        kept = f" and {run.paths.code.name}/" if run.input_checksums else ""
        yield ok(f"reproducible bit for bit from summary.json{kept}, with code {run.summary['code_version']}")
    if differing := list(_differing_packages(run.summary["packages"])):
        yield note(
            f"to reproduce it, install the packages in summary.json; these differ: {'; '.join(differing)}"
        )


def _code_reasons(code: str) -> Iterator[str]:
    # A code version is `<version> (<commit>)` in a git checkout, with `+` after the commit if files were
    # modified.
    if not code.endswith(")"):
        yield f"its code version {code} contains no commit"
    elif code.endswith("+)"):
        yield f"its code had uncommitted changes ({code})"


def _nondeterminism_reasons(run: Run) -> Iterator[str]:
    """Yield the settings that make a result depend on chance, the machine or files outside of the summary."""
    parallel, algorithm = run.parallel, run.algorithm
    virtual = parallel.transport == "simulated"
    if not virtual and isinstance(algorithm, UserAlgorithmConfig):
        yield f"the ranks of {algorithm.name} may not wait for each other: no check runs the user's files to know it"
    elif not virtual and algorithm.is_asynchronous:
        yield f"the ranks of {algorithm.name} do not wait for each other: the order of their messages is random"
    if not virtual and not algorithm.sums_in_rank_order:
        yield "`algorithm.reduction: fastest` lets MPI choose the order in which gradients are added"
    if virtual and parallel.simulation.sample_seconds == "measured":
        yield "`parallel.simulation.sample_seconds: measured` makes the training depend on the speed of the machine"
    if parallel.gpus_per_rank:
        yield "it was trained on GPUs, which may add numbers in a different order each time"


def _run_segment_reasons(run: FinishedRun) -> Iterator[str]:
    """Yield the changes of ranks and of code between the segments of the training."""
    if run.rank_count_changed:
        segments = [f"{segment['ranks']} from step {segment['step']:,}" for segment in run.run_segments]
        yield f"its number of ranks changed ({', '.join(segments) or 'see state/attempts.jsonl'})"
    if len({segment["code"] for segment in run.run_segments}) > 1:
        segments = [f"{segment['code']} from step {segment['step']:,}" for segment in run.run_segments]
        yield f"its code changed ({', '.join(segments)})"


def _pause_reasons(run: FinishedRun) -> Iterator[str]:
    """Yield the reason if a pause changed the messages in flight between simulated ranks."""
    algorithm = run.config.algorithm
    if run.transport != "simulated" or isinstance(algorithm, UserAlgorithmConfig):
        return
    # Summaries of older versions do not say where a training paused, and a resumed one had other clocks.
    paused = run.summary.get("paused_within_epoch", run.restarts > 0)
    if algorithm.is_asynchronous and paused:
        yield (
            f"it was stopped and resumed within an epoch, which changes the messages in flight between the ranks of {algorithm.name}"
        )


def _external_file_reasons(run: FinishedRun) -> Iterator[str]:
    """Yield the files of the user of which no copy is kept with the run."""
    for path in input_files(run.config_section("data").get("reader")):
        yield f"it needs {path}, the reader of the data, of which no copy is kept with the run"
    for path in {**dict.fromkeys(run.config.input_files), **run.input_checksums}:
        if path not in run.input_checksums or not has_copy(path):
            missing = "" if Path(path).is_file() else " and which was not found"
            yield f"it needs {path}, of which no copy is kept with the run{missing}"


def _differing_packages(packages: dict[str, str]) -> Iterator[str]:
    for name, recorded in packages.items():
        current = platform.python_version() if name == "python" else _installed(name)
        if current != recorded:
            yield f"{name} is {current} (summary.json: {recorded})"


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
