"""The settings of the first start of a search (search.json), so that all trials are comparable."""

import json
from pathlib import Path
from typing import Any

from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.edit_effects import EditEffect, keys_with, without_keys
from nnlo_lib.config.input_files import input_files
from nnlo_lib.config.paths import SearchPaths, store_of
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.json_text import differences, load_json
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.search.study.trial_archive import archive_trials, has_locking_trial

# An edit of a key with SAME_DATA that changes the samples changes the recorded `store`.
MUTABLE_KEYS = keys_with(Experiment, EditEffect.NEXT_ATTEMPT, EditEffect.SEARCH_END, EditEffect.SAME_DATA)


def freeze_or_verify_settings(folder: Path, experiment: Experiment) -> Experiment:
    """Write the settings that determine the trials of a search; at later starts, check the experiment.

    Only MUTABLE_KEYS, and seeds except the first, may change, unless no trial has a result: then the trials so
    far are moved to an archive, and the settings of this start are written.

    Args:
        folder: folder of the search, whose lease this process holds.
        experiment: the experiment of this start.

    Returns:
        The experiment, with the searched keys in the order of the first start.

    Raises:
        UserError: if settings of the experiment differ (the message names the keys), or the file is damaged.
    """
    path = SearchPaths(folder).settings
    if path.exists() and may_start_again(folder, experiment):
        archive_trials(SearchPaths(folder))
    if path.exists():
        return verify_settings(folder, experiment)
    experiment = _ordered(experiment, None)
    with atomic_write(path) as part:
        part.write_text(json.dumps(settings_to_freeze(experiment), indent=1) + "\n")
    return experiment


def verify_settings(folder: Path, experiment: Experiment) -> Experiment:
    """Check the settings of a search that was started, as `freeze_or_verify_settings`, and write nothing."""
    path = SearchPaths(folder).settings
    experiment = _ordered(experiment, _read(path))
    if (changes := _changes(path, experiment)) and has_locking_trial(SearchPaths(folder)):
        raise UserError(
            f"{path}: the search was started with other settings: {'; '.join(changes)}; "
            f"restore these settings, set another `name:`, or delete {folder}"
        )
    return experiment


def may_start_again(folder: Path, experiment: Experiment) -> bool:
    """Return True if settings that were frozen have changed, and no trial prevents the change."""
    paths = SearchPaths(folder)
    experiment = _ordered(experiment, _read(paths.settings))
    return bool(_changes(paths.settings, experiment)) and not has_locking_trial(paths)


def _changes(path: Path, experiment: Experiment) -> list[str]:
    """Return one message per frozen setting that differs from the file `path`."""
    return list(differences(without_keys(_read(path), MUTABLE_KEYS), settings_to_freeze(experiment)))


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
