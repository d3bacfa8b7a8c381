"""Export of a search as a study of Optuna, for its dashboard and its evaluators; does not import torch."""

import json
import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from nnlo_lib.config.paths import SEARCH_FOLDER, SearchPaths
from nnlo_lib.config.space import DimensionConfig
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import plural
from nnlo_lib.search.study.storage import StoredStudy, load_study
from nnlo_lib.search.study.trial import Result
from nnlo_lib.search.study.trial_summary import TrialSummary

STATES = {
    "finished": "COMPLETE",
    "stopped": "PRUNED",
    "running": "RUNNING",
    "failed": "FAIL",
    "unwanted": "FAIL",
}


def export_study(folder: Path, output: Path | None) -> str:
    """Write the search of an experiment as an SQLite file of Optuna; return a sentence with the command of its dashboard.

    A trial has the values of the objective by epoch, the mean over its folds. `stopped` becomes PRUNED; `failed` and `unwanted`
    become FAIL, with their reason as an attribute.

    Args:
        folder: folder of an experiment, or of its search.
        output: file with the suffix .db; None: optuna.db in the folder of the search.

    Raises:
        UserError: if Optuna is not installed, or the folder contains no search.
    """
    try:
        import optuna
    except ImportError as error:
        raise UserError(
            "--to optuna: the package optuna is not installed; pip install 'nnlo[optuna]'"
        ) from error
    search = folder / SEARCH_FOLDER
    stored = load_study(search if search.is_dir() else folder)
    output = output or SearchPaths(stored.folder).optuna
    if output.suffix != ".db":
        raise UserError(f"{output}: unknown suffix; the suffix of --to optuna is .db")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    rows, objective = stored.trial_summaries, stored.search.objective
    with atomic_write(output) as part:
        study = optuna.create_study(
            storage=f"sqlite:///{part.absolute()}",
            study_name=stored.experiment.name,
            directions=["minimize" if each.sign > 0 else "maximize" for each in stored.search.objectives],
        )
        study.set_user_attr("metric", objective.metric)
        study.set_user_attr("folder", str(stored.folder))
        distributions = {
            key: _distribution(dimension, present)
            for key, dimension in stored.search.space.items()
            if (present := [row.point[key] for row in rows if key in row.point])
        }
        study.add_trials([_trial(stored, row, distributions) for row in rows])
    return f"{output}: {plural(len(rows), 'trial')} of {stored.folder}; see them by: optuna-dashboard sqlite:///{output}"


def _distribution(dimension: DimensionConfig, present: Sequence[Any]) -> Any:
    """Return Optuna's distribution of a key; it includes values of trials outside of the searched ones."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    is_range = dimension.kind not in ("choice", "constant")
    if is_range and all(isinstance(each, int | float) and not isinstance(each, bool) for each in present):
        low, high = (limit([*dimension.bounds, *present]) for limit in (min, max))
        kind = IntDistribution if dimension.kind.endswith("integer") else FloatDistribution
        return kind(low, high, log=dimension.kind.startswith("log") and low > 0)
    listed = dimension.choice or () if dimension.kind == "choice" else ()
    # By repr, because True == 1 == 1.0 in Python.
    return CategoricalDistribution([*{repr(each): _scalar(each) for each in [*listed, *present]}.values()])


def _scalar(value: Any) -> Any:
    """Return a value as Optuna has it: lists and mappings as JSON."""
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


def _trial(stored: StoredStudy, row: TrialSummary, distributions: dict[str, Any]) -> Any:
    from optuna.trial import FrozenTrial, TrialState

    known = stored.snapshot
    rungs = {
        epochs: [known.results[each] for each in tasks if each in known.results]
        for epochs, tasks in known.trials[row.number].rungs.items()
    }
    results = [result for found in rungs.values() for result in found]
    top = next((found for found in reversed(rungs.values()) if found), [])
    state = TrialState[STATES[row.state]]
    values = [row.objective, *row.others]
    has_value = math.isfinite(sum(values)) and row.state in ("finished", "stopped")
    times = [datetime.fromtimestamp(each) for result in results for span in result.spans for each in span]
    reason = {"reason": row.reason} if row.reason else {}
    return FrozenTrial(
        number=row.number,
        trial_id=row.number,
        state=state,
        value=None,
        values=values if has_value else None,
        datetime_start=min(times, default=datetime.fromtimestamp(0)),
        datetime_complete=max(times, default=datetime.fromtimestamp(0)) if state.is_finished() else None,
        params={key: _scalar(value) for key, value in row.point.items()},
        distributions={key: distributions[key] for key in row.point},
        user_attrs={
            "state": row.state,
            "epochs": row.epochs,
            "folds": list(row.folds),
            "seconds": row.seconds,
            **reason,
        },
        system_attrs={},
        intermediate_values=_values_by_epoch(stored, top),
    )


def _values_by_epoch(stored: StoredStudy, folds: Sequence[Result]) -> dict[int, float]:
    """Return the mean of the finite values of the folds at each epoch."""
    metric, found = stored.search.objective.metric, dict[int, list[float]]()
    for result in folds:
        for epoch, row in enumerate(result.rows, 1):
            value = row.get(metric)
            if value is not None and math.isfinite(value):
                found.setdefault(epoch, []).append(value)
    return {epoch: fmean(values) for epoch, values in sorted(found.items())}
