"""What a search has found: the best trial, as a table of all and as an experiment file that trains it on all data."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import yaml

from nnlo_lib.config import Experiment, Run
from nnlo_lib.data.atomic import replacing
from nnlo_lib.data.manifest import Manifest
from nnlo_lib.errors import UserError
from nnlo_lib.jobs import manifest_of
from nnlo_lib.search.record import Record, read_record
from nnlo_lib.search.row import Row
from nnlo_lib.search.words import among, cause, measured
from nnlo_lib.tune.table import write_table
from nnlo_lib.tune.trial_run import trial_run
from nnlo_lib.tune.written import written

BEST, TRIALS = "best.yaml", "trials.csv"


def best_run(folder: Path) -> Run:
    """Return the training of the best trial on all data, for the epochs that its folds chose.

    folder: results/<experiment>/search. Raises UserError if no trial came to anything.
    """
    record = read_record(folder)
    return _retrained(record, best_row(record))


def write_outcome(folder: Path) -> None:
    """Write trials.csv and best.yaml, each in one move. Raises UserError if no trial came to anything."""
    record = read_record(folder)
    write_table(folder / TRIALS, record)
    best = best_row(record)
    with replacing(folder / BEST) as part:
        part.write_text(_file(record, best), encoding="utf-8")


def best_row(record: Record) -> Row:
    """Return the best trial. Raises UserError if there is none, with the most frequent error."""
    rows, best = record.rows, record.known.best()
    if best is not None:
        return rows[best]
    if not rows:
        raise UserError(f"{record.folder}: no trial has been made yet")
    reasons = [row.reason for row in rows if row.reason]
    if not reasons:
        raise UserError(f"{record.folder}: no trial has ended yet")
    (most, count), *_ = Counter(map(cause, reasons)).most_common(1)
    reason = next(reason for reason in reasons if cause(reason) == most)
    raise UserError(
        f"{record.folder}: none of {len(rows)} trials came to anything; {count} of them: {reason}; see {TRIALS} there"
    )


def _retrained(record: Record, best: Row) -> Run:
    run = trial_run(record.experiment, best.point)
    train = run.train.model_copy(update={"epochs": max(1, int(fmean(best.chosen) + 0.5))})
    run = run.model_copy(update={"train": train})
    if not isinstance(run.data.validation, float):
        return run
    if "schedule" not in _validating(run) and _has_test(run):
        return _on_all_samples(run)
    held = run.data.validation or 1 / record.search.folds.k  # as much as in a fold, where only folds validate
    return _holding(run, held) if _validating(run) else run


def _validating(run: Run) -> list[str]:
    """Return the keys of `train` that follow what validation samples say."""
    return [key for key, metric in run.train.watched.items() if metric.startswith("val_")]


def _on_all_samples(run: Run) -> Run:
    """Hold no samples back, and leave out what would look at them."""
    unwatched = {**dict.fromkeys(_validating(run)), "validate_every": None, "evaluate_before": False}
    train = run.train.model_copy(update=unwatched)
    checkpoint = run.checkpoint.model_copy(update={"best": None})
    return _holding(run.model_copy(update={"train": train, "checkpoint": checkpoint}), 0.0)


def _holding(run: Run, share: float) -> Run:
    """Hold this share of the training samples back for validation."""
    return run.model_copy(update={"data": run.data.model_copy(update={"validation": share})})


def _has_test(run: Run) -> bool:
    path = Path(manifest_of(run))
    return not path.exists() or "test" in Manifest.load(path).splits


def _file(record: Record, best: Row) -> str:
    run = _retrained(record, best)
    experiment = Experiment(
        **run.settings, name=f"{record.experiment.name}-best", seeds=record.experiment.seeds
    )
    settings = written(experiment)
    first = {"name": settings.pop("name")}
    text = yaml.safe_dump(first | settings, sort_keys=False, allow_unicode=True, width=100)
    return "".join(f"# {line}\n" for line in _comment(record, best, run)) + "\n" + text


def _comment(record: Record, best: Row, run: Run) -> Iterator[str]:
    file = record.folder / BEST
    chosen = ", ".join(filter(None, [f"trial {best.number}", among(record.known)]))
    yield f"The best of {len(record.known.trials)} trials of the search of {record.experiment.name}: {chosen}."
    yield f"{measured(record.search.objective, best)}; {TRIALS} beside this file has all."
    if record.search.objective.epoch == "best":
        yield f"{run.train.epochs} epochs: the mean of the best of its folds ({', '.join(map(str, best.chosen))})."
    elif run.train.epochs < record.experiment.train.epochs:
        yield f"{run.train.epochs} epochs: those of its folds ({', '.join(map(str, best.chosen))})."
    if run.data.validation == 0:
        yield "No samples are held back for validation: it learns from all, and is measured on the test split."
        if left_out := _validating(trial_run(record.experiment, best.point)):
            yield f"Without them there is nothing to watch; left out: {', '.join(f'train.{key}' for key in left_out)}."
    elif "schedule" in _validating(run):
        metric = run.train.watched["schedule"]
        yield f"Samples are still held back for validation, as the learning rate follows {metric} (train.schedule)."
    yield f"  nnlo run {file}"
    yield f"  snakemake --profile profiles/local --configfile {file}"
