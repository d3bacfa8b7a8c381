"""The log of a batch job, in which Slurm reports that it has killed processes for their memory."""

import os
import re
from pathlib import Path

from nnlo_lib.config.paths import SLURM_LOGS_FOLDER
from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.launch.launcher_output import OUT_OF_MEMORY_PATTERN

# The messages are at the end; training logs with progress bars can be large.
MAX_READ_BYTES = 2**20
# Slurm writes this line at the end of a run that it repeats; a requeued job appends to the log.
NEXT_RUN_PATTERN = re.compile(r"DUE TO (PREEMPTION|JOB REQUEUE|NODE FAILURE)")


def reports_out_of_memory(job: BatchJob) -> bool:
    """Return True if Slurm reports an out-of-memory kill in the log of the job's last run."""
    return any(_last_run_is_out_of_memory(_read_end(path)) for path in _log_files(job))


def _log_files(job: BatchJob) -> set[Path]:
    if job.scheduler != "slurm":
        return set()
    # Below the working directory of Snakemake, also after slurmctld has removed the record of the job.
    written = set(SLURM_LOGS_FOLDER.resolve().glob(f"**/{job.job_id}.log"))
    output = job.output_file()
    return written | ({output} if output else set())


def _read_end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_READ_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _last_run_is_out_of_memory(text: str) -> bool:
    lines = text.splitlines()
    begins = [number for number, line in enumerate(lines, 1) if NEXT_RUN_PATTERN.search(line)]
    return any(OUT_OF_MEMORY_PATTERN.search(line) for line in lines[begins[-1] if begins else 0 :])
