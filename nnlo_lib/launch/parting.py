"""What a launcher does after its ranks have saved and stopped, so that the scheduler starts the job again."""

import time
from collections.abc import Callable
from typing import Literal, get_args

from nnlo_lib.state.outcome import Outcome
from nnlo_lib.state.scheduler import Job
from nnlo_lib.state.speech import say

Policy = Literal["wait", "requeue", "exit"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
PATIENCE = 600  # seconds


def part(policy: Policy, requeue: Callable[[Job], str], job: Job, outcome: Outcome) -> None:
    """Wait to be requeued, for a while, as a job that exits in its grace time has failed; or ask for it first.

    Who was sent TERM needs not ask: the scheduler requeues the job, or a person has cancelled it.
    """
    if policy == "requeue" and outcome.signal != "SIGTERM" and (refused := requeue(job)):
        say(f"warning: job {job.number} could not be requeued: {refused}")
    elif policy != "exit":
        say(f"waiting for job {job.number} to be requeued")
        time.sleep(PATIENCE)
