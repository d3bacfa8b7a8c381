"""Parser for launchers' messages about lost ranks, in the combined output of launcher and ranks."""

import re
from collections import deque
from typing import Any

from nnlo_lib.state.out_of_memory import OUT_OF_MEMORY_PATTERN
from nnlo_lib.state.printed_failure import parse_failure

LAST_LINES = 20  # lines of the output that the log keeps if no rank recorded an error
# The frame and the sentences that Hydra (MPICH) prints when a rank has died, and the last line of Python's crash
# report, which names dozens of modules.
LAUNCHER_NOISE_PATTERN = re.compile(
    r"^=|^YOUR APPLICATION TERMINATED|^This typically refers|^Please see the FAQ|^Abort\(|^Extension modules: "
)
# `PID ... RUNNING AT` is a message of Hydra, `error: node: task 1: Killed` one of srun, and `process rank 1 with
# PID 7 on node n exited on signal 9` one of Open MPI.
KILLED_RANK_PATTERN = re.compile(
    r"PID (?P<pid>\d+) RUNNING AT (?P<host>\S+)"
    r"|error: (?P<node>\S+): tasks? (?P<task>\d+)[^:]*:(?: Exited with exit code (?P<status>\d+)| (?P<end>.+))?"
)
OPEN_MPI_PATTERN = re.compile(
    r"process rank (?P<task>\d+) with PID \d+ on node (?P<node>\S+) exited on signal (?P<code>\d+)"
)
EXIT_CODE_PATTERN = re.compile(r"EXIT CODE: (?P<code>\d+)")
# Open MPI's `Exit code:` is a status, in contrast to Hydra's.
EXIT_STATUS_PATTERN = re.compile(r"^\s*Exit code:\s+(?P<status>\d+)")
NODE_FAILURE_PATTERN = re.compile(r"^srun: error: Node failure on (?P<failed>\S+)")
PATTERNS = (
    KILLED_RANK_PATTERN, OPEN_MPI_PATTERN, EXIT_CODE_PATTERN, EXIT_STATUS_PATTERN, OUT_OF_MEMORY_PATTERN,
    NODE_FAILURE_PATTERN,
)  # fmt: skip


class LauncherOutput:
    """Facts about lost ranks, parsed from the output line by line.

    Attributes:
        facts: facts by key; the first value found is kept. Keys: `pid` and `host`, or `node` and `task`
            (rank), of a lost rank; `code`, the signal that killed it; `memory` if Slurm reported an
            out-of-memory kill; `failed`, the name of a failed node.
        last_lines: the last LAST_LINES lines, boilerplate included.
        failures: failures that ranks printed because they could not write them, by rank.
    """

    def __init__(self) -> None:
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.facts: dict[str, str] = {}
        self.failures: dict[str, dict[str, Any]] = {}

    def parse_line(self, line: str) -> bool:
        """Parse one line; return False if it is no text for users: launcher boilerplate, or a printed failure."""
        if failure := parse_failure(line):
            self.failures[str(failure["rank"])] = failure
            return False
        self.last_lines.append(line.rstrip())
        for pattern in PATTERNS:
            if found := pattern.search(line):
                # The first message names the cause; later ones may be about ranks that were then killed.
                self.facts = {key: value for key, value in found.groupdict().items() if value} | self.facts
        return not LAUNCHER_NOISE_PATTERN.search(line)
