"""Record of a fold task's job, by which the next driver finds the job: job-9.json beside epochs-9.json."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.process_identity import ProcessIdentity
from nnlo_lib.search.study.trial import FoldTask


@dataclass(frozen=True)
class JobRecord:
    """Job of a fold task.

    Attributes:
        cluster: submitit's name of the cluster.
        job: number of the job in the cluster.
        process: process of the job if it runs without a cluster.
    """

    cluster: str
    job: str
    process: ProcessIdentity | None = None

    @classmethod
    def read(cls, search: Path, fold_task: FoldTask) -> "JobRecord | None":
        """Return the last job of a fold task, or None if it had no job."""
        try:
            values = json.loads(_path(search, fold_task).read_text())
        except FileNotFoundError:
            return None
        process = values.pop("process")
        return cls(**values, process=ProcessIdentity(**process) if process else None)

    def write(self, search: Path, fold_task: FoldTask) -> None:
        """Write the record atomically."""
        with atomic_write(_path(search, fold_task)) as part:
            part.write_text(json.dumps(asdict(self)))


def _path(search: Path, fold_task: FoldTask) -> Path:
    return SearchPaths(search).job_record(fold_task.trial, fold_task.fold, fold_task.epochs)
