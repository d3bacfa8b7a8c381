"""A training with random faults: restarted until all faults are injected, then finished without faults."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nnlo_lib.launch.crash_recovery import read_progress
from nnlo_lib.reliability.chaos.fault_sampler import FATAL_ACTIONS, sample_fault
from nnlo_lib.reliability.chaos.faulty_attempt import UnfinishedError, run_faulty_attempt
from nnlo_lib.train.fault_injection import InjectedFault, injected_faults
from nnlo_lib.train.task import Task


@dataclass
class FaultCampaign:
    """A training that is restarted while faults are injected.

    Attributes:
        task: the task to train.
        launcher: command that starts the ranks.
        seed: seed of the faults.
        steps: number of steps of the whole training.
        failpoint_counts: for each process, how often it reaches each failpoint in an undisturbed training.
        attempt_timeout_s: seconds that one attempt may take.
        injected_faults: faults that have been injected.
    """

    task: Task
    launcher: str
    seed: int
    steps: int
    failpoint_counts: Sequence[Counter[str]]
    attempt_timeout_s: float
    injected_faults: list[InjectedFault] = field(default_factory=list)

    def run(self, faults: int, report_injected: Callable[[int], object]) -> None:
        """Restart the training until all faults are injected, then finish it without faults.

        Args:
            faults: number of faults.
            report_injected: called after each attempt with faults, with the number of faults injected in it.

        Raises:
            UnfinishedError: if an attempt exceeds its time, or the last attempt (without faults) fails.
        """
        waiting = list(range(faults))
        while waiting:
            # A fault that is due but not reached stays in `waiting` and is drawn again for the next attempt,
            # from the same seed but with the share that then remains.
            due = self._faults_for_attempt(waiting)
            run_faulty_attempt(self.task, self.launcher, due, self.attempt_timeout_s)
            injected = set(injected_faults(self.task.folder))
            self.injected_faults += [fault for fault in due if fault.number in injected]
            report_injected(
                # Operands are evaluated from left to right: the first length is that before the assignment.
                len(waiting) - len(waiting := [number for number in waiting if number not in injected])
            )
        if run_faulty_attempt(self.task, self.launcher, [], self.attempt_timeout_s):
            raise UnfinishedError(
                f"{self.task.folder}: the last attempt after {faults} faults failed; see {self.task.paths.chaos_log}"
            )

    def _faults_for_attempt(self, waiting: Sequence[int]) -> list[InjectedFault]:
        """Return the faults of the next attempt: all faults up to the first one that ends the attempt."""
        # Each remaining fault gets an equal share of the remaining steps, which spreads the faults over the
        # training.
        share = max(0, self.steps - read_progress(self.task.state)[2]) / self.steps / len(waiting)
        due: list[InjectedFault] = []
        for number in waiting:
            due.append(sample_fault(self.seed, number, self.failpoint_counts, share))
            if due[-1].action in FATAL_ACTIONS:
                break
        return due
