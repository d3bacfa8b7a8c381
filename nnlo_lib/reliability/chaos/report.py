"""Report on a training with faults: faults, costs, and checks of the result."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nnlo_lib.config import Run
from nnlo_lib.core.text_format import table_lines
from nnlo_lib.reliability.chaos.bitwise_comparison import find_differences
from nnlo_lib.reliability.verify.files import check_checkpoints, check_outputs
from nnlo_lib.reliability.verify.finding import Finding, failed, note, ok
from nnlo_lib.reliability.verify.history import check_history
from nnlo_lib.reliability.verify.ledger import check_sample_ledger
from nnlo_lib.reliability.verify.run_folders import load_finished_run
from nnlo_lib.train.fault_injection import FaultAction, InjectedFault
from nnlo_lib.train.task import Task

ACTION_LABELS: dict[FaultAction, str] = {
    "kill": "kill -9 of a rank",
    "kill_launcher": "kill -9 of the launcher",
    "term": "SIGTERM to a rank",
    "term_all": "SIGTERM to all ranks",
    "truncate": "rank file or manifest truncated",
    "bitflip": "bit flip in rank file/manifest",
    "enospc": "disk full during a checkpoint",
}


@dataclass(frozen=True)
class CampaignSeconds:
    """Seconds of the undisturbed training, and of all attempts of the training with faults."""

    undisturbed: float
    with_faults: float


def campaign_table(
    faults: Sequence[InjectedFault], task: Task, steps: int, times: CampaignSeconds
) -> Iterator[str]:
    """Return the lines of a table of the faults and their costs.

    Args:
        faults: faults that were injected.
        task: the task trained with faults.
        steps: number of steps of the whole training.
        times: seconds of both trainings.
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
        ("seconds", f"{times.with_faults:,.0f}"),
        ("seconds undisturbed", f"{times.undisturbed:,.0f}"),
        ("seconds per fault", f"{(times.with_faults - times.undisturbed) / len(faults):.2f}"),
    ]
    return (f"  {line}" for line in table_lines(rows))


def check_faulted_run(faulted: Task, undisturbed: Task) -> Iterator[Finding]:
    """Check the training with faults, and compare it with the undisturbed training."""
    run = load_finished_run(faulted.folder)
    yield from check_outputs(run)
    yield from check_checkpoints(run)
    yield from check_history(run)
    yield from check_sample_ledger(run)
    # The checks above hold for every algorithm; bitwise equality is promised only for deterministic ones.
    if reason := _reason_not_deterministic(faulted.run):
        yield note(f"not compared bit for bit with the undisturbed training: {reason}")
    elif found := find_differences(faulted.folder, undisturbed.folder):
        yield failed(f"differs from the undisturbed training: {', '.join(found)}")
    else:
        yield ok(
            "weights, history and the last state of every rank, including its optimizer, equal the undisturbed "
            "training bit for bit"
        )


def _reason_not_deterministic(run: Run) -> str:
    """Return the reason why two trainings may differ, or an empty string if they must be equal."""
    algorithm = run.algorithm
    if algorithm.is_asynchronous:
        return f"the ranks of {algorithm.name} do not wait for each other"
    if not algorithm.sums_in_rank_order:
        return "with `algorithm.reduction: fastest`, MPI chooses the order in which gradients are added"
    return ""
