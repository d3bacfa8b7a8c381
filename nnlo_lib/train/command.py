"""Train as a command does: results in files, mistakes in sentences, the outcome in the exit status."""

import sys

from nnlo_lib.train.launch import PREEMPTED, PreemptedError, TrainingFailedError, launch
from nnlo_lib.train.task import Task


def train(task: Task, launcher: str, minutes: float | None = None) -> int:
    """Run the task; return 0 finished, 75 saved and stopped, 1 failed. Raises UserError for the user's mistake."""
    try:
        launch(task, launcher, minutes)
    except PreemptedError as error:
        print(f"nnlo: {error}", file=sys.stderr)
        return PREEMPTED
    except TrainingFailedError as error:
        print(f"nnlo: error: {error}", file=sys.stderr)
        return 1
    return 0
