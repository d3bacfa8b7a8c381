"""Leaves as jobs of Slurm, or of this machine where there is none, by submitit and without Snakemake."""

import time
from pathlib import Path

from nnlo_lib.config import Experiment
from nnlo_lib.errors import UserError
from nnlo_lib.launch.signals import Signals
from nnlo_lib.search.trial import Leaf
from nnlo_lib.state.retries import raised
from nnlo_lib.state.speech import say
from nnlo_lib.tune.config_file import read_config
from nnlo_lib.tune.home_queue import HomeQueue
from nnlo_lib.tune.leaf_job import LeafJob
from nnlo_lib.tune.queue import Queue, log_of
from nnlo_lib.tune.seats import tell_who_waits
from nnlo_lib.tune.slurm_queue import SlurmQueue, slurm_is_here
from nnlo_lib.tune.ticket import Ticket
from nnlo_lib.tune.trial_run import leaf_run
from nnlo_lib.tune.tries import Tries

GLANCE = 0.2  # seconds between two looks for results


class Submitit:
    """Train leaves as jobs of a queue; those that a driver before this one has submitted are found again."""

    def __init__(self, folder: Path, launcher: str, signals: Signals) -> None:
        self._folder, self._signals = folder, signals
        self._experiment = read_config(folder)
        self._queue = _queue(folder, self._experiment, launcher)
        self._jobs: dict[Leaf, Ticket] = {}
        self._tries = Tries(folder)
        self._looked, self._missed = time.monotonic(), set[Ticket]()

    def start(self, leaf: Leaf) -> None:
        """Queue a job for a leaf that has none."""
        if found := self._queue.find(leaf):
            say(f"trial {leaf.trial}, fold {leaf.fold} goes on as job {found.job}")
            self._tries.begin(leaf, lives=True)
            self._keep(leaf, found)
        else:
            self._submit(leaf)

    def wait(self) -> bool:
        """Return when a result is there; False after a signal. Raises UserError if a leaf cannot be trained."""
        while not self._signals.first:
            if ended := [leaf for leaf in self._jobs if leaf.path(self._folder).exists()]:
                for leaf in ended:
                    del self._jobs[leaf]
                return True
            try:
                self._look()
            except UserError:
                self._leave()
                raise
            time.sleep(GLANCE)
        return self._leave()

    def _leave(self) -> bool:
        if self._jobs:
            say(self._queue.leave(self._jobs.values()))
        return False

    def _look(self) -> None:
        """Start again what has ended without a result: twice not seen, for a result may be seen late."""
        if time.monotonic() - self._looked < self._queue.look:
            return
        ended = self._queue.ended(self._jobs.values())
        gone, self._missed = ended & self._missed, ended
        for leaf in [leaf for leaf, ticket in self._jobs.items() if ticket in gone]:
            if not leaf.path(self._folder).exists():
                self._again(leaf)
        self._looked = time.monotonic()

    def _again(self, leaf: Leaf) -> None:
        ticket = self._jobs.pop(leaf)
        if self._queue.was_cancelled(ticket):
            raise UserError(
                f"job {ticket.job} (trial {leaf.trial}, fold {leaf.fold}) was cancelled, so the search stops; the same "
                f"command submits it again"
            )
        self._tries.end(leaf, log_of(self._folder, ticket))
        say(
            f"job {ticket.job} ended without a result: trial {leaf.trial}, fold {leaf.fold} is submitted again"
        )
        self._submit(leaf)

    def _submit(self, leaf: Leaf) -> None:
        run = leaf_run(self._experiment, self._folder, leaf)
        memory = raised(run.resources.mem_mb, self._tries.attempts(leaf))
        job = LeafJob(self._folder.absolute(), leaf, self._queue.launcher, self._tries.begin(leaf))
        self._keep(leaf, self._queue.submit(job, run, memory))

    def _keep(self, leaf: Leaf, ticket: Ticket) -> None:
        ticket.write(self._folder, leaf)
        self._jobs[leaf] = ticket


def _queue(folder: Path, experiment: Experiment, launcher: str) -> Queue:
    if slurm_is_here():
        return SlurmQueue(folder, f"nnlo-{experiment.name}", launcher)
    tell_who_waits(experiment)
    say("there is no Slurm here, so submitit's jobs are processes of this machine")
    return HomeQueue(folder, launcher)
