"""What a training under faults went through, and what came of it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nnlo_lib.chaos.comparison import differences
from nnlo_lib.config import Run
from nnlo_lib.config.validity import needs
from nnlo_lib.state.tally import Tally
from nnlo_lib.train.faults import Action, Fault
from nnlo_lib.train.task import Task
from nnlo_lib.verify.files import checkpoints, outputs
from nnlo_lib.verify.finding import Finding, failed, note, ok
from nnlo_lib.verify.finished import Finished
from nnlo_lib.verify.history import history
from nnlo_lib.verify.ledger import ledger

NAMES: dict[Action, str] = {
    "kill": "kill -9 of a rank",
    "kill_launcher": "kill -9 of the launcher",
    "term": "SIGTERM to a rank",
    "term_all": "SIGTERM to all ranks",
    "torn": "file or manifest cut short",
    "flipped": "bit of file or manifest changed",
    "full": "disk full at a checkpoint",
}


@dataclass(frozen=True)
class Times:
    """Seconds of the undisturbed training and of all attempts of the other."""

    calm: float
    wild: float


def table(faults: Sequence[Fault], task: Task, steps: int, times: Times) -> Iterator[str]:
    """Yield the lines of a table of what struck and what it cost."""
    tally = Tally.read(task.state, Finished.load(task.folder).summary)
    assert tally is not None, "a launcher keeps a record"
    kinds = Counter(fault.action for fault in faults)
    yield from (_line(NAMES[kind], f"{count:,}") for kind, count in kinds.most_common())
    yield _line("faults", f"{len(faults):,}")
    yield _line("attempts", f"{len(tally.attempts):,}")
    yield _line("steps", f"{steps:,}")
    yield _line("steps lost", f"{tally.lost_steps:,}")
    yield _line("seconds", f"{times.wild:,.0f}")
    yield _line("seconds undisturbed", f"{times.calm:,.0f}")
    yield _line("seconds per fault", f"{(times.wild - times.calm) / len(faults):.2f}")


def _line(name: str, figure: str) -> str:
    return f"  {name:<32}{figure:>8}"


def findings(wild: Task, calm: Task) -> Iterator[Finding]:
    """Check a training under faults, and compare it with the undisturbed one."""
    run = Finished.load(wild.folder)
    yield from outputs(run)
    yield from checkpoints(run)
    yield from history(run)
    yield from ledger(run)
    if reason := _chance(wild.run):
        yield note(f"bits cannot be compared with those of the undisturbed training: {reason}")
    elif found := differences(wild.folder, calm.folder):
        yield failed(f"differs from the undisturbed training: {', '.join(found)}")
    else:
        yield ok(
            "weights, history and the last state of every rank, optimizer included, are those of the undisturbed "
            "training, bit for bit"
        )


def _chance(run: Run) -> str:
    """Return why two trainings may differ, empty if they may not."""
    algorithm = run.algorithm
    if needs(algorithm).asynchronous and not getattr(algorithm, "synchronous", False):
        return f"the ranks of {algorithm.name} do not wait for each other"
    if getattr(algorithm, "reduction", "") == "fastest":
        return "with algorithm.reduction fastest, MPI chooses the order in which gradients are added"
    return ""
