"""Finished trainings for users of Python: one run with its model and its predictions, and all runs of an experiment."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnlo_lib.config.base import suggest_name
from nnlo_lib.config.metrics import metric_direction
from nnlo_lib.config.paths import SEARCH_FOLDER, SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.state.finished_run import FinishedRun, find_data_manifest, finished_runs

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from nnlo_lib.data.store.manifest import DataManifest

SHOWN = 12  # runs named in an error
logger = get_logger(__name__)


class TrainedRun(FinishedRun):
    """A run that was trained and published in `folder`.

    Besides `model`, `predict` and `classes`, it has the properties `summary` and `evaluation` (dictionaries), `history`
    (a DataFrame, one row per epoch) and `config` (the settings). They raise UserError if their file is missing or damaged.

    Example:
        run = nnlo_lib.load_run("results/quickstart/allreduce/seed-1")
        run.history[["epoch", "val_loss"]]
        classes = run.predict(images).argmax(1)
    """

    def model(self) -> "nn.Module":
        """Return the trained model in evaluation mode, on the CPU.

        Raises UserError if the files of the run do not hold the model, or its data store is not found.
        """
        # Imports torch, which users of the summary and the history do not need.
        from nnlo_lib.train.evaluation.evaluate import load_published_model

        return load_published_model(self.config, self.data, self.paths.model)[0]

    def predict(self, *inputs: Any) -> Any:
        """Return the model's outputs for samples, prepared as in the training.

        Args:
            inputs: a DataFrame with the columns of the training's table; or one array (n, *shape) for each input of the
                model, in the units of the data store: images as bytes if they are stored so.

        Returns:
            Array (n, outputs); for a model with several outputs, the same structure with arrays.

        Raises:
            UserError: if a column is missing, an array has another shape or type than the samples of the data store, or a
                value is missing, NaN or infinite; with row and column. If the run's files are incomplete.
        """
        from nnlo_lib.train.evaluation.evaluate import load_published_model, outputs_of
        from nnlo_lib.workflow.prediction import model_inputs

        samples = model_inputs(self.data, inputs)
        return outputs_of(*load_published_model(self.config, self.data, self.paths.model), samples)

    @property
    def classes(self) -> list[str]:
        """Names of the classes in the order of the outputs, or their numbers; empty if the labels are no classes."""
        return self.data.class_labels

    @cached_property
    def data(self) -> "DataManifest":
        """Manifest of the data store of the training."""
        from nnlo_lib.data.store.manifest import DataManifest

        recorded = self.summary.get("data", {}).get("manifest", "")
        path = find_data_manifest(self.folder, recorded) if recorded else None
        if path is None:
            raise UserError(
                f"{self.folder}: the data store {recorded} of the training is not found; convert the data set again, or evaluate "
                f"{self.paths.model} with --experiment FILE"
            )
        return DataManifest.load(path)


@dataclass(frozen=True)
class ExperimentResults:
    """The finished and evaluated runs below `folder`, results/<experiment>/ or results/<experiment>/<run>/.

    Attributes:
        runs: one element for each run, seed and fold.
    """

    folder: Path
    runs: tuple[TrainedRun, ...]

    @cached_property
    def table(self) -> "pd.DataFrame":
        """One row for each of `runs`: run, seed, fold and results; the columns of summary.csv."""
        from nnlo_lib.report.tables import summarize

        return summarize(self.runs)

    def best(self, metric: str | None = None) -> TrainedRun:
        """Return the best training of the run with the best mean over its seeds and folds; log how it was chosen.

        Validation samples choose: the test split then measures how good the chosen model is for new data. A metric of the test
        split is used if it is named, `test_accuracy`, or if a run has no validation.

        Args:
            metric: such as `accuracy` or `loss` (of the validation samples), or `test_accuracy`; by default the metric by
                which the report page ranks the runs.

        Raises:
            UserError: if no metric ranks the runs, or the metric is unknown.
        """
        from nnlo_lib.core.text_format import plural
        from nnlo_lib.report.statistics.run_comparison import ComparedMetric, evaluated_split, ranking_metric
        from nnlo_lib.report.tables import first_and_equal, spread_by_run

        table = self.table
        chosen, split = ranking_metric(table), evaluated_split(table)
        if metric is not None:
            ranked = [
                name for name in map(str, table) if metric_direction(name) and table[name].notna().any()
            ]
            asked = metric.removeprefix("test_")
            if asked not in ranked:
                raise UserError(
                    f"{self.folder}: no metric '{metric}' ranks the runs; {suggest_name(metric, ranked)}"
                )
            chosen = ComparedMetric(asked, metric_direction(asked) == "larger", split=split)
        if chosen and not (metric or "").startswith("test_") and not chosen.is_validation:
            validation = f"val_{chosen.column}"
            # Without `metrics: [balanced_accuracy]`, no epoch has this metric, even if labels are imbalanced.
            if metric is None and validation == "val_balanced_accuracy" and validation not in table:
                validation = "val_accuracy"
            if validation in table and table[validation].notna().all():
                chosen = replace(chosen, column=validation)
        if chosen is None:
            raise UserError(
                f"{self.folder}: no metric ranks the runs, as on the report page; name one: best('loss')"
            )
        values = spread_by_run(table, chosen.column)
        name = first_and_equal(values, bool(chosen.highest))[0]
        results = table[chosen.column].astype(float).to_numpy()
        places = np.flatnonzero((table["run"] == name).to_numpy() & np.isfinite(results))
        best = int(max(places, key=lambda place: results[place] if chosen.highest else -results[place]))
        order = "highest" if chosen.highest else "lowest"
        logger.info(
            f"{self.runs[best].folder}: {name} has the {order} mean {chosen.words} of {plural(len(values), 'run')}, {values[name].mean:.6g}; "
            f"of its {plural(len(places), 'training')}, this one has the {order}, {results[best]:.6g}"
        )
        return self.runs[best]


def load_run(folder: str | Path) -> TrainedRun:
    """Return the finished run in `folder`, which contains summary.json.

    Raises UserError if there is none; the message lists the finished runs below the folder.
    """
    run = TrainedRun(Path(folder))
    if not run.paths.summary.exists():
        below = [str(each.folder.relative_to(folder)) for each in _finished_below(run.folder)]
        shown = ", ".join(below[:SHOWN]) + (", ..." if len(below) > SHOWN else "")
        raise UserError(
            f"{folder}: not the folder of one training, but {len(below)} are below it: {shown}; name one of them"
            if below
            else f"{folder}: no finished training ({run.paths.summary.name} is missing); name results/<experiment>/<run>/seed-<s>"
        )
    run.summary  # noqa: B018 - read now, so that a damaged file is reported here
    return run


def load_results(folder: str | Path) -> ExperimentResults:
    """Return the finished runs of an experiment, results/<experiment>/. Raises UserError if there are none."""
    found = _finished_below(Path(folder))
    evaluated = tuple(run for run in found if run.paths.evaluation.exists())
    for run in found:
        if run not in evaluated:
            logger.warning(
                f"{run.folder}: left out, because {run.paths.evaluation.name} is missing; run the command again"
            )
    if not evaluated:
        hint = "name results/<experiment>"
        if (best := SearchPaths(Path(folder) / SEARCH_FOLDER).best).exists():
            hint = f"train the best trial (nnlo run {best}) and name {folder}-best"
        raise UserError(f"{folder}: no finished and evaluated training below it; {hint}")
    return ExperimentResults(Path(folder), evaluated)


def run_or_best(folder: Path) -> Path:
    """Return `folder` if it is the folder of a run, else the folder of the best run of the experiment in it."""
    return folder if TrainedRun(folder).paths.summary.exists() else load_results(folder).best().folder


def _finished_below(folder: Path) -> list[TrainedRun]:
    places = [folder, *sorted(path for path in folder.glob("*") if path.is_dir())]
    return [TrainedRun(run.folder) for place in places for run in finished_runs(place)]
