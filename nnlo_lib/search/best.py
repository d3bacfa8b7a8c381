"""Outcome of a search: the table of all trials (trials.csv) and the best trial's experiment (best.yaml)."""

import csv
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_origin

import yaml

from nnlo_lib.config import ConfigModel, Experiment, Run
from nnlo_lib.config.paths import SearchPaths, store_of
from nnlo_lib.config.search import SearchConfig
from nnlo_lib.config.space import DimensionConfig
from nnlo_lib.core.atomic_file import atomic_write, write_settings
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import plural
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.space.validate import extremes
from nnlo_lib.search.study.storage import StoredStudy, format_point, load_study, trial_run
from nnlo_lib.search.study.trial import SearchPoint
from nnlo_lib.search.study.trial_summary import (
    TrialSummary,
    error_signature,
    format_front,
    format_objective,
    format_selection,
)

logger = get_logger(__name__)

# Columns of trials.csv before and after the values of the folds.
FIRST = ("trial", "status", "objective", "adjusted_from_folds", "standard_error")
COSTS = ("epochs", "seconds", "core_hours", "gpu_hours")


def write_outcome(folder: Path) -> None:
    """Write trials.csv and best.yaml, each atomically. Raises UserError if no trial has a valid result."""
    record = load_study(folder)
    write_table(SearchPaths(folder).table, record)
    write_best_file(folder, record)


def write_best_file(folder: Path, record: StoredStudy | None = None) -> None:
    """Write best.yaml atomically. Raises UserError if no trial has a valid result."""
    record = record or load_study(folder)
    text = _file(record, best_trial_summary(record))
    write_settings(SearchPaths(folder).best, text)


def write_table(path: Path, record: StoredStudy) -> None:
    """Write the table atomically, one row per trial: objectives, value of each fold, costs, point and error.

    Unknown values, and keys that are not active in a trial, are left empty.
    """
    others = [f"objective_{each.metric}" for each in record.search.objectives[1:]]
    folds = [*others, *["front"] * bool(others), *(f"fold_{fold}" for fold in range(record.search.folds.k))]
    if record.search.objective.epoch == "best":
        folds += [f"best_epoch_{fold}" for fold in range(record.search.folds.k)]
    rows = record.trial_summaries
    keys = list(record.search.space) + sorted(
        {key for row in rows for key in row.point} - record.search.space.keys()
    )
    with atomic_write(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        columns = [*FIRST, *folds, *COSTS, *keys, "error"]
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(_cells(row, others) for row in rows)


def _cells(row: TrialSummary, others: Sequence[str]) -> dict[str, Any]:
    known = {
        "trial": row.number, "status": row.state, "objective": row.objective,
        "adjusted_from_folds": row.adjusted_from or "", "standard_error": row.standard_error,
        "epochs": row.epochs, "seconds": round(row.seconds, 3), "core_hours": round(row.core_hours, 6),
        "gpu_hours": round(row.gpu_hours, 6), "error": row.reason,
    }  # fmt: skip
    folds: dict[str, Any] = {}
    for fold, value, epoch in zip(row.fold_numbers, row.folds, row.selected_epochs, strict=True):
        folds |= {f"fold_{fold}": value, f"best_epoch_{fold}": epoch if math.isfinite(value) else ""}
    folds |= dict(zip(others, row.others, strict=False)) | ({"front": "yes"} if row.on_front else {})
    # An empty cell means that the key is not active; null is a value.
    point = {key: "null" if value is None else value for key, value in row.point.items()}
    # Only NaN differs from itself.
    return {key: "" if value != value else value for key, value in (known | folds | point).items()}


def read_known(search: SearchConfig) -> list[tuple[SearchPoint, float]]:
    """Return points and values, the smaller the better, of the finished trials in the table `search.known` that are in the space.

    Log how many rows do not count. Raises UserError if the file is no table of trials, or no row counts.
    """
    space, found, path = SearchSpace(search.space), list[tuple[SearchPoint, float]](), search.known or ""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [dict(row) for row in csv.DictReader(file)]
        for row in rows:
            # The columns of keys stand between the costs and the error.
            cells = {key: row[key] for key in list(row)[list(row).index(COSTS[-1]) + 1 : -1] if row[key]}
            values = {
                key: _value(search.space[key], cell) for key, cell in cells.items() if key in space.scales
            }
            point = space.drop_inactive(values)
            if row["status"] == "finished" and cells.keys() <= point.keys() and point in space:
                found.append((point, search.objective.sign * float(row["objective"])))
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise UserError(
            f"search.known: {path} cannot be read as a trials.csv of a search: {error}; name the table of one"
        ) from error
    skipped = f"{plural(len(rows) - len(found), 'row')} of {path}"
    why = "not finished, or with keys or values outside of search.space"
    if not found:
        raise UserError(f"search.known: all {skipped} are {why}; widen the space, or remove search.known")
    if len(found) < len(rows):
        logger.warning(f"search.known: {skipped} do not count: {why}")
    return found


def _value(dimension: DimensionConfig, cell: str) -> Any:
    """Return the value of a cell of the table, also if a spreadsheet wrote 1 as 1.0; NaN if the dimension does not have it."""
    number = math.nan
    with suppress(ValueError):
        number = float(cell)
    if dimension.kind in ("choice", "constant"):
        values = extremes(dimension)
        numbers = {each: each for each in values if type(each) in (int, float)}
        texts = {"null" if each is None else str(each): each for each in values}
        return texts.get(cell, numbers.get(number, math.nan))
    return int(number) if "integer" in dimension.kind and number.is_integer() else number


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


def best_run(folder: Path) -> Run:
    """Return the run that retrains the best trial, for the mean number of epochs that its folds selected.

    It uses all training samples if the store has a test split and no schedule uses a validation metric.
    Raises UserError if no trial has a valid result.
    """
    record = load_study(folder)
    return _retrained(record, best_trial_summary(record))


def _retrained(record: StoredStudy, best: TrialSummary) -> Run:
    run = trial_run(record.experiment, best.point)
    train = run.train.model_copy(update={"epochs": best.retrained_epochs})
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
    yield f"Best of {plural(len(record.snapshot.trials), 'trial')} of the search of experiment {record.experiment.name}: {selected}."
    yield f"{format_objective(record.search.objective, best)}; {SearchPaths.table.name} in this folder lists all trials."
    if front := format_front(record.snapshot):
        yield f"Trial {best.number} is {front}."
    if record.search.objective.epoch == "best":
        yield f"{plural(run.train.epochs, 'epoch')}: mean of the best epochs of its folds ({', '.join(map(str, best.selected_epochs))})."
    elif run.train.epochs < record.experiment.train.epochs:
        yield f"{plural(run.train.epochs, 'epoch')}: mean number of epochs of its folds ({', '.join(map(str, best.selected_epochs))})."
    if len(lineage := record.snapshot.lineage(best.number)) > 1:
        yield "Population-based training changed the searched keys on the way; this file has those of the last epochs, for all epochs:"
        for trial, epoch in lineage.items():
            yield f"  from epoch {epoch} as trial {trial}: {format_point(record.snapshot.trials[trial].point)}"
        model = SearchPaths(record.folder).fold(best.number, 0).model
        yield (
            f"Its own weights: {model}"
            if model.exists()
            else "It ended before the last epoch and has published no weights."
        )
    if run.data.validation == 0:
        yield "No samples are held back for validation: the model is trained on all training samples and evaluated on the test split."
        if removed := _keys_on_validation(trial_run(record.experiment, best.point)):
            yield f"Settings that need validation samples are removed: {', '.join(f'train.{key}' for key in removed)}."
    elif "schedule" in _keys_on_validation(run):
        metric = run.train.watched["schedule"]
        yield f"Samples are held back for validation because the learning-rate schedule uses {metric} (train.schedule)."
    yield f"  nnlo run {file}"
    yield f"  nnlo all {file}"


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
