"""Parser for launchers' messages about lost ranks, in the combined output of launcher and ranks."""

import re
from collections import deque

LAST_LINES = 20  # lines of the output that the log keeps if no rank recorded an error
# The frame and the sentences that Hydra (MPICH) prints when a rank has died.
LAUNCHER_NOISE_PATTERN = re.compile(
    r"^=|^YOUR APPLICATION TERMINATED|^This typically refers|^Please see the FAQ|^Abort\("
)
# `PID ... RUNNING AT` is a message of Hydra, `error: node: task 1: Killed` one of srun.
KILLED_RANK_PATTERN = re.compile(
    r"PID (?P<pid>\d+) RUNNING AT (?P<host>\S+)|error: (?P<node>\S+): tasks? (?P<task>\d+)"
)
EXIT_CODE_PATTERN = re.compile(r"EXIT CODE: (?P<code>\d+)")
# Only lines of Slurm itself: the ranks write to the same output.
OUT_OF_MEMORY_PATTERN = re.compile(
    r"^(?:slurmstepd|srun)[\w.-]*: .*(?P<memory>oom.?kill|out.?of.?memory|exceeded (?:job |step )?memory limit)",
    re.IGNORECASE,
)
NODE_FAILURE_PATTERN = re.compile(r"^srun: error: Node failure on (?P<failed>\S+)")


class LauncherOutput:
    """Facts about lost ranks, parsed from the output line by line.

    Attributes:
        facts: facts by key; the first value found is kept. Keys: `pid` and `host`, or `node` and `task`
            (rank), of a lost rank; `code`, the signal that killed it; `memory` if Slurm reported an
            out-of-memory kill; `failed`, the name of a failed node.
        last_lines: the last LAST_LINES lines, boilerplate included.
    """

    def __init__(self) -> None:
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.facts: dict[str, str] = {}

    def parse_line(self, line: str) -> bool:
        """Parse one line; return False if it is launcher boilerplate that users need not see."""
        self.last_lines.append(line.rstrip())
        for pattern in (KILLED_RANK_PATTERN, EXIT_CODE_PATTERN, OUT_OF_MEMORY_PATTERN, NODE_FAILURE_PATTERN):
            if found := pattern.search(line):
                # The first message names the cause; later ones may be about ranks that were then killed.
                self.facts = {key: value for key, value in found.groupdict().items() if value} | self.facts
        return not LAUNCHER_NOISE_PATTERN.search(line)
