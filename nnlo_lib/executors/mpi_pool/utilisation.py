"""How well an allocation's blocks are used."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from nnlo_lib.config.paths import SearchStatePaths


@dataclass
class PoolUtilization:
    """blocks: how many there are; trained: seconds of all trainings; losses: when blocks died."""

    blocks: int
    begun: float = field(default_factory=time.time)
    trained: float = 0.0
    trainings: int = 0
    losses: dict[int, float] = field(default_factory=dict)

    def add(self, started: float, ended: float) -> None:
        """Count a training, by when it was."""
        self.trained += ended - started
        self.trainings += 1

    def record_loss(self, block: int) -> None:
        """Count a block no more."""
        self.losses[block] = time.time()

    def utilization(self, now: float) -> float:
        """Return seconds of training by seconds in which there were blocks, up to `now`."""
        allocated = self.blocks * (now - self.begun) - sum(now - then for then in self.losses.values())
        return self.trained / allocated if allocated > 0 else 0.0

    def text(self) -> str:
        """Tell a person."""
        now = time.time()
        return (
            f"{self.trainings} trainings on {self.blocks} blocks in {now - self.begun:.1f} s: "
            f"{100 * self.utilization(now):.1f} % of the blocks' time was training"
        )

    def write(self, state: Path) -> None:
        """Keep it."""
        now = time.time()
        row = {
            "begun": self.begun, "ended": now, "blocks": self.blocks, "lost": len(self.losses),
            "trainings": self.trainings, "trained": round(self.trained, 3),
            "utilisation": round(self.utilization(now), 4),
        }  # fmt: skip
        with SearchStatePaths(state).pool_utilization.open("a") as file:
            file.write(json.dumps(row) + "\n")
