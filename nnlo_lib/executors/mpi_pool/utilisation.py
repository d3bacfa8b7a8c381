"""Utilization of an allocation's rank groups."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from nnlo_lib.config.paths import SearchStatePaths
from nnlo_lib.core.logging_setup import get_logger

logger = get_logger(__name__)


@dataclass
class PoolUtilization:
    """Utilization of the rank groups.

    Attributes:
        groups: number of rank groups at the start.
        begun: start of the allocation, in seconds since 1970.
        trained: seconds of all trainings.
        trainings: number of trainings.
        losses: time at which each lost group was lost, in seconds since 1970.
    """

    groups: int
    begun: float = field(default_factory=time.time)
    trained: float = 0.0
    trainings: int = 0
    losses: dict[int, float] = field(default_factory=dict)

    def add(self, started: float, ended: float) -> None:
        """Count a training by its start and end (seconds since 1970)."""
        self.trained += ended - started
        self.trainings += 1

    def record_loss(self, group: int) -> None:
        """Record the loss of a rank group: its time does not count from now on."""
        self.losses[group] = time.time()

    def utilization(self, now: float) -> float:
        """Return the seconds of training divided by the seconds of all rank groups up to `now`."""
        allocated = self.groups * (now - self.begun) - sum(now - lost_at for lost_at in self.losses.values())
        return self.trained / allocated if allocated > 0 else 0.0

    def text(self) -> str:
        """Return the utilization as text."""
        now = time.time()
        return (
            f"{self.trainings} trainings on {self.groups} rank groups in {now - self.begun:.1f} s: "
            f"{100 * self.utilization(now):.1f} % of the rank groups' time was training"
        )

    def write(self, state: Path) -> None:
        """Append the utilization to its file in the state folder; log a warning if it cannot be written."""
        now = time.time()
        row = {
            "begun": self.begun, "ended": now, "blocks": self.groups, "lost": len(self.losses),
            "trainings": self.trainings, "trained": round(self.trained, 3),
            "utilisation": round(self.utilization(now), 4),
        }  # fmt: skip
        path = SearchStatePaths(state).pool_utilization
        try:
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            # A statistic: the search's own end, which the launcher reads next, is worth more.
            logger.warning(f"cannot write {path}: {error.strerror}")
