"""Published results that do not belong to the present settings, data and code of an experiment."""

from collections.abc import Iterator

from nnlo_lib.config import Run
from nnlo_lib.config.paths import ExperimentPaths, RunPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.input_record import changed_files, input_checksums
from nnlo_lib.workflow.plan import Plan


def outdated_models(plan: Plan) -> Iterator[str]:
    """Yield the published model of each finished job whose settings, data or code have changed since.

    Snakemake compares only with its own records, which results of `nnlo run` do not have.
    """
    for job in plan.jobs:
        paths = ExperimentPaths(plan.experiment.name).job(job)
        if paths.summary.exists() and _is_outdated(paths, plan.runs[job.run], plan.manifest(job.run)):
            yield str(paths.model)


def _is_outdated(paths: RunPaths, run: Run, manifest: str) -> bool:
    finished = FinishedRun(paths.folder)
    try:
        settings, summary = finished.config.result_settings, finished.summary
    except UserError:
        return False  # Damaged results, or of a later version: the training itself decides.
    recorded = summary.get("input_files")
    changed = changed_files(recorded, input_checksums(run)) if recorded is not None else []
    return settings != run.result_settings or summary["data"]["manifest"] != manifest or bool(changed)
