"""Slurm jobs of fold tasks through submitit: the requested resources, and the submission."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from submitit import SlurmExecutor
from submitit.core.utils import JobPaths

from nnlo_lib.batch.scheduler_query import run_command
from nnlo_lib.batch.slurm_queue import memory_per_node, submitted_number
from nnlo_lib.batch.surroundings import leave_surrounding_job, sentence_about_variables
from nnlo_lib.config import Run
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.executors.submitit.job import TrialJob

logger = get_logger(__name__)

# profiles/slurm/config.yaml gives the reasons for the options.
SLURM_LAUNCHER = "srun --mpi=pmi2 --kill-on-bad-exit=1"


def refuse_without_slurm() -> None:
    """Raise UserError if this machine belongs to no Slurm cluster; a controller that is down is no reason."""
    answer = run_command("scontrol", "ping") if shutil.which("sbatch") else None
    if answer is None or "Slurmctld" not in answer.stdout:
        raise UserError(
            "--executor submitit: this machine has no Slurm (`scontrol ping` names no controller); "
            "use --executor local, which trains in processes of this machine"
        )
    if sentence := sentence_about_variables(os.environ):
        logger.warning(sentence)


class TrialSubmission(SlurmExecutor):
    """Submission of submitit that cannot take a number of the site's notices for the job's number.

    `folder` is for the files and logs of the jobs of one fold task.
    """

    def __init__(self, folder: Path, **parameters: Any) -> None:
        # `exec` replaces the batch shell, which would receive Slurm's signals instead of the launcher.
        super().__init__(folder, python=f"exec {shlex.quote(sys.executable)}")
        self.update_parameters(**parameters)

    def send(self, job: TrialJob) -> str:
        """Return the number of the submitted job. Raises RuntimeError with the words of sbatch if there is none."""
        # sbatch would pass on the variables of the job around this process, and misleading ones.
        hidden = leave_surrounding_job()
        try:
            return self.submit(job).job_id
        finally:
            os.environ.update(hidden)

    @staticmethod
    def complete(folder: Path, number: str) -> None:
        """Give a job, for whose number submitit has not waited, the pickle that it reads within a minute after its start."""
        unnamed = [path for path in folder.glob("*.pkl") if "_" not in path.name]
        paths = JobPaths(folder, number)
        if unnamed and not paths.submitted_pickle.exists():
            paths.move_temporary_file(max(unnamed, key=os.path.getmtime), "submitted_pickle")

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        return ["sbatch", "--parsable", str(submission_file_path)]

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        try:
            return submitted_number(string.decode() if isinstance(string, bytes) else string)
        except ValueError as error:
            raise RuntimeError(str(error)) from error


def request(run: Run, memory: int) -> dict[str, Any]:
    """Return the resources of a Slurm job as parameters of submitit.

    Submitit adds no srun of its own, because the launcher starts the ranks with srun.
    """
    resources = RunResources(run)
    gpus = {"gpus": resources.gpus} if resources.gpus else {}
    return {
        "time": resources.runtime_min, "nodes": resources.nodes,
        "cpus_per_task": resources.threads_per_process, "stderr_to_stdout": True, "mem": f"{memory_per_node(memory, resources.nodes)}M",
        "partition": run.resources.partition, "account": run.resources.account, "use_srun": False,
        "additional_parameters": {"ntasks": resources.processes, "requeue": True, **gpus},
    }  # fmt: skip
