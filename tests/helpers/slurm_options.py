"""Properties in which one site's Slurm differs from another's, and the values that they give to slurm.conf."""

from dataclasses import dataclass
from typing import Literal

NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none"
SLURMDBD = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
# Path of munged's socket for clients of slurmdbd; with AuthInfo alone they use /run/munge.
AccountingStoragePass={folder}/munge.socket"""
OVER_MEMORY_KILL = """JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill"""


@dataclass(frozen=True)
class ClusterOptions:
    """Options of a temporary cluster; the defaults are a cluster with accounting that requeues jobs."""

    # run slurmdbd and MariaDB; without them, `sacct` and `sacctmgr` fail as on such sites
    accounting: bool = True
    job_requeue: bool = True  # Slurm may requeue jobs that do not request it or forbid it themselves
    preempt_mode: Literal["REQUEUE", "CANCEL"] = "REQUEUE"  # what happens to a preempted job
    min_job_age_s: int = 300  # seconds before slurmctld forgets a job that has ended
    grace_time_s: int = 60  # seconds between SIGTERM and SIGKILL at preemption in partition `graceful`
    over_memory_kill: bool = False  # Slurm itself kills steps that use more memory than requested
    # with accounting, jobs that a user may submit in account `limited`; None: no such account
    max_submit_jobs: int | None = None
    account: str = "nnlo"  # the user's default account
    low: str = "low"  # the default partition; jobs of `high` preempt its jobs
    graceful: str = "graceful"  # a partition with grace time; jobs of `high` preempt its jobs
    high: str = "high"  # the partition of urgent jobs
    short: str = "short"  # a partition with a time limit of one hour

    def template_values(self, folder: object, slurmdbd_port: int) -> dict[str, object]:
        """Return the values of the placeholders in the templates, for a cluster in a folder."""
        names = {key: getattr(self, key) for key in ("preempt_mode", "low", "graceful", "high", "short")}
        seconds = {key: getattr(self, key) for key in ("min_job_age_s", "grace_time_s")}
        accounting = SLURMDBD.format(folder=folder, port=slurmdbd_port) if self.accounting else NO_ACCOUNTING
        limits = "\nAccountingStorageEnforce=limits,qos" if self.max_submit_jobs else ""
        gather = OVER_MEMORY_KILL if self.over_memory_kill else "JobAcctGatherType=jobacct_gather/none"
        requeue = int(self.job_requeue)
        return names | seconds | {"accounting": accounting + limits, "gather": gather, "job_requeue": requeue}


# Sites with names of their own: a program that works on all three relies on none of these names and settings.
ACCOUNTING = ClusterOptions(over_memory_kill=True, max_submit_jobs=2, account="physics", low="batch")
PLAIN = ClusterOptions(accounting=False, min_job_age_s=30, low="compute")
CANCEL = ClusterOptions(
    job_requeue=False,
    preempt_mode="CANCEL",
    grace_time_s=25 * 60,
    account="guests",
    low="scavenge",
    high="owners",
)
