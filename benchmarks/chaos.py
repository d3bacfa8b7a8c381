"""A training with random faults, compared bit for bit with the same training without faults: `python benchmarks/chaos.py FILE`.

The faults are a function of the seed: action, rank, failpoint and time. The training is restarted until all of them
are injected, and then finished without faults. The launcher of each attempt runs in its own process, as in a batch
job.
"""

import argparse
import atexit
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from nnlo_lib.algorithms.factory import roles
from nnlo_lib.core.errors import UserError, exit_on_user_error
from nnlo_lib.core.logging_setup import progress_bar
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.core.text_format import table_lines
from nnlo_lib.launch.attempt import LaunchOptions, train_task
from nnlo_lib.launch.attempt_recovery import read_progress
from nnlo_lib.preflight.preflight import load_and_check
from nnlo_lib.reliability.file_checks import check_checkpoints, check_outputs, check_sample_ledger
from nnlo_lib.reliability.findings import Finding, failed, load_finished_run, note, ok
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.single_run import prepare_task

# The helpers belong to the tests, which are not installed with the package.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.chaos_report import find_differences
from helpers.fault_injection import FaultAction, FaultPlan, InjectedFault, injected_faults, reached_failpoints

ACTION_WEIGHTS: dict[FaultAction, int] = {
    "kill": 10, "term": 3, "term_all": 2, "kill_launcher": 2, "truncate": 2, "bitflip": 1, "enospc": 2,
}  # fmt: skip
ACTION_LABELS: dict[FaultAction, str] = {
    "kill": "kill -9 of a rank",
    "kill_launcher": "kill -9 of the launcher",
    "term": "SIGTERM to a rank",
    "term_all": "SIGTERM to all ranks",
    "truncate": "rank file or manifest truncated",
    "bitflip": "bit flip in rank file/manifest",
    "enospc": "disk full during a checkpoint",
}
# Disk faults need a checkpoint file: at these failpoints, the rank has written its file of a checkpoint.
DISK_FAULT_FAILPOINTS: dict[FaultAction, set[str]] = {
    "truncate": {"checkpoint.written", "checkpoint.complete", "checkpoint.unnamed", "checkpoint.published"},
    "bitflip": {"checkpoint.written", "checkpoint.complete", "checkpoint.unnamed", "checkpoint.published"},
    "enospc": {"checkpoint.written"},
}
# A full disk costs only the checkpoint; training continues. Every other fault ends the attempt.
FATAL_ACTIONS = ACTION_WEIGHTS.keys() - {"enospc"}
CHECKPOINTS_PER_FAULT = 4  # approximate number of checkpoints between two faults
ATTEMPT_EXTRA_TIMEOUT_S = 300.0  # seconds for an attempt, added to three times the undisturbed training


# Of `--quick`: two faults of a small training.
QUICK = """\
name: chaos
data: digits
model: {name: simplemlp, args: {hidden: 16, layers: 1}}
train: {epochs: 4, batch_size: 64}
parallel: {ranks: 2}
"""


class UnfinishedError(Exception):
    """A training did not finish; the message gives the reason."""


def run_twice(undisturbed: Task, faulted: Task, launcher: str, seed: int, faults: int) -> int:
    """Train a task undisturbed, then with random faults in another folder; print a report.

    Both task folders are emptied first.

    Returns:
        1 if the training with faults does not finish or a check fails, else 0.

    Raises:
        UserError: if the training without faults does not finish.
    """
    for task in (undisturbed, faulted):
        shutil.rmtree(task.folder, ignore_errors=True)
    # Both tasks have the same checkpoint interval, because the failpoints of the undisturbed training
    # determine where faults are injected.
    undisturbed, faulted = (_with_frequent_checkpoints(task, faults) for task in (undisturbed, faulted))
    started = time.monotonic()
    if run_faulty_attempt(undisturbed, launcher, [], None):
        raise UserError(
            f"{undisturbed.folder}: the training without faults failed; see {chaos_log(undisturbed)}"
        )
    undisturbed_s = time.monotonic() - started
    # A training saves a checkpoint when it ends, so the newest checkpoint holds the last step.
    steps = read_progress(undisturbed.state)[2]
    timeout_s = ATTEMPT_EXTRA_TIMEOUT_S + 3 * undisturbed_s
    campaign = FaultCampaign(faulted, launcher, seed, steps, _failpoint_counts(undisturbed), timeout_s)
    started = time.monotonic()
    try:
        with progress_bar(f"chaos, seed {seed}", faults, "faults") as show:
            campaign.run(faults, show)
    except UnfinishedError as error:
        print(f"FAILED: {error}")
        return 1
    findings = list(check_faulted_run(faulted, undisturbed))
    faulted_s = time.monotonic() - started
    table = campaign_table(campaign.injected_faults, faulted, steps, undisturbed_s, faulted_s)
    print(*table, *findings, sep="\n")
    return int(any(finding.status == "FAILED" for finding in findings))


def _with_frequent_checkpoints(task: Task, faults: int) -> Task:
    """Return the task with about CHECKPOINTS_PER_FAULT checkpoints per fault.

    A run that sets its checkpoint interval in steps keeps it.
    """
    if task.run.checkpoint.steps:
        return task
    workers = roles(task.run, task.run.parallel.ranks).count("worker")
    steps = TrainingData(task, workers).loader(0).steps_per_epoch * task.run.train.epochs
    # There are `faults + 1` intervals between the start, the faults and the end.
    every = f"{max(1, steps // (CHECKPOINTS_PER_FAULT * (faults + 1)))} steps"
    checkpoint = task.run.checkpoint.model_copy(update={"every": every})
    return replace(task, run=task.run.model_copy(update={"checkpoint": checkpoint}))


def _failpoint_counts(task: Task) -> list[Counter[str]]:
    """Return the failpoint counts of each process of a finished training; simulated ranks share a process."""
    parallel = task.run.parallel
    return [
        reached_failpoints(task.folder, rank)
        for rank in range(1 if parallel.transport == "simulated" else parallel.ranks)
    ]


@dataclass
class FaultCampaign:
    """A training that is restarted while faults are injected.

    Attributes:
        steps: number of steps of the whole training.
        failpoint_counts: for each process, how often it reaches each failpoint in an undisturbed training.
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
            report_injected: called after each attempt with faults, with the number of faults injected so far.

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
            waiting = [number for number in waiting if number not in injected]
            report_injected(faults - len(waiting))
        if run_faulty_attempt(self.task, self.launcher, [], self.attempt_timeout_s):
            raise UnfinishedError(
                f"{self.task.folder}: the last attempt after {faults} faults failed; see {chaos_log(self.task)}"
            )

    def _faults_for_attempt(self, waiting: Sequence[int]) -> list[InjectedFault]:
        """Return the faults of the next attempt: all faults up to the first one that ends the attempt."""
        # Each remaining fault gets an equal share of the remaining steps: the faults spread over the training.
        share = max(0, self.steps - read_progress(self.task.state)[2]) / self.steps / len(waiting)
        due: list[InjectedFault] = []
        for number in waiting:
            due.append(sample_fault(self.seed, number, self.failpoint_counts, share))
            if due[-1].action in FATAL_ACTIONS:
                break
        return due


def sample_fault(seed: int, number: int, places: Sequence[Counter[str]], share: float) -> InjectedFault:
    """Return a random fault.

    Args:
        places: for each process, how often it reaches each failpoint in an undisturbed training.
        share: share of the training within which the fault is injected. If 0, the training is at its end and
            writes no more checkpoints; disk faults are then replaced by `kill`.
    """
    generator = Random(derive_seed(seed, "chaos", number))
    rank = generator.randrange(len(places))
    counts = places[rank]
    action = generator.choices(list(ACTION_WEIGHTS), list(ACTION_WEIGHTS.values()))[0]
    if not share and action in DISK_FAULT_FAILPOINTS:
        action = "kill"
    # Sorted, because the order of a set of strings differs between processes (PYTHONHASHSEED).
    place = generator.choice(sorted(counts.keys() & DISK_FAULT_FAILPOINTS.get(action, counts.keys())))
    count = generator.randint(1, max(1, int(share * counts[place])))
    # Other faults do not depend on their failpoint: `within` ensures that they are injected even if this
    # attempt reaches it too rarely.
    within = None if action in DISK_FAULT_FAILPOINTS else max(1, int(share * counts.total()))
    return InjectedFault(number, place, rank, count, action, within)


def run_faulty_attempt(
    task: Task, launcher: str, faults: Sequence[InjectedFault], patience: float | None
) -> int:
    """Make one attempt; return the exit status of the launcher, or minus the number of a signal that killed it.

    Args:
        patience: seconds that the attempt may take; None waits without limit.

    Raises:
        UnfinishedError: if the attempt takes longer than `patience`.
    """
    task.folder.mkdir(parents=True, exist_ok=True)
    process = multiprocessing.get_context("fork").Process(
        target=_train_with_faults, args=(task, launcher, faults)
    )
    process.start()
    process.join(patience)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise UnfinishedError(
            f"{task.folder}: an attempt took longer than {patience:.0f} s, with {faults}; see {chaos_log(task)}"
        )
    return process.exitcode


def _train_with_faults(task: Task, launcher: str, faults: Sequence[InjectedFault]) -> None:
    with chaos_log(task).open("a") as file:
        # The file descriptors are replaced, because ranks inherit them, but not Python's sys.stdout.
        for stream in (sys.stdout.fileno(), sys.stderr.fileno()):
            os.dup2(file.fileno(), stream)
    # The PID is that of this process, the launcher, which `kill_launcher` and `term_all` signal.
    os.environ |= FaultPlan(task.folder, os.getpid(), list(faults)).variables
    sys.exit(exit_on_user_error(lambda: train_task(task, LaunchOptions(launcher)).exit_status)())


def chaos_log(task: Task) -> Path:
    """Return the file with the output of all attempts at a task."""
    return task.folder / "said.txt"


def campaign_table(
    faults: Sequence[InjectedFault], task: Task, steps: int, undisturbed_s: float, faulted_s: float
) -> Iterator[str]:
    """Return the lines of a table of the injected faults and their costs.

    `steps`: of the whole training; `faulted_s`: seconds of all attempts with faults, and of the checks after them.
    """
    tally = load_finished_run(task.folder).attempt_statistics
    assert tally is not None, "the launcher records every attempt"
    kinds = Counter(fault.action for fault in faults)
    rows = [
        *((ACTION_LABELS[kind], f"{count:,}") for kind, count in kinds.most_common()),
        ("faults", f"{len(faults):,}"),
        ("attempts", f"{len(tally.attempts):,}"),
        ("steps", f"{steps:,}"),
        ("steps lost", f"{tally.lost_steps:,}"),
        ("seconds", f"{faulted_s:,.0f}"),
        ("seconds undisturbed", f"{undisturbed_s:,.0f}"),
        ("seconds per fault", f"{(faulted_s - undisturbed_s) / len(faults):.2f}"),
    ]
    return (f"  {line}" for line in table_lines(rows))


def check_faulted_run(faulted: Task, undisturbed: Task) -> Iterator[Finding]:
    """Check the training with faults, and compare it with the undisturbed training."""
    run = load_finished_run(faulted.folder)
    yield from check_outputs(run)
    yield from check_checkpoints(run)
    yield from check_sample_ledger(run)
    # The checks above hold for every algorithm; bitwise equality is promised only for deterministic ones.
    algorithm, reason = faulted.run.algorithm, ""
    if algorithm.is_asynchronous:
        reason = f"the ranks of {algorithm.name} do not wait for each other"
    elif not algorithm.sums_in_rank_order:
        reason = "with `algorithm.reduction: fastest`, MPI chooses the order in which gradients are added"
    if reason:
        yield note(f"not compared bit for bit with the undisturbed training: {reason}")
    elif found := find_differences(faulted.folder, undisturbed.folder):
        yield failed(f"differs from the undisturbed training: {', '.join(found)}")
    else:
        yield ok(
            "weights, history and the last state of every rank, including its optimizer, equal the undisturbed "
            "training bit for bit"
        )


def main() -> int:
    """Train a run of an experiment twice; return 1 if the training with faults does not finish or a check of its result fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="experiment file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set a key; may be repeated"
    )
    parser.add_argument("--run", help="name of the run in `runs:`; default: the first run")
    parser.add_argument("--faults", type=int, default=20, help="number of faults; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the faults; default: %(default)s")
    parser.add_argument(
        "--launcher", default="mpiexec", help="command that starts the ranks; default: %(default)s"
    )
    parser.add_argument("--quick", action="store_true", help="two faults of a small training of the digits")
    options = parser.parse_args()
    if options.faults < 1:
        raise UserError(f"--faults: must be at least 1, not {options.faults}")
    if options.quick:
        os.chdir(folder := tempfile.mkdtemp(prefix="chaos-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        options.file, options.faults = Path("chaos.yaml"), 2
        options.file.write_text(QUICK)
    elif options.file is None:
        raise UserError("file: missing; pass an experiment file, or --quick")
    experiment = load_and_check(options.file, options.set)
    name = options.run or next(iter(experiment.variants))
    undisturbed, faulted = (
        prepare_task(experiment, name, experiment.seeds[0], None, f"{experiment.name}-{suffix}")
        for suffix in ("undisturbed", "chaos")
    )
    return run_twice(undisturbed, faulted, options.launcher, options.seed, options.faults)


if __name__ == "__main__":
    sys.exit(exit_on_user_error(main)())
