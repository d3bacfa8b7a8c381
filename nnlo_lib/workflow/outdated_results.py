"""Published results that do not belong to the present settings, data and code of an experiment."""

import os
import time

from nnlo_lib.config import JobSpec, Run
from nnlo_lib.config.paths import ExperimentPaths, RunPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.input_record import changed_files, input_checksums
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
        outdated = _is_outdated(paths.job(job), plan.runs[job.run], plan.manifest(job.run))
        stamp.parent.mkdir(parents=True, exist_ok=True)
        if outdated or not stamp.exists():
            stamp.write_text(str(time.time_ns()))
        os.utime(stamp, (time.time() if outdated else 0,) * 2)
    return str(stamp)


def _is_outdated(paths: RunPaths, run: Run, manifest: str) -> bool:
    """Return True if the results of a finished training have other settings, data or code than a run.

    Args:
        paths: paths of the training.
        run: the run with its present settings.
        manifest: path of the manifest of the run's data.
    """
    if not paths.summary.exists():
        return False  # Snakemake trains because of the missing file.
    finished = FinishedRun(paths.folder)
    try:
        settings, summary = finished.config.result_settings, finished.summary
    except UserError:
        return False  # The results are damaged or of a later version: the training itself decides.
    recorded = summary.get("input_files")
    changed = changed_files(recorded, input_checksums(run)) if recorded is not None else []
    # Older versions did not record the data.
    same_data = summary.get("data", {}).get("manifest") == manifest
    return settings != run.result_settings or not same_data or bool(changed)
