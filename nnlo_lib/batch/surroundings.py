"""Variables of a site or of a surrounding session that change jobs: INPUT ENVIRONMENT VARIABLES of sbatch(1) and srun(1)."""

import os
import re
from collections.abc import Mapping, MutableMapping

from nnlo_lib.batch.scheduler_query import MISLEADING_VARIABLE, query_scheduler

# Left out is what each job says itself: name, output, time, memory, requeue and exported variables.
_OF_SBATCH = (
    "ACCOUNT BATCH CLUSTERS CONSTRAINT CONTAINER CONTAINER_ID CORE_SPEC CPUS_PER_GPU DELAY_BOOT DISTRIBUTION EXCLUSIVE GET_USER_ENV "
    "GPU_BIND GPU_FREQ GPUS GPUS_PER_NODE GPUS_PER_TASK GRES GRES_FLAGS HINT MEM_BIND NETWORK NO_KILL OPEN_MODE OVERCOMMIT PARTITION "
    "POWER PROFILE QOS REQ_SWITCH RESERVATION SEGMENT_SIZE SIGNAL SPREAD_JOB THREADS_PER_CORE THREAD_SPEC TRES_BIND TRES_PER_TASK "
    "USE_MIN_NODES WAIT4SWITCH WAIT_ALL_NODES WCKEY"
)
SITE_VARIABLES = {"SLURM_CLUSTERS"} | {f"SBATCH_{name}" for name in _OF_SBATCH.split()}
EXPECTED_VARIABLES = (
    "SBATCH_ACCOUNT",
    "SBATCH_PARTITION",
)  # the profile reads them, and a refusal names them
_OF_USER = {"SLURM_CONF", "SLURM_CLUSTERS"}  # of Slurm's own prefix; Slurm does not set them in a job
# srun takes them for options. Without them, a step has the memory and the GPUs of its job, and the environment of srun.
_STEP_MEMORY_AND_EXPORT = re.compile(r"SLURM_MEM_PER_(CPU|GPU|NODE)|(SLURM|SRUN)_EXPORT_ENV")
_STEP_BINDING = re.compile(r"SLURM_(CPU|MEM)_BIND\w*")
_STEP_GPUS = re.compile(r"SLURM_(GPUS(_PER_(NODE|SOCKET|TASK))?|(CPUS|NTASKS)_PER_GPU|GRES|TRES_PER_TASK)")


def variables_that_change_jobs(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change each job that this process would submit."""
    return {name: environment[name] for name in sorted(SITE_VARIABLES & environment.keys())}


def unexpected_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which each job asks for more than the experiment does."""
    found = variables_that_change_jobs(environment)
    return {name: value for name, value in found.items() if name not in EXPECTED_VARIABLES}


def sentence_about_variables(environment: Mapping[str, str]) -> str:
    """Return a warning about unexpected variables, or an empty string."""
    found = ", ".join(f"{name}={value}" for name, value in unexpected_variables(environment).items())
    return f"each job also gets {found} of the environment; unset what is not meant for it" if found else ""


def leave_surrounding_job(environment: MutableMapping[str, str] = os.environ) -> dict[str, str]:
    """Remove variables of the job around this process, which sbatch would pass on, and misleading ones; return them."""
    return {
        name: environment.pop(name)
        for name in list(environment)
        if (name.startswith(("SLURM_", "SRUN_")) and name not in _OF_USER)
        or MISLEADING_VARIABLE.fullmatch(name)
    }


def step_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which srun, also below mpiexec, starts the ranks in the job of this process.

    A job inherits variables of the session that submitted it: requests of another job, and the binding of another step.
    """
    if not (number := environment.get("SLURM_JOB_ID")):
        return dict(environment)
    dropped = [_STEP_MEMORY_AND_EXPORT]
    if "SLURM_CPU_BIND_LIST" in environment:  # srun sets it; users set SLURM_CPU_BIND
        dropped.append(_STEP_BINDING)
    if any(map(_STEP_GPUS.fullmatch, environment)):
        shown = query_scheduler("scontrol", "show", "job", number)
        dropped += [] if re.search(r"[:/=]gpu", shown) or not shown else [_STEP_GPUS]
    kept = {k: v for k, v in environment.items() if not any(each.fullmatch(k) for each in dropped)}
    # The steps of a job share its memory: the first would else get all of it, and the second would wait for the end of the first.
    return kept | {"SLURM_MEM_PER_NODE": "0"}
