"""The states of a Slurm job, and which fate each is."""

from nnlo_lib.cluster.fate import Fate

# squeue(1) and sacct(1), JOB STATE CODES, from Slurm 20.11 to 25.05.
FATE_OF_STATE: dict[str, Fate] = {
    "PENDING": Fate.PENDING,
    "CONFIGURING": Fate.PENDING,
    "POWER_UP_NODE": Fate.PENDING,
    "REQUEUED": Fate.PENDING,
    "REQUEUE_HOLD": Fate.PENDING,
    "REQUEUE_FED": Fate.PENDING,
    "RESV_DEL_HOLD": Fate.PENDING,
    "SPECIAL_EXIT": Fate.PENDING,
    "RUNNING": Fate.RUNNING,
    "COMPLETING": Fate.RUNNING,
    "EXPEDITING": Fate.RUNNING,
    "RESIZING": Fate.RUNNING,
    "SIGNALING": Fate.RUNNING,
    "STAGE_OUT": Fate.RUNNING,
    "STOPPED": Fate.RUNNING,
    "SUSPENDED": Fate.RUNNING,
    "UPDATE_DB": Fate.RUNNING,
    "COMPLETED": Fate.DONE,
    "FAILED": Fate.FAILED,
    "TIMEOUT": Fate.FAILED,
    "DEADLINE": Fate.FAILED,
    "OUT_OF_MEMORY": Fate.FAILED,
    # A job that Slurm queues again is PENDING under the same number; these states remain if Slurm does not.
    "PREEMPTED": Fate.INTERRUPTED,
    "NODE_FAIL": Fate.INTERRUPTED,
    "BOOT_FAIL": Fate.INTERRUPTED,
    "LAUNCH_FAILED": Fate.INTERRUPTED,
    "RECONFIG_FAIL": Fate.INTERRUPTED,
    "REVOKED": Fate.INTERRUPTED,  # of a federation: another cluster started the job
    "CANCELLED": Fate.CANCELED,
}


def fate_of_state(state: str) -> Fate:
    """Return the fate of a state; an unknown state, for example of a newer Slurm, is RUNNING."""
    # sacct writes `CANCELLED by 1000`, and marks a state that it cut off with `+`.
    word = (state.split() or [""])[0].rstrip("+")
    return FATE_OF_STATE.get(word, Fate.RUNNING)
