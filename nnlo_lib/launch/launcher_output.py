"""What launchers say of the ranks they lose, among the ranks' own words."""

import re

LAUNCHER_NOISE_PATTERN = re.compile(
    r"^=|^YOUR APPLICATION TERMINATED|^This typically refers|^Please see the FAQ|^Abort\("
)
KILLED_RANK_PATTERN = re.compile(
    r"PID (?P<pid>\d+) RUNNING AT (?P<host>\S+)|error: (?P<node>\S+): tasks? (?P<task>\d+)"
)
EXIT_CODE_PATTERN = re.compile(r"EXIT CODE: (?P<code>\d+)")
OUT_OF_MEMORY_PATTERN = re.compile(
    r"^(?:slurmstepd|srun): .*(?P<memory>oom.?kill|out.?of.?memory)", re.IGNORECASE
)
NODE_FAILURE_PATTERN = re.compile(r"^srun: error: Node failure on (?P<failed>\S+)")


class LauncherOutput:
    """told: pid, host, node, task, code (signal) of who was lost, memory if there was too little of it, failed nodes."""

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}

    def parse_line(self, line: str) -> bool:
        """Take in what a line tells; say whether it is of interest to people."""
        for pattern in (KILLED_RANK_PATTERN, EXIT_CODE_PATTERN, OUT_OF_MEMORY_PATTERN, NODE_FAILURE_PATTERN):
            if found := pattern.search(line):
                self.facts = {key: value for key, value in found.groupdict().items() if value} | self.facts
        return not LAUNCHER_NOISE_PATTERN.search(line)
