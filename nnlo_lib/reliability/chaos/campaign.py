"""A training under random faults: started again after each, until all have struck, and then left in peace."""

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
    """steps: of the whole run; places: how often each rank reaches which place in it; patience: for one attempt."""

    task: Task
    launcher: str
    seed: int
    steps: int
    failpoint_counts: Sequence[Counter[str]]
    attempt_timeout_s: float
    injected_faults: list[InjectedFault] = field(default_factory=list)

    def run(self, faults: int, tell: Callable[[int], object]) -> None:
        """Let so many faults strike, and the training end; `tell` how many struck in each attempt.

        Raises UnfinishedError if an attempt does not end, or the last one, without faults, does not finish.
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
        """Draw the faults of one attempt: those that it survives, and one that ends it."""
        share = max(0, self.steps - read_progress(self.task.state)[2]) / self.steps / len(waiting)
        due: list[InjectedFault] = []
        for number in waiting:
            due.append(sample_fault(self.seed, number, self.failpoint_counts, share))
            if due[-1].action in FATAL_ACTIONS:
                break
        return due
