"""One process of an allocation of blocks: `python -m nnlo_lib.tune.blocks.rank FOLDER --size N`, started by MPI."""

import argparse
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.data.atomic import replacing
from nnlo_lib.errors import EXIT_USER_ERROR, UserError
from nnlo_lib.launch.launch import die_with_parent
from nnlo_lib.launch.limit import Limit
from nnlo_lib.search.drive import drive
from nnlo_lib.search.proposers.build import proposer
from nnlo_lib.search.record import read_record
from nnlo_lib.search.study import Study
from nnlo_lib.state.outcome import EXIT_PREEMPTED
from nnlo_lib.state.scheduler import Job
from nnlo_lib.state.speech import say
from nnlo_lib.train.leaving import leave
from nnlo_lib.train.notes import announce
from nnlo_lib.tune.blocks.coordinator import Coordinator, pulse_of
from nnlo_lib.tune.blocks.deaths import NoBlockError
from nnlo_lib.tune.blocks.names import NO_BLOCK, OUTCOME
from nnlo_lib.tune.blocks.post import LOST
from nnlo_lib.tune.blocks.pulse import Pulse
from nnlo_lib.tune.blocks.wish import Wish
from nnlo_lib.tune.blocks.world import COORDINATOR, World
from nnlo_lib.tune.config_file import read_config
from nnlo_lib.tune.progress import Told

LINGER = 0.5  # seconds, for the last words of a rank
Part = Callable[[World, Wish], bool]  # a rank's, in a block; returns whether MPI is whole


def main() -> None:
    """Be one rank until the search has ended, or was asked to stop, or this rank's block is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="results/<experiment>/search")
    parser.add_argument("--size", type=int, required=True, help="ranks of a block")
    parser.add_argument("--minutes", type=float, help="until the scheduler ends the job")
    options = parser.parse_args()
    limit = Limit(options.minutes, Job.current())
    take_part(
        options.folder, options.size, lambda world, wish: _train(world, options.folder, wish, limit), limit
    )


def take_part(folder: Path, size: int, part: Part, limit: Limit) -> None:
    """Coordinate, or play a part in a block; then leave, which does not return."""
    die_with_parent(signal.SIGKILL)
    world = World(size)
    wish = _listening(Wish(world, limit.left))
    announce(folder / "state", world.rank)
    try:
        if world.rank == COORDINATOR:
            whole = _coordinate(world, folder, wish)
        else:
            if world.rank == world.members(world.block)[0]:
                Pulse(pulse_of(folder, world.block))
            whole = part(world, wish)
    except PeerLostError as error:
        whole = False
        world.post.send(f"{world.name(world.rank)}: {error}", COORDINATOR, LOST)
    _leave(world, whole)


def _listening(wish: Wish) -> Wish:
    """Listen to signals; USR1 only if whoever started us does not say by ignoring it that it means something else."""
    ignored = signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    wish.listen()
    if ignored:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    return wish


def _train(world: World, folder: Path, wish: Wish, limit: Limit) -> bool:
    from nnlo_lib.train.task import Task
    from nnlo_lib.train.tuning import tune_process
    from nnlo_lib.tune.blocks.block import Training, follow, lead, refusing
    from nnlo_lib.tune.blocks.crew import Crew
    from nnlo_lib.tune.blocks.gpus import take_share

    tune_process()
    crew = Crew(world, wish)
    short = crew.agree(take_share(world, read_config(folder)))
    if world.rank == world.members(world.block)[0]:
        return lead(world, refusing(short) if short else Training(world, crew, folder, wish, limit))
    return follow(world, lambda text: crew.train(Task.parse(text)))


def _coordinate(world: World, folder: Path, wish: Wish) -> bool:
    """Search to the end, and say what became of it; return whether MPI is whole."""
    experiment = read_config(folder)
    search = experiment.search
    assert search is not None
    coordinator = Coordinator(
        world, folder, search.blocks, world.size * experiment.parallel.threads_per_rank, wish
    )
    try:
        parallel = search.parallel if search.order == "fixed" else len(world.blocks) + search.blocks.ahead
        study = Study(folder, search, experiment.train.epochs, proposer(search), parallel)
        done = drive(study, Told(coordinator, read_record(folder)))
        coordinator.settle()
        status, error = 0 if done else EXIT_PREEMPTED, ""
    except NoBlockError as end:
        status, error = NO_BLOCK, str(end)
    except UserError as mistake:
        status, error = EXIT_USER_ERROR, str(mistake)
    except Exception:
        status, error = 1, traceback.format_exc()
    say(coordinator.tally.text())
    coordinator.tally.write(folder / "state")
    with replacing(folder / "state" / OUTCOME) as part:
        part.write_text(json.dumps({"status": status, "error": error}))
    return coordinator.dismiss()


def _leave(world: World, whole: bool) -> None:
    """End without taking the interpreter apart; nor MPI if it would wait for what never comes."""
    if whole:
        leave(0)
    world.post.linger(LINGER)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
