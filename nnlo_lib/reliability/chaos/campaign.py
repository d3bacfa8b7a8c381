"""A training under random faults: restarted until all faults have struck, then finished without faults."""

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
    """A training under faults.

    Attributes:
        task: the task to train.
        launcher: command that starts the ranks.
        seed: seed of the faults.
        steps: number of steps of the whole training.
        failpoint_counts: for each process, how often it reaches each failpoint in an undisturbed training.
        attempt_timeout_s: seconds that one attempt may take.
        injected_faults: faults that have struck.
    """

    task: Task
    launcher: str
    seed: int
    steps: int
    failpoint_counts: Sequence[Counter[str]]
    attempt_timeout_s: float
    injected_faults: list[InjectedFault] = field(default_factory=list)

    def run(self, faults: int, tell: Callable[[int], object]) -> None:
        """Restart the training until all faults have struck, then finish it without faults.

        Args:
            faults: number of faults.
            tell: called after each attempt under faults, with the number of faults that struck in it.

        Raises:
            UnfinishedError: if an attempt exceeds its time, or the last one, without faults, does not finish.
        """
        waiting = list(range(faults))
        while waiting:
            due = self._faults_for_attempt(waiting)
            run_faulty_attempt(self.task, self.launcher, due, self.attempt_timeout_s)
            hit = set(injected_faults(self.task.folder))
            self.injected_faults += [fault for fault in due if fault.number in hit]
            tell(len(waiting) - len(waiting := [number for number in waiting if number not in hit]))
        if run_faulty_attempt(self.task, self.launcher, [], self.attempt_timeout_s):
            raise UnfinishedError(
                f"{self.task.folder} cannot be finished after {faults} faults; see {self.task.paths.chaos_log.name} in it"
            )

    def _faults_for_attempt(self, waiting: Sequence[int]) -> list[InjectedFault]:
        """Return the faults of one attempt: faults that it survives, up to the first fault that ends it."""
        share = max(0, self.steps - read_progress(self.task.state)[2]) / self.steps / len(waiting)
        due: list[InjectedFault] = []
        for number in waiting:
            due.append(sample_fault(self.seed, number, self.failpoint_counts, share))
            if due[-1].action in FATAL_ACTIONS:
                break
        return due
