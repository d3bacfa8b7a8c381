"""Data of the report page's section on a search."""

import os
from pathlib import Path
from typing import Any

from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.report.search.importance import (
    fit_forest,
    importance_figure,
    importance_note,
)
from nnlo_lib.report.search.study_data import StudyData, searched_parameters
from nnlo_lib.report.search.trial_charts import (
    convergence_figures,
    count_single_epoch_trials,
    learning_curve_figure,
    parallel_coordinates,
)
from nnlo_lib.report.search.trial_tables import (
    base_sentence,
    best_trial_sentence,
    compare_trials,
    differences_to_best,
    failure_groups,
    fold_figure,
    search_headline,
    trial_rows,
)
from nnlo_lib.report.search.utilization import cost_sentence, host_sentences
from nnlo_lib.search.effect import question_of_effect


def search_section(folder: Path, page_folder: Path | None = None) -> dict[str, Any]:
    """Return the variables of the search template. Raises UserError if an input cannot be used.

    Args:
        page_folder: folder of the page, from which the logs of the trials are linked.
    """
    data = StudyData.load(folder)
    keys = searched_parameters(data, data.ranked_rows)
    fitted = fit_forest(data, keys)
    ranked = [key for key, _ in fitted.ranked_parameters()] if fitted and fitted.is_reliable else keys
    headings, rows = trial_rows(data, searched_parameters(data, data.rows))
    comparisons = compare_trials(data)
    return {
        "title": data.study.experiment.name,
        "headline": search_headline(data),
        "question": question_of_effect(data.rows),
        "folder": folder,
        "charts": [chart for chart in (*convergence_figures(data), learning_curve_figure(data)) if chart],
        "stopped": any(row.state == "stopped" for row in data.ranked_rows),
        "single_epoch": count_single_epoch_trials(data),
        "coordinates": parallel_coordinates(data, ranked),
        "effects": importance_figure(fitted),
        "how": importance_note(data, fitted),
        "coverage": data.coverage_note({row.number for row in data.ranked_rows}),
        "folds": fold_figure(data, differences_to_best(data, comparisons)),
        "as_good": f"{best_trial_sentence(data, comparisons)} {base_sentence(data, comparisons)}".strip(),
        "folded": sum(len(row.folds) > 1 for row in data.ranked_rows),
        "failures": failure_groups(data),
        "logs": _logs(data, page_folder) if page_folder else {},
        "costs": [sentence for sentence in (cost_sentence(data), *host_sentences(data)) if sentence],
        "headings": headings,
        "rows": rows,
        "several": data.study.search.folds.k,
    }


def _logs(data: StudyData, page_folder: Path) -> dict[str, str]:
    """Return the address of the log of each trial that has one, of its first fold."""
    folds = {row.number: SearchPaths(data.study.folder).fold(row.number, 0).state.log for row in data.rows}
    return {
        str(trial): Path(os.path.relpath(log, page_folder)).as_posix()
        for trial, log in folds.items()
        if log.exists()
    }
