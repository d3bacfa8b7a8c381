"""Why Slurm ends a job, from the controller's record and from the accounting, each of which may be missing."""

from nnlo_lib.batch.job_states import reason_of_state
from nnlo_lib.core.batch_system.slurm_accounting import last_end
from nnlo_lib.core.batch_system.slurm_record import SlurmRecord
from nnlo_lib.core.batch_system.stop_decision import UNKNOWN_DECISION, StopDecision
from nnlo_lib.core.exit_reason import ExitReason

TIME_LIMIT_REASONS = ("TimeLimit", "DeadLine")


def slurm_exit_reason(job_id: str) -> ExitReason:
    """Return why the last run of the job that has ended did so; `killed` if its state does not tell it."""
    return reason_of_state(last_end(job_id) or _recorded_end(job_id)) or "killed"


def slurm_stop_decision(job_id: str) -> StopDecision:
    """Return why slurmctld stops a job in which a process has received SIGTERM."""
    record = SlurmRecord.query(job_id)
    if record is None:
        return UNKNOWN_DECISION
    if record.state == "RUNNING":
        # Without preemption, `scancel --signal=TERM` has sent the signal.
        return StopDecision("preempted", True) if record.is_preempted else StopDecision("canceled")
    reason = reason_of_state(record.state)
    if record.is_requeued or reason in ("preempted", "node failure"):
        return StopDecision("preempted")
    if reason == "time limit" or record.fields.get("Reason") in TIME_LIMIT_REASONS:
        return StopDecision("time limit")
    # A job that is preempted for good and a job that is canceled in its grace time differ only in the accounting.
    preempted = record.is_preempted and reason_of_state(last_end(job_id)) != "canceled"
    return StopDecision("preempted" if preempted else "canceled")


def _recorded_end(job_id: str) -> str:
    record = SlurmRecord.query(job_id)
    if record is None:
        return ""
    if record.is_live:
        # Slurm queues a job again after a preemption or a node failure, or because a user requests it.
        return "REQUEUED" if record.has_run_before or record.is_requeued else ""
    return record.state
