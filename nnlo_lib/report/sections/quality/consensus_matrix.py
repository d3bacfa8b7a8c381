"""Heat maps of the distances between the nodes of a run, from observe.consensus_matrix."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import number
from nnlo_lib.report.finished_job import group_by_run
from nnlo_lib.state.finished_run import FinishedRun

MAX_SHOWN_NODES = 20  # nodes; a larger matrix is not readable on a page


@dataclass(frozen=True)
class ConsensusMatrix:
    """L2 distance of each pair of nodes at the step of the published weights, in the first training task of a run."""

    run: str
    distances: NDArray[np.float64]

    @property
    def readable(self) -> bool:
        """Whether the matrix is small enough to be shown."""
        return len(self.distances) <= MAX_SHOWN_NODES

    @property
    def shares(self) -> NDArray[np.float64]:
        """Distances divided by the largest one."""
        shares: NDArray[np.float64] = self.distances / (self.distances.max(initial=0) or 1)
        return shares

    @property
    def texts(self) -> list[list[str]]:
        """Distances as text."""
        return [[number(value) for value in row] for row in self.distances.tolist()]


def consensus_matrices(jobs: Sequence[FinishedRun]) -> list[ConsensusMatrix]:
    """Return the matrix of each run that has one.

    Raises UserError if a matrix is not square, or is missing in its file.
    """
    known = group_by_run([job for job in jobs if job.paths.consensus.exists()])
    return [ConsensusMatrix(run, _distances(group[0])) for run, group in known.items()]


def _distances(job: FinishedRun) -> NDArray[np.float64]:
    step = job.summary.get("published_step") or int(job.history["step"].iloc[-1])
    found = job.consensus.get(f"distance_{step}", np.zeros(0))
    if found.ndim != 2 or found.shape[0] != found.shape[1]:
        raise UserError(
            f"{job.paths.consensus} is damaged: it has no square array distance_{step}; train the task again"
        )
    return found
