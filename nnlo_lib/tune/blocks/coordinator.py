"""Rank 0: gives leaves to blocks that have nothing to do, and takes them back from blocks that died."""

import time
from pathlib import Path

from mpi4py import MPI

from nnlo_lib.config.search import Blocks
from nnlo_lib.errors import UserError
from nnlo_lib.search.trial import Leaf, Result, read_result
from nnlo_lib.state.outcome import EXIT_PREEMPTED
from nnlo_lib.state.speech import say
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.tune.blocks.deaths import Deaths, NoBlockError
from nnlo_lib.tune.blocks.names import PULSE, STOPPING
from nnlo_lib.tune.blocks.post import LOST, QUIT, REPORT, STOP, WORK
from nnlo_lib.tune.blocks.pulse import Silence
from nnlo_lib.tune.blocks.tally import Tally
from nnlo_lib.tune.blocks.world import LOOK, NAP, World

PATIENCE = 900.0  # seconds for all to save and stop; the launcher ends who does not


def pulse_of(folder: Path, block: int) -> Path:
    """Return the file in which a block's leader beats."""
    return folder / "state" / PULSE / str(block)


class Coordinator:
    """The executor of an allocation's blocks; all ranks but this one belong to one. stop: the signals of this rank.

    tally: what the blocks have done.
    """

    def __init__(self, world: World, folder: Path, wish: Blocks, cores: int, stop: StopFlag) -> None:
        self._world, self._folder, self._wish, self._stop = world, folder, wish, stop
        self._cores, self._looked, self._asked = cores, time.monotonic(), False
        self._alive = {block: Silence(pulse_of(folder, block)) for block in world.blocks}
        self._busy: dict[int, tuple[Leaf, float]] = {}
        self._queue: list[Leaf] = []
        self._deaths, self._last = Deaths(folder), ""
        self._wrecked = False
        self.tally = Tally(len(world.blocks))

    def start(self, leaf: Leaf) -> None:
        """Have it trained as soon as a block has nothing else to do."""
        self._queue.append(leaf)
        if not self._deaths[leaf]:
            self._hand_out()

    def wait(self) -> bool:
        """Return when a block has done its work; False when all have stopped, as was wished. Raises UserError."""
        while not self._is_to_stop():
            if not self._alive:
                raise NoBlockError(f"no block is left ({self._last})")
            self._hand_out()
            if self._hear() or self._look():
                return True
            time.sleep(NAP)
        return self._stop_all()

    def dismiss(self) -> bool:
        """Send all away, who trains saves first; return whether MPI is whole, so that it can be ended as it should."""
        whole = not (self.tally.losses or self._wrecked or self._busy)
        for block in self._alive:
            for rank in self._world.members(block):
                if block in self._busy:
                    self._world.post.send(None, rank, STOP)
                self._world.post.send(whole, rank, QUIT)
        return whole

    def _hand_out(self) -> None:
        """Give what no block has died of first: what kills one block more is then all that is left to do."""
        for block in self._alive:
            if self._queue and block not in self._busy:
                leaf = min(self._queue, key=self._deaths.__getitem__)
                self._queue.remove(leaf)
                self._busy[block] = leaf, time.time()
                work = [leaf.trial, leaf.fold, leaf.epochs]
                self._world.post.send(work, self._world.members(block)[0], WORK)

    def _is_to_stop(self) -> bool:
        return self._asked or self._stop()

    def settle(self) -> None:
        """Wait until no block has anything to do: its result may be there a moment before its report."""
        end = time.monotonic() + PATIENCE
        while self._busy and time.monotonic() < end:
            self._hear()
            self._look()
            time.sleep(NAP)

    def _stop_all(self) -> bool:
        """Wait until those that train have saved."""
        self._wrecked = True  # a message that nobody takes any more
        for block in self._busy:
            for rank in self._world.members(block):
                self._world.post.send(None, rank, STOP)
        self.settle()
        return False

    def _hear(self) -> bool:
        """Take what blocks report; say whether one has done something."""
        if found := self._world.post.take(MPI.ANY_SOURCE, LOST):
            rank, why = found
            return self._bury((rank - 1) // self._world.size, why)
        found = self._world.post.take(MPI.ANY_SOURCE, REPORT)
        return found is not None and self._ended((found[0] - 1) // self._world.size, *found[1])

    def _ended(
        self, block: int, status: int, error: str, started: float, ended: float, wrecked: bool
    ) -> bool:
        self._wrecked = self._wrecked or wrecked
        if block not in self._busy:
            return False
        leaf, _ = self._busy.pop(block)
        self.tally.add(started, ended)
        self._asked = self._asked or status == EXIT_PREEMPTED
        if not (status or self._is_to_stop()):
            self._hand_out()
        if status not in (0, EXIT_PREEMPTED):
            self._asked = True
            self._stop_all()
            raise UserError(f"trial {leaf.trial} cannot be trained: {error or 'see leaf.log in its folder'}")
        return True

    def _look(self) -> bool:
        """Look for the dead, now and then; say whether a leaf is over by that."""
        if time.monotonic() - self._looked < LOOK:
            return False
        self._looked = time.monotonic()
        if (self._folder / "state" / STOPPING).exists():
            self._asked = True
        over = [self._bury(block, why) for block, why in self._lost()]
        return any(over)

    def _lost(self) -> list[tuple[int, str]]:
        lost = []
        for block, silence in self._alive.items():
            if dead := self._world.dead(self._world.members(block)):
                lost.append((block, f"{self._world.name(dead[0])} has ended"))
            elif silence.look() > self._wish.silence and not self._world.sees(self._world.members(block)):
                lost.append((block, f"it has been silent for {silence.seconds:.0f} s"))
        return lost

    def _bury(self, block: int, why: str) -> bool:
        """Give the leaf of a broken block to another; say whether it is over, as it broke too many."""
        if self._alive.pop(block, None) is None:
            return False
        for rank in self._world.members(block):
            self._world.post.send(False, rank, QUIT)
        leaf, started = self._busy.pop(block, (None, 0.0))
        self._last = why
        self.tally.lost(block)
        say(f"warning: lost block {block}, {len(self._alive)} left: {why}")
        return leaf is not None and self._take_back(leaf, started, why)

    def _take_back(self, leaf: Leaf, started: float, why: str) -> bool:
        self._deaths.add(leaf, why)
        if read_result(self._folder, leaf):
            return True
        if self._deaths[leaf] < self._wish.deaths:
            self._queue.append(leaf)
            return False
        error = f"{self._deaths[leaf]} blocks were lost while they trained this; the last as {why}"
        result = Result(leaf, "failed", error=error, started=started, ended=time.time(), cores=self._cores)
        result.write(self._folder)
        return True
