"""Commands of the batch system of this host, with a time limit; the scheduler's decision to stop a job."""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nnlo_lib.core.errors import ExitReason
from nnlo_lib.core.logging_setup import get_logger

logger = get_logger(__name__)

QUERY_TIMEOUT_S = 15  # of a process in a job that ends
ANSWER_TIMEOUT_S = 60  # a busy slurmctld answers late
# Runs a command; returns the finished process, or None without an answer.
Command = Callable[..., "subprocess.CompletedProcess[str] | None"]
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


def run_command(
    *command: str, timeout: float = ANSWER_TIMEOUT_S
) -> "subprocess.CompletedProcess[str] | None":
    """Run a command; return None if it is missing or gives no answer within `timeout` seconds."""
    logger.debug(f"asks the scheduler: {shlex.join(command)}")
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=scheduler_environment(), stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None


def query_scheduler(*command: str, timeout: float = QUERY_TIMEOUT_S) -> str:
    """Return the output of a command of the scheduler, or an empty string if it is missing or gives no answer."""
    done = run_command(*command, timeout=timeout)
    return done.stdout.strip() if done else ""


def request_scheduler(*command: str) -> str:
    """Run a command that changes a job; return the error of the scheduler, or an empty string on success."""
    done = run_command(*command, timeout=QUERY_TIMEOUT_S)
    if done is None:
        return f"{command[0]} is missing or gives no answer"
    return done.stderr.strip() or f"status {done.returncode}" if done.returncode else ""


@dataclass(frozen=True)
class StopDecision:
    """Decision of the scheduler on a running job."""

    # why the scheduler stops the job; `killed` if the job has failed, as after the end of its batch script
    reason: ExitReason
    # whether the job is selected for preemption but not ended yet; it may then requeue itself
    in_grace_time: bool = False


# Without an answer of the scheduler, an attempt too many is better than a training that is not resumed.
UNKNOWN_DECISION = StopDecision("preempted")
