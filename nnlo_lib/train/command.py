"""Train as a command does: results in files, mistakes in sentences, the outcome in the exit status."""

import sys

from nnlo_lib.state.outcome import Outcome
from nnlo_lib.state.reason import YIELDED
from nnlo_lib.state.scheduler import Job
from nnlo_lib.train.attempt import Place, Wishes, attempt
from nnlo_lib.train.limit import Limit
from nnlo_lib.train.parting import part
from nnlo_lib.train.signals import Signals
from nnlo_lib.train.task import Task


def train(task: Task, wishes: Wishes) -> int:
    """Run the task; return 0 finished, 75 saved and stopped, 2 the user's mistake, 1 failed. Raises UserError, too."""
    signals, job = Signals(), Job.current()
    outcome = attempt(task, wishes, Place(job, Limit(wishes.minutes, job), signals))
    _say(outcome)
    if job and outcome.reason in YIELDED:
        part(wishes.on_preemption, job, outcome)
    return outcome.status


def _say(outcome: Outcome) -> None:
    if outcome.error:
        error = "" if outcome.reason in YIELDED else "error: "
        print(f"nnlo: {error}{outcome.error}", file=sys.stderr, flush=True)
