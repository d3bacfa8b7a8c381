"""Published results that do not belong to the present settings, data and code of an experiment."""

import os
import time
from pathlib import Path

from nnlo_lib.checkpoint.checkpoint_manifest import refuse_other_formats
from nnlo_lib.config import JobSpec
from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.train.freshness import status
from nnlo_lib.workflow.plan import Plan


def mark_outdated_results(plan: Plan) -> None:
    """Make the stamp of each job newer than its results if they are outdated, else older than any results.

    Snakemake notices edits by its own records, which results of `nnlo run` do not have: as an input of the training,
    the stamp makes Snakemake compare the times of the stamp and of the results. The content is new, too, because
    Snakemake ignores a newer input whose checksum Snakemake has recorded.

    Raises UserError, before Snakemake deletes anything, for results that a training cannot replace: those of a longer
    training, and those with checkpoints of another format, which the training refuses.
    """
    tasks = [plan.task(job) for job in plan.jobs]
    found = [status(task).refuse_longer() for task in tasks]
    for task, each in zip(tasks, found, strict=True):
        if each.kind != "finished":
            refuse_other_formats(task.paths.state.checkpoints)
    for job, each in zip(plan.jobs, found, strict=True):
        stamp, outdated = stamp_path(plan, job), each.kind == "outdated"
        if outdated or not stamp.exists():
            with atomic_write(stamp) as part:
                part.write_text(str(time.time_ns()))
        os.utime(stamp, (time.time() if outdated else 0,) * 2)


def stamp_path(plan: Plan, job: JobSpec) -> Path:
    """Return the path of the stamp of a job."""
    # With a suffix, because seed-1 can later be the folder of its folds.
    return ExperimentPaths(plan.experiment.name).workflow_state.folder / "outdated" / f"{job.path}.txt"
