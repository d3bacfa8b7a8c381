"""Number of processes killed by the kernel's OOM killer."""

import re
from pathlib import Path

HOST_VMSTAT_FILE = Path("/proc/vmstat")
JOB_GROUP_PATTERN = re.compile(r"job_\d+")


def kernel_oom_kills() -> int:
    """Return the OOM kills in this process's control group, or on this host if the group has no count."""
    # The count of a group includes its subgroups; the count of the host, processes of other jobs and users.
    for path in (_own_group() / "memory.events", HOST_VMSTAT_FILE):
        if path.exists() and (found := re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)):
            return int(found[1])
    return 0


def _own_group() -> Path:
    # The line with the hierarchy number 0 is the group of control groups version 2.
    found = re.search(r"^0::/(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    return job_group(Path("/sys/fs/cgroup") / (found[1] if found else ""))


def job_group(group: Path) -> Path:
    """Return the control group of the Slurm job that contains a group, or the group itself outside of a job."""
    # The launcher and the ranks that srun starts are in different subgroups of the job's group.
    return next((each for each in (group, *group.parents) if JOB_GROUP_PATTERN.fullmatch(each.name)), group)
