"""What launchers say of the ranks they lose, among the ranks' own words."""

import re

BANNER = re.compile(r"^=|^YOUR APPLICATION TERMINATED|^This typically refers|^Please see the FAQ|^Abort\(")
KILLED = re.compile(r"PID (?P<pid>\d+) RUNNING AT (?P<host>\S+)|error: (?P<node>\S+): tasks? (?P<task>\d+)")
SIGNAL = re.compile(r"EXIT CODE: (?P<code>\d+)")
MEMORY = re.compile(r"^(?:slurmstepd|srun): .*(?P<memory>oom.?kill|out.?of.?memory)", re.IGNORECASE)
NODE = re.compile(r"^srun: error: Node failure on (?P<failed>\S+)")


class Hints:
    """told: pid, host, node, task, code (signal) of who was lost, memory if there was too little of it, failed nodes."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}

    def hear(self, line: str) -> bool:
        """Take in what a line tells; say whether it is of interest to people."""
        for pattern in (KILLED, SIGNAL, MEMORY, NODE):
            if found := pattern.search(line):
                self.told = {key: value for key, value in found.groupdict().items() if value} | self.told
        return not BANNER.search(line)
