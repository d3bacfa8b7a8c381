"""Why Slurm ends a job, from the controller's record and from the accounting, each of which may be missing."""

from nnlo_lib.core.batch_system import slurm_accounting
from nnlo_lib.core.batch_system.slurm_record import SlurmRecord
from nnlo_lib.core.batch_system.stop_decision import UNKNOWN_DECISION, StopDecision
from nnlo_lib.core.exit_reason import ExitReason

EXIT_REASONS: dict[str, ExitReason] = {
    "NODE_FAIL": "node failure", "BOOT_FAIL": "node failure", "TIMEOUT": "time limit", "DEADLINE": "time limit",
    "PREEMPTED": "preempted", "REQUEUED": "preempted", "OUT_OF_MEMORY": "out of memory", "CANCELLED": "canceled",
}  # fmt: skip
TIME_LIMIT_REASONS = ("TimeLimit", "DeadLine")


def slurm_exit_reason(job_id: str) -> ExitReason:
    """Return why the last run of the job that has ended did so; `killed` if that is unknown."""
    end = slurm_accounting.last_end(job_id) or _recorded_end(job_id)
    if end in EXIT_REASONS:
        return EXIT_REASONS[end]
    return "out of memory" if slurm_accounting.was_killed_for_memory(job_id) else "killed"


def slurm_stop_decision(job_id: str) -> StopDecision:
    """Return why slurmctld stops a job in which a process has received SIGTERM."""
    record = SlurmRecord.query(job_id)
    if record is None:
        return UNKNOWN_DECISION
    if record.state == "RUNNING":
        # Without preemption, `scancel --signal=TERM` has sent the signal.
        return StopDecision("preempted", True) if record.is_preempted else StopDecision("canceled")
    if record.is_requeued or record.state in ("PREEMPTED", "NODE_FAIL"):
        return StopDecision("preempted")
    if record.state in ("TIMEOUT", "DEADLINE") or record.fields.get("Reason") in TIME_LIMIT_REASONS:
        return StopDecision("time limit")
    # A job that is preempted for good and a job that is canceled in its grace time differ only in the accounting.
    preempted = record.is_preempted and slurm_accounting.last_end(job_id) != "CANCELLED"
    return StopDecision("preempted" if preempted else "canceled")


def _recorded_end(job_id: str) -> str:
    record = SlurmRecord.query(job_id)
    if record is None:
        return ""
    if record.is_live:
        # Slurm queues a job again after a preemption or a node failure, or because a user requests it.
        return "REQUEUED" if record.has_run_before or record.is_requeued else ""
    return record.state
