"""Commands of the batch system of this host, with a time limit; the scheduler's decision to stop a job."""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nnlo_lib.core.logging_setup import get_logger

logger = get_logger(__name__)

QUERY_TIMEOUT_S = 15  # the scheduler may be overloaded or unreachable
# Variables in which users keep options for their own calls: they filter or reformat answers (SQUEUE_PARTITION,
# SLURM_TIME_FORMAT, LSB_BJOBS_FORMAT), limit what scancel cancels, make a submission an array or wait for the end of the job, or separate its errors.
MISLEADING_VARIABLE = re.compile(
    r"(SQUEUE|SACCT|SINFO|SCANCEL|LSB_BJOBS|LSB_BHIST|LSB_BACCT)_\w+|SLURM_TIME_FORMAT|SLURM_BITSTR_LEN|SBATCH_(ARRAY_INX|WAIT|TEST_ONLY|ERROR|INPUT)"
)
# As `--all`: partitions that are hidden, or closed to this user's group, are part of each answer.
ALL_PARTITIONS = {"SQUEUE_ALL": "1", "SINFO_ALL": "1", "SCONTROL_ALL": "1"}


def scheduler_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment, by default this process's, in which commands of the batch system answer in full."""
    given = os.environ if environment is None else environment
    kept = {name: value for name, value in given.items() if not MISLEADING_VARIABLE.fullmatch(name)}
    return kept | ALL_PARTITIONS


def query_scheduler(*command: str, timeout: float = QUERY_TIMEOUT_S) -> str:
    """Return the output of a command of the scheduler, or an empty string if it fails or takes too long.

    Args:
        *command: command and its arguments.
        timeout: limit in seconds.
    """
    try:
        return _run(*command, timeout=timeout).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def request_scheduler(*command: str) -> str:
    """Run a command that changes a job; return the error of the scheduler, or an empty string on success."""
    try:
        done = _run(*command)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip() or f"status {done.returncode}" if done.returncode else ""


def _run(*command: str, timeout: float = QUERY_TIMEOUT_S) -> "subprocess.CompletedProcess[str]":
    logger.debug(f"asks the scheduler: {shlex.join(command)}")
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=scheduler_environment(),
        stdin=subprocess.DEVNULL,
        check=False,
    )


@dataclass(frozen=True)
class StopDecision:
    """Decision of the scheduler on a running job.

    Attributes:
        reason: why the scheduler stops the job.
        in_grace_time: whether the job is selected for preemption but not ended yet; it may then requeue itself.
    """

    reason: Literal["preempted", "canceled", "time limit"]
    in_grace_time: bool = False


# Without an answer of the scheduler, an attempt too many is better than a training that is not resumed.
UNKNOWN_DECISION = StopDecision("preempted")
