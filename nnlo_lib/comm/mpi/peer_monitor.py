"""Processes of the ranks: where they run, whether they are alive, and how long to wait for them."""

import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nnlo_lib.comm.communicator import PeerLostError

PEER_POLL_INTERVAL_S = 100e-6  # seconds: sleeping frees the core, as ranks may outnumber cores
PEER_POLL_BACKOFF_AFTER_S = 0.1  # seconds of waiting after which sleeps are ten times as long
PEER_CHECK_INTERVAL_S = 0.5  # seconds between two checks of the processes
PEER_MAX_CREDITED_GAP_S = 0.1  # seconds: a longer sleep means that this process was stopped

AwaitedRanks = Sequence[int] | None  # ranks to wait for; None: all other ranks


class PeerMonitor:
    """Watch the processes of a communicator's ranks and bound the wait for them.

    A scheduler may stop (suspend) a job for hours. Seconds do not count while this process or one of
    `suspendable_pids` (the ranks' processes on this host) is stopped. A stopped process on another host
    cannot be detected: where hosts are suspended one by one, it counts as not responding.

    Args:
        rank: this rank.
        processes: (host, pid) of every rank.
        timeout: seconds to wait for a peer that does not respond.
        given_up: returns the reason to stop waiting if a live peer has reported one, else an empty string.
    """

    def __init__(
        self, rank: int, processes: Sequence[tuple[str, int]], timeout: float, given_up: Callable[[], str]
    ) -> None:
        self._rank, self._processes, self._timeout = rank, processes, timeout
        self.abort_reason = given_up
        self._here = socket.gethostname()
        self.suspendable_pids = [pid for host, pid in processes if host == self._here]

    def wait(
        self, done: Callable[[], bool], what: str, patience: float, awaited: AwaitedRanks = None
    ) -> float:
        """Poll `done` until it returns True; return the seconds spent asleep.

        Args:
            done: the condition.
            what: name of the awaited event in error messages.
            patience: seconds of busy polling before sleeps between polls.
            awaited: ranks to wait for; default: all other ranks.

        Raises:
            PeerLostError: if awaited ranks are dead (it names these), do not respond in time (it names all
                awaited ranks), or there is a reason to stop waiting.
        """
        started = time.perf_counter()
        while not done():
            if time.perf_counter() - started >= patience:
                return self._wait_with_sleeps(
                    done, what, patience, self._others() if awaited is None else awaited
                )
            # Ranks may outnumber cores: the awaited rank may need this core.
            os.sched_yield()
        return 0.0

    def _wait_with_sleeps(
        self, done: Callable[[], bool], what: str, waited: float, awaited: Sequence[int]
    ) -> float:
        slept, unchecked, checked_at = 0.0, 0.0, time.perf_counter()
        while not done():
            slept += _timed_sleep(
                PEER_POLL_INTERVAL_S
                if waited + unchecked < PEER_POLL_BACKOFF_AFTER_S
                else 10 * PEER_POLL_INTERVAL_S
            )
            now = time.perf_counter()
            # A longer gap means that this process was stopped (SIGSTOP); peers are not charged for this time.
            unchecked, checked_at = unchecked + min(now - checked_at, PEER_MAX_CREDITED_GAP_S), now
            if unchecked > PEER_CHECK_INTERVAL_S:
                waited += 0 if self._suspended() else unchecked
                unchecked = 0.0
                self._check(done, waited, what, awaited)
        return slept

    def _suspended(self) -> bool:
        return any(_state(pid) in ("T", "t") for pid in self.suspendable_pids)

    def _check(self, done: Callable[[], bool], waited: float, what: str, awaited: Sequence[int]) -> None:
        dead = [peer for peer in awaited if self._is_dead(peer)]
        if (dead or waited > self._timeout) and not done():  # A peer may have completed the call and exited.
            state = "died" if dead else f"did not respond for {waited:.0f} s"
            names = ", ".join(self._name(peer) for peer in dead or awaited)
            raise PeerLostError(f"rank {self._rank} waited for {what}, but {names} {state}")
        if (why := self.abort_reason()) and not done():
            raise PeerLostError(f"rank {self._rank} waited for {what}, but {why}")

    def _is_dead(self, peer: int) -> bool:
        host, pid = self._processes[peer]
        # Processes on other hosts cannot be inspected; only the timeout detects their end.
        return host == self._here and _state(pid) in ("", "X", "Z")

    def _name(self, peer: int) -> str:
        host, pid = self._processes[peer]
        return f"rank {peer} (process {pid} on {host})"

    def _others(self) -> list[int]:
        return [peer for peer in range(len(self._processes)) if peer != self._rank]


def _timed_sleep(seconds: float) -> float:
    started = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - started


def _state(pid: int) -> str:
    """Return the kernel's letter for a process's state (T: stopped, Z: ended); empty if it is gone."""
    try:
        # The second field is the program's name in parentheses, which may contain spaces and parentheses.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        # The read fails with ProcessLookupError if the process ends after the file was opened.
        return ""
