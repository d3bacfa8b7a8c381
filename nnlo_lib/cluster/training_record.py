"""The attempts of the training that a submitted job makes, completed after the end of the job."""

from collections.abc import Sequence
from pathlib import Path

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.launch.crash_recovery import all_attempts
from nnlo_lib.launch.lost_attempt import record_lost_attempt
from nnlo_lib.state.attempts import Attempt
from nnlo_lib.state.out_of_memory import job_exit_reason


def attempts_of_ended_job(job: BatchJob, outputs: Sequence[str], ranks: int) -> list[Attempt]:
    """Return the attempts of a training; a job that ran out of memory before its first line gets one.

    Args:
        job: the job, which has ended.
        outputs: output files of the job; `state/` is beside them.
        ranks: number of ranks of the training.

    Raises:
        OSError: if the record cannot be read or written.
    """
    for folder in sorted({Path(output).parent for output in outputs}):
        state = RunPaths(folder).state.folder
        attempts = all_attempts(state, ranks, ended=True)
        if attempts and attempts[-1].job == job.job_id:
            return attempts
        if job_exit_reason(job) == "out of memory" and record_lost_attempt(
            state, job, "out of memory", ranks
        ):
            return all_attempts(state, ranks, ended=True)
        return attempts
    return []
