"""What prevents MPI from starting ranks on this host, before and after a launch, in words with a remedy."""

import shlex
import shutil
from collections.abc import Mapping

from nnlo_lib.config.resources import RunResources
from nnlo_lib.core.batch_system.scheduler_query import request_scheduler
from nnlo_lib.core.errors import UserError
from nnlo_lib.launch.launcher_command import LauncherCommand
from nnlo_lib.launch.lost_ranks import SHARED_MEMORY_FOLDER, shared_memory_text
from nnlo_lib.train.task import Task

# With one of these, mpiexec does not ask srun to start its proxies.
BOOTSTRAP_VARIABLES = "HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP"
BOOTSTRAP_OPTIONS = {"-launcher", "-bootstrap", "--launcher", "--bootstrap"}
DEAD_ALLOCATIONS = {  # what scontrol says, and what it means
    "Invalid job id": "Slurm does not know this job (any more), in which mpiexec would start the ranks",
    "Could not establish a configuration source": "this host belongs to no cluster of Slurm, whose srun would start the ranks",
}
# MPICH 5.0.2 started 2 ranks in 4 MB and not in 2 MB, 4 ranks in 6 MB and not in 4 MB.
SHARED_MEMORY_PER_RANK_BYTES = 3 << 19


def refuse_dead_allocation(command: LauncherCommand, environment: Mapping[str, str]) -> None:
    """Raise UserError if mpiexec would start the ranks by srun in a Slurm job that this process is not in.

    mpiexec then waits for ever. Variables of a job stay in a shell that the job has started, or in a copied environment.
    """
    number, words = environment.get("SLURM_JOB_ID", ""), set(shlex.split(command.text))
    chosen = words & BOOTSTRAP_OPTIONS or any(environment.get(name) for name in BOOTSTRAP_VARIABLES)
    if not number or chosen or not command.is_hydra:
        return
    if not shutil.which("srun", path=environment.get("PATH")):
        problem = "this host has no srun, by which mpiexec starts ranks in a job of Slurm"
    else:
        # A controller that does not answer now is no reason to refuse a job that may be alive.
        answer = request_scheduler("scontrol", "show", "job", number)
        problem = next((problem for words, problem in DEAD_ALLOCATIONS.items() if words in answer), "")
    if not problem:
        return
    raise UserError(
        f"SLURM_JOB_ID is {number}, but {problem}: `unset SLURM_JOB_ID SLURM_JOBID` and run the same command again, or set "
        "HYDRA_LAUNCHER=fork to start the ranks on this host"
    )


def shared_memory_problem(task: Task) -> str:
    """Return why MPI could not connect ranks in shared memory, or an empty string if there is enough of it."""
    ranks = RunResources(task.run).processes
    try:
        free = shutil.disk_usage(SHARED_MEMORY_FOLDER).free
    except OSError:
        free = 0
    if ranks == 1 or free >= ranks * SHARED_MEMORY_PER_RANK_BYTES:
        return ""
    return (
        f"no rank started: {shared_memory_text()}; enlarge it, for example by `docker run --shm-size=1g` or "
        f"`mount -o remount,size=1g {SHARED_MEMORY_FOLDER}`"
    )
