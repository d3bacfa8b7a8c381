"""Facts about the end of a launch, from which its outcome is derived."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nnlo_lib.launch.time_limit import TimeLimit
from nnlo_lib.state.out_of_memory import is_launch_out_of_memory

# srun prints the description of the signal, as strsignal(3) does.
SIGNALS_BY_DESCRIPTION = {signal.strsignal(number): number for number in signal.valid_signals()}


@dataclass(frozen=True)
class ExitFacts:
    """Facts about the end of a launch.

    Attributes:
        launcher_status: exit status of the launcher process (mpiexec, srun); negative: number of its signal.
        launcher_facts: facts parsed from the launcher's output, see LauncherOutput.
        first_exits: ranks that exited first.
        forwarded_signal: name of the first stop signal that this process received, or an empty string.
        oom_killed: whether the kernel's OOM killer was active during the launch.
        time_limit: time limit of the batch job.
        last_lines: last lines that the launcher and the ranks wrote.
        launcher: program and process of the launcher; empty if the only rank was started without one.
        lost_parent: process that had started ranks of this host and ended before them; empty if there is none.
        failures: failures that ranks printed because they could not write them, by rank.
    """

    launcher_status: int
    launcher_facts: Mapping[str, str]
    first_exits: list[str]
    forwarded_signal: str
    oom_killed: bool
    time_limit: TimeLimit
    last_lines: str = ""
    launcher: str = ""
    lost_parent: str = ""
    failures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the kernel or Slurm reported that a process was killed for its memory."""
        return is_launch_out_of_memory(self.oom_killed, self.launcher_facts)

    @property
    def launcher_signal(self) -> int:
        """Number of the signal that ended the launcher; 0 if it exited, or if there is none."""
        return -self.launcher_status if self.launcher and self.launcher_status < 0 else 0

    @property
    def rank_signal(self) -> int:
        """Number of the signal that ended the first rank, as far as the launcher reports it; else 0."""
        if "code" in self.launcher_facts:
            return int(self.launcher_facts["code"])
        if not self.launcher and self.launcher_status < 0:
            return -self.launcher_status
        words = self.launcher_facts.get("end", "").partition(" (")[0]
        return SIGNALS_BY_DESCRIPTION.get(words, 0)

    @property
    def rank_status(self) -> int | None:
        """Exit status of the first rank; None if a signal ended it."""
        if self.rank_signal or self.launcher_signal:
            return None
        return int(self.launcher_facts.get("status", self.launcher_status))
