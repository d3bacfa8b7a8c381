"""Number of processes killed by the kernel's OOM killer."""

import re
from pathlib import Path

HOST_VMSTAT_FILE = Path("/proc/vmstat")


def kernel_oom_kills() -> int:
    """Return the OOM kills in this process's control group, or on this host if the group has no count."""
    # The count of the host includes processes of other jobs and users.
    for path in (_own_group() / "memory.events", HOST_VMSTAT_FILE):
        if path.exists() and (found := re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)):
            return int(found[1])
    return 0


def _own_group() -> Path:
    # The line with the hierarchy number 0 is the group of control groups version 2.
    found = re.search(r"^0::/(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    return Path("/sys/fs/cgroup") / (found[1] if found else "")
