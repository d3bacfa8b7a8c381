"""Leaves as processes of this machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

from nnlo_lib.errors import UserError
from nnlo_lib.launch.signals import Signals
from nnlo_lib.search.trial import Leaf
from nnlo_lib.state.outcome import EXIT_PREEMPTED

GLANCE = 0.05  # seconds between two looks
LOG = "leaf.log"  # in the fold's folder


class Local:
    """Train leaves in processes of this machine; a signal stops them, saved."""

    def __init__(self, folder: Path, launcher: str, signals: Signals) -> None:
        self._folder, self._launcher, self._signals = folder, launcher, signals
        self._running: dict[Leaf, subprocess.Popen[bytes]] = {}

    def start(self, leaf: Leaf) -> None:
        """Start a process, its words going to `leaf.log` beside the results."""
        log = leaf.folder(self._folder) / LOG
        log.parent.mkdir(parents=True, exist_ok=True)
        numbers = [str(number) for number in (leaf.trial, leaf.fold, leaf.epochs)]
        command = [sys.executable, "-m", "nnlo_lib.tune.leaf", str(self._folder), *numbers]
        with log.open("ab") as file:
            self._running[leaf] = subprocess.Popen(
                [*command, "--launcher", self._launcher], stdout=file, stderr=file, stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip

    def wait(self) -> bool:
        """Return when a process has ended; after a signal when all have, False."""
        while not self._signals.first:
            if ended := [leaf for leaf, process in self._running.items() if process.poll() is not None]:
                buried = [self._bury(leaf) for leaf in ended]
                return all(buried)
            time.sleep(GLANCE)
        return self.stop()

    def stop(self) -> bool:
        """Ask all to save and stop, and wait for them."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait()
        self._running.clear()
        return False

    def _bury(self, leaf: Leaf) -> bool:
        """Tell whether an ended process has left a result. Raises UserError if it could not."""
        status = self._running.pop(leaf).returncode
        if status in (0, EXIT_PREEMPTED):
            return status == 0
        self.stop()
        log = leaf.folder(self._folder) / LOG
        words = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise UserError(f"trial {leaf.trial} could not be trained: {''.join(words)}; see {log}")
