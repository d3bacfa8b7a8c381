"""Whether a training ran out of memory: the evidence of a rank, of a launch and of a batch job, and nowhere else.

| evidence | written by | read here by |
| --- | --- | --- |
| MemoryError, or an error of torch with one of TORCH_MESSAGES | the rank | `is_memory_error` |
| the count of OOM kills of the job's control group | the kernel | `kernel_oom_kills` |
| a line of slurmstepd or srun in the launcher's output, or in the job's log | Slurm | `OUT_OF_MEMORY_PATTERN` |
| the state of the job, or LSF's termination reason | the scheduler | `BatchJob.exit_reason` |
| the state of a step; SIGKILL with as much memory used as requested | Slurm's accounting | `is_job_out_of_memory` |
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from nnlo_lib.batch import BatchJob
from nnlo_lib.batch.slurm_job import accounting_rows
from nnlo_lib.config.paths import SLURM_LOGS_FOLDER
from nnlo_lib.core.errors import ExitReason

TORCH_MESSAGES = ("can't allocate memory", "out of memory")  # of torch's errors on CPU and GPU
HOST_VMSTAT_FILE = Path("/proc/vmstat")
JOB_GROUP_PATTERN = re.compile(r"job_\d+")
# Only lines of Slurm itself: the ranks write to the same output.
OUT_OF_MEMORY_PATTERN = re.compile(
    r"^(?:slurmstepd|srun)[\w.-]*: .*(?P<memory>oom.?kill|out.?of.?memory|exceeded (?:job |step )?memory limit)",
    re.IGNORECASE,
)
# Slurm writes this line at the end of a run that it repeats; a requeued job appends to the log.
NEXT_RUN_PATTERN = re.compile(r"DUE TO (PREEMPTION|JOB REQUEUE|NODE FAILURE)")
# The messages are at the end; training logs with progress bars can be large.
MAX_READ_BYTES = 2**20
MEMORY_FIELDS = ("JobID", "JobIDRaw", "State", "ExitCode", "DerivedExitCode", "ReqMem", "MaxRSS", "NNodes")
# A task is killed at its next sample above the limit, which the accounting may not have.
FULL_MEMORY_SHARE = 0.95
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def is_memory_error(error: BaseException) -> bool:
    """Return True if a rank's exception says that it got no memory."""
    says_so = any(words in str(error) for words in TORCH_MESSAGES)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and says_so)


def kernel_oom_kills() -> int:
    """Return the OOM kills in this process's control group, or on this host if the group has no count."""
    # The count of a group includes its subgroups; the count of the host, processes of other jobs and users.
    # The line with the hierarchy number 0 is the group of control groups version 2.
    own = re.search(r"^0::/(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    group = job_group(Path("/sys/fs/cgroup") / (own[1] if own else ""))
    for path in (group / "memory.events", HOST_VMSTAT_FILE):
        if path.exists() and (found := re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)):
            return int(found[1])
    return 0


def job_group(group: Path) -> Path:
    """Return the control group of the Slurm job that contains a group, or the group itself outside of a job."""
    # The launcher and the ranks that srun starts are in different subgroups of the job's group.
    return next((each for each in (group, *group.parents) if JOB_GROUP_PATTERN.fullmatch(each.name)), group)


def job_exit_reason(job: BatchJob) -> ExitReason:
    """Return why the job ended, from the scheduler and the job's log; `killed` if that is unknown."""
    reason = job.exit_reason()
    return "out of memory" if is_job_out_of_memory(job, reason) else reason


def is_job_out_of_memory(job: BatchJob, reason: ExitReason) -> bool:
    """Return True if there is evidence that overrules the reason which the scheduler gives for the end of a job."""
    if job.scheduler != "slurm" or reason not in ("killed", "canceled"):
        return False
    # Slurm's own memory check cancels the job or the step that exceeds the limit.
    return (reason == "killed" and _accounting_reports_kill(job)) or _log_reports_kill(job)


def _log_reports_kill(job: BatchJob) -> bool:
    """Return True if Slurm reports an out-of-memory kill in the log of the job's last run."""
    # Below the working directory of Snakemake, also after slurmctld has removed the record of the job.
    written, output = SLURM_LOGS_FOLDER.resolve().glob(f"**/{job.job_id}.log"), job.output_file()
    for log in {*written, *([output] if output else [])}:
        with suppress(OSError), log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_READ_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
            begins = [number for number, line in enumerate(lines, 1) if NEXT_RUN_PATTERN.search(line)]
            if any(OUT_OF_MEMORY_PATTERN.search(line) for line in lines[begins[-1] if begins else 0 :]):
                return True
    return False


def _accounting_reports_kill(job: BatchJob) -> bool:
    """Return True if the last run was killed with SIGKILL, and a process used as much memory as was requested."""
    rows = accounting_rows(job.job_id, MEMORY_FIELDS)
    if any(row["State"].startswith("OUT_OF_MEMORY") for row in rows):  # also of a step
        return True
    killed = any(row[code].endswith(":9") for row in rows for code in ("ExitCode", "DerivedExitCode"))
    requested = used = 0.0
    for row in rows:
        # Slurm before 21.08 appends `n`: memory per node. Later versions print the memory of all nodes.
        of_all = row["NNodes"].isdigit() and not row["ReqMem"].endswith("n")
        requested = max(requested, _parse_bytes(row["ReqMem"]) / (int(row["NNodes"]) if of_all else 1))
        used = max(used, _parse_bytes(row["MaxRSS"]))
    return killed and 0 < FULL_MEMORY_SHARE * requested <= used


def _parse_bytes(text: str) -> float:
    found = re.fullmatch(r"([\d.]+)([KMGT]?)n?", text)
    return float(found[1]) * UNITS[found[2]] if found else 0.0
