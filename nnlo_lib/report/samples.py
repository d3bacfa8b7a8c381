"""Pictures of what generators make."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from nnlo_lib.errors import UserError
from nnlo_lib.report.job import Job, by_run

SHEET = "samples.png"


@dataclass(frozen=True)
class Picture:
    """The sheet of a run's first training that has one, as the source of an HTML image."""

    run: str
    seed: int
    source: str


def pictures(jobs: Sequence[Job]) -> list[Picture]:
    """Return a picture for each run that has one. Raises UserError if one cannot be read."""
    drawn = [job for job in jobs if (job.folder / SHEET).exists()]
    return [_picture(run, group[0]) for run, group in by_run(drawn).items()]


def _picture(run: str, job: Job) -> Picture:
    try:
        content = (job.folder / SHEET).read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {job.folder / SHEET}: {error}") from error
    return Picture(run, job.summary["seed"], f"data:image/png;base64,{b64encode(content).decode()}")
