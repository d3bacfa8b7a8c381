"""What the trainings of a run asked of the scheduler, what they used, and which request would have been enough."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nnlo_lib.config import Run
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import MISSING, duration_text, number
from nnlo_lib.state.finished_run import FinishedRun

MEGABYTE = 1e6
# What a training may need beyond its measured peak: the launcher and the evaluation, files in memory, other data.
MEMORY_MARGIN, MEMORY_MARGIN_MB = 1.25, 250
TIME_MARGIN, TIME_MARGIN_MIN = 1.5, 5
ENOUGH = 0.6  # a smaller request is advised if it is at most this share of the present one
SCARCE = 0.9  # a larger request is advised if this share of the present one was used


@dataclass(frozen=True)
class ResourceUse:
    """Resources of the trainings of a run: those asked for each, and the most that one of them used."""

    asked: RunResources
    memory_mb: float  # sum of the peaks of all processes; pages that processes share count several times
    seconds: float | None  # wall time of the longest attempt; None if no attempt is recorded
    busy_cores: float  # processor seconds of all processes per second
    gpu_memory_mb: float | None  # peak of a rank on its GPU, as torch reserved it; None without GPU

    @classmethod
    def of(cls, jobs: Sequence[FinishedRun], run: Run | None = None) -> "ResourceUse | None":
        """Return the use of the trainings of one run; None without measurements or a readable configuration.

        The request of the configuration `run` is compared; by default the one of the trainings.
        """
        measured = [used for job in jobs if (used := job.summary.get("used"))]
        if not measured:
            return None
        attempts = [each for job in jobs if (found := job.attempt_statistics) for each in found.attempts]
        gpu = [used["gpu_memory_bytes"] / MEGABYTE for used in measured if used["gpu_memory_bytes"]]
        try:
            asked = RunResources(run or jobs[0].config)
        except UserError:  # of another version, or of a class that is not here
            return None
        return cls(
            asked,
            max(used["memory_bytes"] for used in measured) / MEGABYTE,
            max((each.seconds for each in attempts), default=None),
            max(used["cpu_seconds"] / used["seconds"] for used in measured),
            max(gpu, default=None),
        )

    @property
    def cells(self) -> dict[str, str]:
        """Cells of a table by heading."""
        asked = self.asked
        return {
            "memory asked": f"{asked.memory_mb:,} MB",
            "memory used": f"{self.memory_mb:,.0f} MB",
            "time asked": duration_text(60 * asked.runtime_min),
            "longest attempt": MISSING if self.seconds is None else duration_text(self.seconds),
            "cores asked": str(asked.cores),
            "cores busy": number(self.busy_cores, 2),
            "GPUs": str(asked.gpus) if asked.gpus else MISSING,
            "memory of a GPU used": f"{self.gpu_memory_mb:,.0f} MB" if self.gpu_memory_mb else MISSING,
            "would be enough": ", ".join(self.advice) or MISSING,
        }

    @property
    def advice(self) -> list[str]:
        """The settings of `resources` that would have been enough, where they differ much from the request."""
        memory = math.ceil((MEMORY_MARGIN * self.memory_mb + MEMORY_MARGIN_MB) / 100) * 100
        compared = [("mem_mb", self.memory_mb, memory, self.asked.memory_mb)]
        if self.seconds is not None:
            minutes = self.seconds / 60
            runtime = math.ceil((TIME_MARGIN * minutes + TIME_MARGIN_MIN) / 5) * 5
            compared.append(("runtime", minutes, runtime, self.asked.runtime_min))
        return [
            f"{key}: {enough}"
            for key, used, enough, asked in compared
            if enough <= ENOUGH * asked or used > SCARCE * asked
        ]

    @property
    def sentence(self) -> str:
        """What was used of what was asked, and the advice, for the terminal."""
        cells = self.cells
        time = "" if self.seconds is None else f", {cells['longest attempt']} of {cells['time asked']}"
        enough = f"; `resources: {{{', '.join(self.advice)}}}` would be enough" if self.advice else ""
        return (
            f"used {cells['memory used']} of {cells['memory asked']}{time} and {cells['cores busy']} of "
            f"{cells['cores asked']} cores{enough}"
        )


def total_use(ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the use of a training for summary.json, from the reports of its ranks; simulated ranks share a process."""
    processes = {(rank["host"], rank["process"]): rank for rank in ranks}.values()
    return {
        "memory_bytes": sum(rank["memory_bytes"] for rank in processes),
        "cpu_seconds": sum(rank["cpu_seconds"] for rank in processes),
        "seconds": max(rank["seconds"] for rank in processes),
        "gpu_memory_bytes": max(rank["gpu_memory_bytes"] for rank in ranks),
    }
