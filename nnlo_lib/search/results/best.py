"""Outcome of a search: the table of all trials (trials.csv) and the best trial's experiment (best.yaml)."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_origin

import yaml

from nnlo_lib.config import ConfigModel, Experiment, Run
from nnlo_lib.config.paths import SearchPaths, store_of
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.search.results.trials_csv import write_table
from nnlo_lib.search.study.plain_text import error_signature, format_objective, format_selection
from nnlo_lib.search.study.storage import StoredStudy, load_study
from nnlo_lib.search.study.trial_run import trial_run
from nnlo_lib.search.study.trial_summary import TrialSummary


def best_run(folder: Path) -> Run:
    """Return the run that retrains the best trial, for the mean number of epochs that its folds selected.

    It uses all training samples if the store has a test split and no schedule uses a validation metric.

    Args:
        folder: results/<experiment>/search.

    Raises:
        UserError: if no trial has a valid result.
    """
    record = load_study(folder)
    return _retrained(record, best_trial_summary(record))


def write_outcome(folder: Path) -> None:
    """Write trials.csv and best.yaml, each atomically. Raises UserError if no trial has a valid result."""
    record = load_study(folder)
    write_table(SearchPaths(folder).table, record)
    write_best_file(folder, record)


def write_best_file(folder: Path, record: StoredStudy | None = None) -> None:
    """Write best.yaml atomically. Raises UserError if no trial has a valid result."""
    record = record or load_study(folder)
    text = _file(record, best_trial_summary(record))
    with atomic_write(SearchPaths(folder).best) as part:
        part.write_text(text, encoding="utf-8")


def best_trial_summary(record: StoredStudy) -> TrialSummary:
    """Return the best trial. Raises UserError with the most frequent error if no trial has a valid result."""
    rows, best = record.trial_summaries, record.snapshot.best_trial()
    if best is not None:
        return rows[best]
    if not rows:
        raise UserError(f"{record.folder}: the search has no trials yet; start it with `nnlo search`")
    reasons = [row.reason for row in rows if row.reason]
    if not reasons:
        raise UserError(f"{record.folder}: no trial has a result yet; resume the search with `nnlo search`")
    (signature, count), *_ = Counter(map(error_signature, reasons)).most_common(1)
    reason = next(reason for reason in reasons if error_signature(reason) == signature)
    raise UserError(
        f"{record.folder}: none of {len(rows)} trials has a valid result; {count} of them: {reason}; see {SearchPaths.table.name} in this folder"
    )


def _retrained(record: StoredStudy, best: TrialSummary) -> Run:
    run = trial_run(record.experiment, best.point)
    # Rounds halves up; Python's `round` would round 2.5 down to 2.
    train = run.train.model_copy(update={"epochs": max(1, int(fmean(best.selected_epochs) + 0.5))})
    run = run.model_copy(update={"train": train})
    if not isinstance(run.data.validation, float):
        return run
    if "schedule" not in _keys_on_validation(run):
        manifest = store_of(run).manifest
        if not manifest.exists() or "test" in DataManifest.load(manifest).splits:
            return _on_all_samples(run)
    # If data.validation is 0, the share is that of one fold.
    share = run.data.validation or 1 / record.search.folds.k
    return _with_validation(run, share) if _keys_on_validation(run) else run


def _keys_on_validation(run: Run) -> list[str]:
    """Return the keys of `train` that use a validation metric."""
    return [key for key, metric in run.train.watched.items() if metric.startswith("val_")]


def _on_all_samples(run: Run) -> Run:
    """Return the run without held-back samples and without the settings that need them."""
    unwatched = {**dict.fromkeys(_keys_on_validation(run)), "validate_every": None, "evaluate_before": False}
    train = run.train.model_copy(update=unwatched)
    checkpoint = run.checkpoint.model_copy(update={"best": None})
    return _with_validation(run.model_copy(update={"train": train, "checkpoint": checkpoint}), 0.0)


def _with_validation(run: Run, share: float) -> Run:
    """Return the run with this share of the training samples held back for validation."""
    return run.model_copy(update={"data": run.data.model_copy(update={"validation": share})})


def _file(record: StoredStudy, best: TrialSummary) -> str:
    run = _retrained(record, best)
    experiment = Experiment(
        **run.settings, name=f"{record.experiment.name}-best", seeds=record.experiment.seeds
    )
    settings = non_default_settings(experiment)
    first = {"name": settings.pop("name")}
    text = yaml.safe_dump(first | settings, sort_keys=False, allow_unicode=True, width=100)
    return "".join(f"# {line}\n" for line in _comment(record, best, run)) + "\n" + text


def _comment(record: StoredStudy, best: TrialSummary, run: Run) -> Iterator[str]:
    file = SearchPaths(record.folder).best
    selected = ", ".join(filter(None, [f"trial {best.number}", format_selection(record.snapshot)]))
    yield f"Best of {len(record.snapshot.trials)} trials of the search of experiment {record.experiment.name}: {selected}."
    yield f"{format_objective(record.search.objective, best)}; {SearchPaths.table.name} in this folder lists all trials."
    if record.search.objective.epoch == "best":
        yield f"{run.train.epochs} epochs: mean of the best epochs of its folds ({', '.join(map(str, best.selected_epochs))})."
    elif run.train.epochs < record.experiment.train.epochs:
        yield f"{run.train.epochs} epochs: mean number of epochs of its folds ({', '.join(map(str, best.selected_epochs))})."
    if run.data.validation == 0:
        yield "No samples are held back for validation: the model is trained on all training samples and evaluated on the test split."
        if removed := _keys_on_validation(trial_run(record.experiment, best.point)):
            yield f"Settings that need validation samples are removed: {', '.join(f'train.{key}' for key in removed)}."
    elif "schedule" in _keys_on_validation(run):
        metric = run.train.watched["schedule"]
        yield f"Samples are held back for validation because the learning-rate schedule uses {metric} (train.schedule)."
    yield f"  nnlo run {file}"
    yield f"  snakemake --profile profiles/local --configfile {file}"


def non_default_settings(value: Any) -> Any:
    """Return the settings without defaults; parsing the result gives an equal section."""
    if isinstance(value, tuple | list):
        return [non_default_settings(each) for each in value]
    if isinstance(value, dict):
        return {key: non_default_settings(each) for key, each in value.items()}
    if not isinstance(value, ConfigModel):
        return value
    problem_defaults = value.problem_default_keys if isinstance(value, Run) else ()
    return {
        key: non_default_settings(getattr(value, key))
        for key, field in type(value).model_fields.items()
        if key not in problem_defaults
        if (key == "name" and get_origin(field.annotation) is Literal)
        or getattr(value, key) != field.get_default(call_default_factory=True)
    }
