"""The job of a leaf, on disk, so that the next driver finds it: job-9.json beside epochs-9.json."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from nnlo_lib.data.atomic import replacing
from nnlo_lib.search.trial import Leaf
from nnlo_lib.state.process import Process


@dataclass(frozen=True)
class Ticket:
    """cluster: submitit's name for it; job: its number there; process: that has the job, where there is no cluster."""

    cluster: str
    job: str
    process: Process | None = None

    @classmethod
    def read(cls, search: Path, leaf: Leaf) -> "Ticket | None":
        """Return the last job of a leaf, if it had one."""
        try:
            values = json.loads(_path(search, leaf).read_text())
        except FileNotFoundError:
            return None
        process = values.pop("process")
        return cls(**values, process=Process(**process) if process else None)

    def write(self, search: Path, leaf: Leaf) -> None:
        """Write it, in one move."""
        with replacing(_path(search, leaf)) as part:
            part.write_text(json.dumps(asdict(self)))


def _path(search: Path, leaf: Leaf) -> Path:
    return leaf.folder(search) / f"job-{leaf.epochs}.json"
