"""Train as a command does: results in files, mistakes in sentences, the outcome in the exit status."""

from nnlo_lib.launch.attempt import Place, Wishes, attempt
from nnlo_lib.launch.limit import Limit
from nnlo_lib.launch.parting import part
from nnlo_lib.launch.signals import Signals
from nnlo_lib.state.outcome import Outcome
from nnlo_lib.state.reason import YIELDED
from nnlo_lib.state.scheduler import Job
from nnlo_lib.state.speech import say
from nnlo_lib.train.task import Task


def train(task: Task, wishes: Wishes) -> int:
    """Run the task; return 0 finished, 75 saved and stopped, 2 the user's mistake, 1 failed. Raises UserError, too."""
    return attempted(task, wishes).status


def attempted(task: Task, wishes: Wishes) -> Outcome:
    """Run the task, tell people how it ended, and part from the scheduler as wished. Raises UserError."""
    signals, job = Signals(), Job.current()
    outcome = attempt(task, wishes, Place(job, Limit(wishes.minutes, job), signals))
    if outcome.error:
        say(outcome.error if outcome.reason in YIELDED else f"error: {outcome.error}")
    if job and outcome.reason in YIELDED:
        part(wishes.on_preemption, wishes.requeue, job, outcome)
    return outcome
