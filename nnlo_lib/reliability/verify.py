"""All checks of `nnlo verify`: the files of each finished job. Imports neither torch nor pandas."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.reliability.file_checks import (
    check_attempts,
    check_checkpoints,
    check_code,
    check_dataset,
    check_evaluation,
    check_outputs,
    check_sample_ledger,
)
from nnlo_lib.reliability.findings import (
    Finding,
    find_run_folders,
    load_finished_run,
    note,
    reason_not_finished,
)
from nnlo_lib.reliability.reproduce import check_reproducibility
from nnlo_lib.state.finished_run import FinishedRun


def verify_runs(folders: Sequence[str], shards: bool) -> int:
    """Check all jobs in `folders` and print a line per finding; return 1 if a check failed, else 0.

    Args:
        folders: folders of jobs, or folders above them.
        shards: verify every shard of the data too.

    Raises:
        UserError: after all checks, if jobs are not finished or their summary is damaged.
    """
    jobs = [job for folder in folders for job in find_run_folders(Path(folder))]
    unfinished, any_failed = [], False
    for folder in jobs:
        try:
            reason = reason_not_finished(folder)
            findings = [note(reason)] if reason else list(_run_checks(load_finished_run(folder), shards))
        except UserError as error:
            # One unfinished job must not hide the findings of the others.
            unfinished.append(str(error))
            continue
        print(folder, *findings, sep="\n", flush=True)
        any_failed |= any(finding.status == "FAILED" for finding in findings)
    if unfinished:
        raise UserError("\n  ".join(unfinished))
    return int(any_failed)


def _run_checks(run: FinishedRun, shards: bool) -> Iterator[Finding]:
    """Yield the findings of all checks of a run; if `shards`, verify every shard of the data too."""
    yield from check_outputs(run)
    yield from check_evaluation(run)
    yield from check_checkpoints(run)
    yield from check_code(run)
    yield from check_sample_ledger(run)
    yield from check_dataset(run, shards)
    yield from check_attempts(run)
    yield from check_reproducibility(run)
