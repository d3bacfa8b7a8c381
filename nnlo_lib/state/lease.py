"""The right to write in a run folder: state/lease.json, kept by a heartbeat, held by one launcher at a time."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from nnlo_lib.errors import UserError
from nnlo_lib.state.claim import Claim
from nnlo_lib.state.rival import Rival
from nnlo_lib.state.speech import say

BEAT = 5.0  # seconds
PATIENCE = 30.0  # seconds without a beat after which an owner counts as dead
GLANCE = 0.5  # seconds between two looks at another owner
NAME = "lease.json"


class HeldError(Exception):
    """Another owner kept the lease for as long as one could wait."""


class Lease:
    """The lease of a run's `state/`. lost: set as soon as it is found to be another's, or gone."""

    def __init__(self, folder: Path, beat: float = BEAT, patience: float = PATIENCE) -> None:
        self._path, self._beat, self._patience = folder / NAME, beat, patience
        self._claim = Claim.fresh()
        self._over = Event()
        self._heart = Thread(target=self._keep, daemon=True)
        self.lost = Event()

    def acquire(self, patient: bool, give_up: Callable[[], bool]) -> Rival | None:
        """Become the owner; return the one in whose place this is, if it left its lease behind.

        Raises UserError if another owner lives and one is not `patient`, or the disk refuses; HeldError if it still
        lives when `give_up` says so.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            evicted = self._contend(patient, give_up)
        except OSError as error:
            raise UserError(
                f"cannot write {self._path}, which keeps others away from this run: {error}"
            ) from error
        if evicted and not evicted.is_dead:  # of a node that the scheduler has lost: it ends itself by then
            time.sleep(1.4 * self._beat)
        return evicted

    def release(self) -> None:
        """Let the next owner in."""
        self._over.set()
        self._heart.join()
        with suppress(OSError):
            if self._is_ours():
                self._path.unlink()

    def _contend(self, patient: bool, give_up: Callable[[], bool]) -> Rival | None:
        evicted = None
        while not self._take():
            with suppress(FileNotFoundError):  # released between two looks
                evicted = self._outlast(Rival(self._path, self._patience), patient, give_up) or evicted
        return evicted

    def _outlast(self, rival: Rival, patient: bool, give_up: Callable[[], bool]) -> Rival | None:
        """Wait until the lease is not the rival's any more; return the rival if it was evicted."""
        requeued, told = patient and rival.claim.is_of_same_job(self._claim), False
        while rival.look():
            if rival.is_dead or requeued:
                return rival if self._evict(rival) else None
            if rival.is_alive and not patient:
                raise UserError(_refusal(self._path, rival.claim))
            if give_up():
                raise HeldError(f"{self._path.parents[1]} still belongs to {rival.claim}")
            if not told:
                say(f"{self._path.parents[1]} belongs to {rival.claim}: waiting for its end, or its silence")
                told = True
            time.sleep(GLANCE)
        return None

    def _evict(self, rival: Rival) -> bool:
        """Take the lease away from the rival, and from nobody who was quicker to do so."""
        aside = self._path.with_name(f".{NAME}.{self._claim.owner}.evicted")
        self._path.rename(aside)
        try:
            if aside.read_bytes() != rival.content:
                with suppress(FileExistsError):
                    os.link(aside, self._path)
                return False
        finally:
            aside.unlink()
        what = "has ended without a word" if rival.is_dead else "is an earlier run of this job"
        say(f"warning: took {self._path.parents[1]} over from {rival.claim}, which {what}")
        return True

    def _take(self) -> bool:
        part = self._path.with_name(f".{NAME}.{self._claim.owner}")
        try:
            self._claim.write(part)
            os.link(part, self._path)
        except FileExistsError:
            if not self._is_ours():  # NFS may repeat a request that it has granted
                return False
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        self._heart.start()
        return True

    def _is_ours(self) -> bool:
        return Claim.parse(self._path.read_bytes()) == self._claim

    def _keep(self) -> None:
        """Beat until released; find out if the lease was lost."""
        beaten = time.monotonic()
        while not self._over.wait(self._beat) and not self.lost.is_set():
            try:
                if not self._is_ours():
                    self.lost.set()
                os.utime(self._path)
                beaten = time.monotonic()
            except FileNotFoundError:
                self.lost.set()
            except OSError:  # a disk may be away for a while, but others count
                if time.monotonic() - beaten > self._patience:
                    self.lost.set()


def _refusal(path: Path, claim: Claim) -> str:
    return (
        f"{path.parents[1]} is being written by {claim}, which lives: wait for it, or end it there "
        f"(kill {claim.pid}" + (f", or cancel job {claim.job}" if claim.job else "") + ") and run this again"
    )
