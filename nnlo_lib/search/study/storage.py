"""A search on disk: the experiment of its latest start, the settings of its first start, and the run of each point.

All trials of a search are comparable because the settings of its first start (search.json) determine them. If they are
edited before any trial has a result, the trials so far are archived.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nnlo_lib.config import Experiment, Run, merge_settings
from nnlo_lib.config.base import EditEffect, keys_with, non_defaults, without_keys
from nnlo_lib.config.model import input_files
from nnlo_lib.config.paths import ExperimentPaths, RunPaths, SearchPaths, store_of
from nnlo_lib.config.search import SearchConfig
from nnlo_lib.core.atomic_file import differences, file_sha256, load_json, write_settings
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.search.space.space import nested
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import FoldTask, SearchPoint, read_result, read_trial, read_trials
from nnlo_lib.search.study.trial_summary import TrialSummary, summarize_trial

logger = get_logger(__name__)

# An edit of a key with SAME_DATA that changes the samples changes the recorded `store`.
MUTABLE_KEYS = keys_with(Experiment, EditEffect.NEXT_ATTEMPT, EditEffect.SEARCH_END, EditEffect.SAME_DATA)


@dataclass(frozen=True)
class StoredStudy:
    """A search as read from its folder."""

    folder: Path
    experiment: Experiment
    snapshot: StudySnapshot

    @property
    def search(self) -> SearchConfig:
        """Return the settings of the search."""
        return self.snapshot.search

    @property
    def trial_summaries(self) -> list[TrialSummary]:
        """Return a summary of each trial."""
        return [summarize_trial(self.snapshot, trial.number) for trial in self.snapshot.trials]


def load_study(folder: Path) -> StoredStudy:
    """Read the folder of a search. Raises UserError if it contains no valid search."""
    try:
        experiment = read_config(folder)
    except FileNotFoundError as error:
        raise UserError(f"{folder} is not the folder of a search: config.json is missing") from error
    except PermissionError as error:
        raise UserError(
            f"{folder}/config.json: only its owner can read it, because it has a password or token; write ${{VARIABLE}} in "
            "its place in the experiment"
        ) from error
    except ValueError as error:
        raise UserError(f"{folder}/config.json is not valid for this version of nnlo_lib: {error}") from error
    if experiment.search is None:
        raise UserError(f"{folder}/config.json has no `search` section")
    trials = read_trials(folder)
    tasks = (decision.task for trial in trials for decision in trial.decisions)
    results = {task: result for task in tasks if (result := read_result(folder, task))}
    return StoredStudy(
        folder, experiment, StudySnapshot(experiment.search, experiment.train.epochs, trials, results)
    )


def read_config(folder: Path) -> Experiment:
    """Return the experiment of the search in a folder."""
    return Experiment.model_validate(load_json(SearchPaths(folder).config.read_text()))


def search_folder(experiment: Experiment) -> Path:
    """Return the folder of an experiment's search."""
    return ExperimentPaths(experiment.name).search.folder


def write_config(experiment: Experiment) -> None:
    """Write the resolved experiment atomically."""
    write_settings(ExperimentPaths(experiment.name).search.config, config_text(experiment))


def config_text(experiment: Experiment) -> str:
    """Return the resolved experiment as JSON."""
    # Read back, defaults of the problem would count as settings of the user, in trials with another problem, too.
    return json.dumps(experiment.model_dump(mode="json", exclude=experiment.problem_default_keys), indent=1)


def freeze_or_verify_settings(folder: Path, experiment: Experiment) -> Experiment:
    """Write the settings that determine the trials of a search; at later starts, check the experiment.

    Only MUTABLE_KEYS, and seeds except the first, may change, unless no trial has a result: then the trials so
    far are moved to an archive, and the settings of this start are written. This process holds the search's lease.
    Return the experiment, with the searched keys in the order of the first start. Raises UserError if settings differ (the
    message names the keys), or the file is damaged.
    """
    path = SearchPaths(folder).settings
    if path.exists() and may_start_again(folder, experiment):
        archive_trials(SearchPaths(folder))
    if path.exists():
        return verify_settings(folder, experiment)
    experiment = _ordered(experiment, None)
    write_settings(path, json.dumps(settings_to_freeze(experiment), indent=1) + "\n")
    return experiment


def verify_settings(folder: Path, experiment: Experiment) -> Experiment:
    """Check the settings of a search that was started, as `freeze_or_verify_settings`, and write nothing."""
    path = SearchPaths(folder).settings
    experiment = _ordered(experiment, _read(path))
    if (changes := _changes(path, experiment)) and has_locking_trial(SearchPaths(folder)):
        only_space = all(change.startswith("search.space") for change in changes)
        known = f" with `search.known: {SearchPaths(folder).table}`, which counts its trials in the new space"
        raise UserError(
            f"{path}: the search was started with other settings: {'; '.join(changes)}; "
            f"restore these settings, set another `name:`{known * only_space}, or delete {folder}"
        )
    return experiment


def may_start_again(folder: Path, experiment: Experiment) -> bool:
    """Return True if settings that were frozen have changed, and no trial prevents the change."""
    paths = SearchPaths(folder)
    experiment = _ordered(experiment, _read(paths.settings))
    return bool(_changes(paths.settings, experiment)) and not has_locking_trial(paths)


def has_locking_trial(paths: SearchPaths) -> bool:
    """Return True if a trial has a finished result, or may be training now."""
    # A result that cannot be read is kept, because it may be valid.
    finished = any(_may_be_finished(path.read_bytes()) for path in paths.results())
    return finished or any(RunPaths(fold).state.lease.exists() for fold in paths.trials.glob("*/fold-*"))


def archive_trials(paths: SearchPaths) -> None:
    """Move the trials and the settings of a search to a new folder; the caller holds the search's lease."""
    former = paths.next_archive
    former.mkdir()
    # The settings come last: until then, a repeated start finds that they differ and archives the rest.
    for path in (paths.trials, paths.ended, paths.state.pool_failures, paths.settings):
        if path.exists():
            path.rename(former / path.name)
    logger.warning(
        f"{paths.folder}: settings of the search changed before any trial had a result; the search starts again, and "
        f"the trials so far were moved to {former}"
    )


def _may_be_finished(content: bytes) -> bool:
    try:
        return bool(load_json(content)["status"] == "finished")
    except (ValueError, KeyError, TypeError):
        return True


def _changes(path: Path, experiment: Experiment) -> list[str]:
    """Return one message per frozen setting that differs from the file `path`."""
    frozen = without_keys(_read(path), MUTABLE_KEYS)
    return list(differences(frozen, settings_to_freeze(experiment), non_defaults(experiment)))


def settings_to_freeze(experiment: Experiment) -> dict[str, Any]:
    """Return all settings that determine the trials of an experiment's search, as JSON values by key."""
    assert experiment.search is not None, "the experiment has no `search:` section"
    base = experiment.model_dump(mode="json", include=set(Run.model_fields))
    search = experiment.search.model_dump(mode="json", exclude={"space"})
    space = experiment.search.model_dump(mode="json", include={"space"}, exclude_unset=True)
    settings = base | {
        # Trials use the first seed only; the others are for the retraining and may change.
        "seeds": experiment.seeds[0],
        "search": search | space,
    }
    frozen: dict[str, Any] = without_keys(settings, MUTABLE_KEYS)
    files = {path: file_sha256(Path(path))[:16] for path in search_files(experiment)}
    return frozen | {"store": store_of(experiment).folder.name, "files": files}


def search_files(experiment: Experiment) -> list[str]:
    """Return the user's files that any trial, the sampler or the pruner may use and that exist."""
    assert experiment.search is not None, "the experiment has no `search:` section"
    search = input_files(experiment.search.model_dump(mode="json"))
    return sorted({path for path in (*experiment.input_files, *search) if Path(path).is_file()})


def _ordered(experiment: Experiment, recorded: Any) -> Experiment:
    """Order the searched keys as at the first start, then by name: proposals depend on the order."""
    search = experiment.search
    assert search is not None, "the experiment has no `search:` section"
    first = list(recorded.get("search", {}).get("space", {})) if isinstance(recorded, dict) else []
    keys = sorted(search.space, key=lambda key: (first.index(key) if key in first else len(first), key))
    if keys == list(search.space):
        return experiment
    ordered = search.model_copy(update={"space": {key: search.space[key] for key in keys}})
    return experiment.model_copy(update={"search": ordered})


def _read(path: Path) -> dict[str, Any]:
    try:
        settings = load_json(path.read_text())
        # Without this section the file is not of a search: `{}` would differ in every key.
        return {**settings, "search": settings["search"]}
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is damaged ({error}); restore the file, or delete {path.parent}") from error


def trial_run(experiment: Experiment, point: SearchPoint) -> Run:
    """Return the base run changed by a point. Raises UserError if the result is not a valid run."""
    base = experiment.settings
    try:
        return Run.model_validate(merge_settings(base, nested(point)))
    except ValidationError as error:
        what = "; ".join(
            str(detail.get("ctx", {}).get("message", detail["msg"])) for detail in error.errors()
        )
        raise UserError(f"{what}: search.space gives no valid run at {{{format_point(point)}}}") from error


def fold_task_run(experiment: Experiment, folder: Path, fold_task: FoldTask) -> Run:
    """Return the run of a fold task, or the base run if its point gives no valid run (the job reports it)."""
    try:
        return trial_run(experiment, read_trial(folder, fold_task.trial).point)
    except UserError:
        return trial_run(experiment, {})


def format_point(point: SearchPoint) -> str:
    """Return a point as one line of text."""
    return ", ".join(f"{key} = {value}" for key, value in point.items())
