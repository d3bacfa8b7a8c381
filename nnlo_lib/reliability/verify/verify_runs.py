"""Run all checks on the files of finished jobs, without any training."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.reliability.verify.attempts import check_attempts
from nnlo_lib.reliability.verify.code import check_code
from nnlo_lib.reliability.verify.experiment_files import check_experiment_file, find_experiment_files
from nnlo_lib.reliability.verify.files import (
    check_checkpoints,
    check_dataset,
    check_evaluation,
    check_outputs,
)
from nnlo_lib.reliability.verify.finding import Finding, note
from nnlo_lib.reliability.verify.history import check_history
from nnlo_lib.reliability.verify.ledger import check_sample_ledger
from nnlo_lib.reliability.verify.reproducibility import check_reproducibility
from nnlo_lib.reliability.verify.run_folders import find_run_folders, load_finished_run, reason_not_finished
from nnlo_lib.state.finished_run import FinishedRun


def verify_runs(folders: Sequence[str], shards: bool) -> int:
    """Check all jobs in `folders` and print a line per finding; return 1 if a check failed, else 0.

    Args:
        folders: folders of jobs, or folders above them, with the files of whole experiments.
        shards: verify every shard of the data too.

    Raises:
        UserError: after all checks, if jobs are not finished or their summary is damaged.
    """
    jobs = [job for folder in folders for job in find_run_folders(Path(folder))]
    unfinished, failed = [], False
    for folder in jobs:
        try:
            reason = reason_not_finished(folder)
            findings = [note(reason)] if reason else list(_run_checks(load_finished_run(folder), shards))
        except UserError as error:
            # One unfinished job must not hide the findings of the others.
            unfinished.append(str(error))
            continue
        print(folder, *findings, sep="\n", flush=True)
        failed |= any(finding.status == "FAILED" for finding in findings)
    for path in (path for folder in folders for path in find_experiment_files(Path(folder))):
        findings = list(check_experiment_file(path))
        print(path, *findings, sep="\n", flush=True)
        failed |= any(finding.status == "FAILED" for finding in findings)
    if unfinished:
        raise UserError("\n  ".join(unfinished))
    return int(failed)


def _run_checks(run: FinishedRun, shards: bool) -> Iterator[Finding]:
    """Yield the findings of all checks of a run; if `shards`, verify every shard of the data too."""
    yield from check_outputs(run)
    yield from check_evaluation(run)
    yield from check_checkpoints(run)
    yield from check_code(run)
    yield from check_history(run)
    yield from check_sample_ledger(run)
    yield from check_dataset(run, shards)
    yield from check_attempts(run)
    yield from check_reproducibility(run)
