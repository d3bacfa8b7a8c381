"""Published results that do not belong to the present settings, data and code of an experiment."""

import os
import time
from pathlib import Path

from nnlo_lib.config import JobSpec
from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.state.published_results import is_outdated
from nnlo_lib.workflow.plan import Plan


def outdated_stamp(plan: Plan, job: JobSpec) -> str:
    """Return the path of a file that is newer than the results of a job if these are outdated.

    Snakemake notices edits by its own records, which results of `nnlo run` do not have: as an input of the
    training, the file makes Snakemake compare the times of the file and of the results. The content is new, too,
    because Snakemake ignores a newer input whose checksum Snakemake has recorded. In a process that does not
    lead, the file stays as the leading process left it.
    """
    paths = ExperimentPaths(plan.experiment.name)
    # With a suffix, because seed-1 can later be the folder of its folds.
    stamp = paths.workflow_state.folder / "outdated" / f"{job.path}.txt"
    if plan.leads:
        folder, manifest = paths.job(job).folder, Path(plan.manifest(job.run))
        outdated = is_outdated(folder, plan.runs[job.run], manifest)
        if outdated or not stamp.exists():
            with atomic_write(stamp) as part:
                part.write_text(str(time.time_ns()))
        os.utime(stamp, (time.time() if outdated else 0,) * 2)
    return str(stamp)
