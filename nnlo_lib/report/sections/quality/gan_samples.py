"""Images of generated samples (GANs)."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from nnlo_lib.core.errors import UserError
from nnlo_lib.report.finished_job import group_by_run
from nnlo_lib.state.finished_run import FinishedRun


@dataclass(frozen=True)
class SampleImage:
    """The sample sheet of the first job of a run that has one; `source` is the data URL of an HTML image."""

    run: str
    seed: int
    source: str


def sample_images(jobs: Sequence[FinishedRun]) -> list[SampleImage]:
    """Return an image for each run that has a sample sheet. Raises UserError if a sheet cannot be read."""
    drawn = [job for job in jobs if job.paths.samples.exists()]
    return [_picture(run, group[0]) for run, group in group_by_run(drawn).items()]


def _picture(run: str, job: FinishedRun) -> SampleImage:
    try:
        content = job.paths.samples.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {job.paths.samples}: {error}") from error
    return SampleImage(run, job.summary["seed"], f"data:image/png;base64,{b64encode(content).decode()}")
