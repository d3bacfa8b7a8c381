"""Freshness: whether a folder has the results that the present settings, data and code give.

Snakemake, `nnlo run`, `nnlo search` and the launcher ask here; each decides itself what to do with the answer.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest, checkpoint_folders
from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.base import EditEffect, keys_with
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.atomic_file import differences
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import plural
from nnlo_lib.data.store.manifest import manifest_fingerprint
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.published_results import changed_files
from nnlo_lib.train.task import Task

STEPS_KEY = "train.steps_per_epoch"


@dataclass(frozen=True)
class Freshness:
    """What a folder has of the results of a training or of a search."""

    # `finished`: all results, of the present settings, data and code; `outdated`: results of others; `longer`: results
    # or checkpoints of more epochs or steps, which a training would replace; `resumable`: no results, but a checkpoint
    # of the task, or trials; `missing`: none of these. Damaged results are missing. Checkpoints of others alone are
    # outdated, too.
    kind: Literal["missing", "resumable", "finished", "outdated", "longer"]
    reason: str = ""  # why results of a training are `outdated` or `longer`, as a sentence for the user

    def refuse_longer(self) -> Self:
        """Return this freshness. Raises UserError if a training would replace a longer one."""
        if self.kind == "longer":
            raise UserError(self.reason)
        return self


def status(task: Task) -> Freshness:
    """Return what the folder of a task has of its results."""
    task = replace(task)  # reads the user's files again, which may have changed since the task read them
    published = _published(task)
    if published.kind in ("finished", "longer"):
        return published
    saved = _saved(task)
    return published if published.kind == "outdated" and saved.kind != "longer" else saved


def is_evaluated(task: Task) -> bool:
    """Return True if the folder of a finished task has the evaluation of its model by the present metrics."""
    finished = FinishedRun(task.folder)
    try:
        report, trained = finished.evaluation, finished.recorded("outputs")
    except UserError:
        return False
    figures = {name for name, value in report.items() if isinstance(value, float)}
    is_of_model = report.get("model_sha256") == trained[finished.paths.model.name]
    arrays = finished.paths.sample_metrics, finished.paths.predictions
    return is_of_model and figures == task.run.evaluated and all(path.exists() for path in arrays)


def continues(task: Task, found: Freshness) -> bool:
    """Return True if a training of the task resumes from what its folder has; `found` is its status."""
    if found.kind != "outdated":
        return found.kind == "resumable"
    finished, run = FinishedRun(task.folder), task.run
    if not finished.paths.summary.exists() or _saved(task).kind != "resumable":
        return False
    # The ranks do not publish the results of another number of ranks as their own.
    ranks = run.parallel.ranks_in(finished.epochs)
    return finished.summary["ranks"] == ranks or finished.epochs < run.train.epochs


def _published(task: Task) -> Freshness:
    finished, run = FinishedRun(task.folder), task.run
    if not finished.paths.summary.exists():
        return Freshness("missing")
    try:
        summary, recorded = finished.summary, finished.config
    except UserError:
        return Freshness("missing")  # Damaged results need no protection.
    changed = changed_files(summary.get("input_files", {}), task.input_checksums)
    if recorded.training_settings != run.training_settings:
        if longer := _longer_results(finished, run):
            return Freshness("longer", longer)
        free = keys_with(Run, EditEffect.NEXT_ATTEMPT, EditEffect.SAME_DATA)
        before, now = (each.with_defaults_for(*free).shown for each in (recorded, run))
        reasons = [
            *differences(before, now, now),
            *([f"files changed: {', '.join(changed)}"] if changed else []),
        ]
        return _outdated(task, f"of other settings: {'; '.join(reasons)}")
    data = summary.get("data", {})
    if data.get("manifest") != str(task.manifest):
        return _outdated(task, f"of the data {data.get('manifest')}, not {task.manifest}")
    if task.manifest.exists() and data.get("fingerprint") != manifest_fingerprint(task.manifest):
        return _outdated(task, f"of other samples than {task.manifest} now describes")
    if changed:
        return _outdated(task, f"of other files than the present {', '.join(changed)}")
    complete = all((task.folder / name).exists() for name in summary.get("outputs", {}))
    return Freshness("finished" if complete else "missing")


def _outdated(task: Task, why: str) -> Freshness:
    return Freshness("outdated", f"{task.folder} has the results {why}")


def _longer_results(finished: FinishedRun, run: Run) -> str:
    """Return why results are of a longer training of the run, or an empty string if they differ in other settings, too."""
    recorded, epochs, steps = finished.config, finished.epochs, int(finished.summary.get("steps", 0))
    resumed = *keys_with(Run, EditEffect.RESUME), STEPS_KEY
    before, now = (each.with_defaults_for(*resumed).training_settings for each in (recorded, run))
    if before != now:
        return ""
    key, more = "train.epochs", f"set {epochs} or more"
    done, wanted = plural(epochs, "epoch"), f"{run.train.epochs}"
    is_longer = epochs > run.train.epochs
    if recorded.train.steps_per_epoch != run.train.steps_per_epoch:
        # Without a limit, the data determine the number of steps.
        allowed = run.train.epochs * (run.train.steps_per_epoch or float("inf"))
        key, done, wanted = STEPS_KEY, plural(steps, "step"), f"{allowed:g}"
        more = f"set train.epochs times {STEPS_KEY} to {steps} or more"
        is_longer = allowed < steps
    if not is_longer:
        return ""
    return (
        f"{key}: {finished.folder} has the results of {done}, which a training of {wanted} would replace; {more}, "
        "set another `name:`, or delete the folder"
    )


def _saved(task: Task) -> Freshness:
    """Return `longer`, `resumable`, `outdated` or `missing`, from the checkpoints of a task."""
    found, epochs = Freshness("missing"), task.run.train.epochs
    if not task.manifest.exists():
        return found  # Without its data, the fingerprint of the task is unknown; its launcher checks again.
    for folder in reversed(checkpoint_folders(task.paths.state.checkpoints)):
        try:
            saved = CheckpointManifest.read(folder)
        except (OSError, ValueError, UserError):
            continue  # The training reports checkpoints that it cannot use.
        if saved.key != task.fingerprint:
            if found.kind == "missing":
                found = _outdated(task, "of an unfinished training with other settings, data or files")
            continue
        if saved.is_beyond(epochs):
            return Freshness(
                "longer",
                f"train.epochs: {task.folder} has an unfinished training beyond epoch {epochs} ({folder.name}, step "
                f"{saved.step}); set train.epochs to more than {saved.epoch} to resume it, or delete {task.state} "
                "to start again",
            )
        found = Freshness("resumable")
    return found


def search_status(folder: Path, experiment: Experiment) -> Freshness:
    """Return what the folder of a search has of its results; `verify_settings` has compared the experiment with its start.

    The search is `finished` if it has ended and its outputs are of its last result and of these settings, `outdated` if it
    has ended with other outputs, and `resumable` otherwise.
    """
    # Imported here: the launcher of a training starts faster without the package.
    from nnlo_lib.search.study.storage import config_text
    from nnlo_lib.search.study.study import Study

    paths = SearchPaths(folder)
    outputs = paths.table, paths.best, paths.report, paths.config
    has_outputs = all(path.exists() for path in outputs)
    if not has_outputs and not paths.ended.exists():
        return Freshness("resumable")
    # The files are no proof: a result may have been deleted since, to train the fold task again.
    study = Study.of(folder, experiment)
    if not study.decisions or not study.has_ended:
        return Freshness("resumable")
    newest = max((path.stat().st_mtime_ns for path in paths.results()), default=0)
    are_current = has_outputs and paths.report.stat().st_mtime_ns >= newest
    same_settings = are_current and paths.config.read_text() == config_text(experiment)
    return Freshness("finished" if same_settings else "outdated")
