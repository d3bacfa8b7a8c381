"""Data of the report page's section on a search, with its cost and hosts."""

import os
from pathlib import Path
from typing import Any

from nnlo_lib.config.paths import ExperimentPaths, SearchPaths
from nnlo_lib.core.text_format import number, plural
from nnlo_lib.report.formatting import core_cost, format_duration
from nnlo_lib.report.search.importance import fit_forest, importance_figure, importance_note
from nnlo_lib.report.search.study_data import StudyData, searched_parameters
from nnlo_lib.report.search.trial_charts import (
    convergence_figure,
    fold_mean_curve,
    front_figures,
    learning_curve_figure,
    parallel_coordinates,
)
from nnlo_lib.report.search.trial_tables import (
    base_sentence,
    best_trial_sentence,
    compare_trials,
    failure_groups,
    fold_figure,
    search_headline,
    trial_rows,
)
from nnlo_lib.report.sections.origin import hardware_texts
from nnlo_lib.search.cost_estimate import trained_seconds
from nnlo_lib.search.effect import question_of_effect
from nnlo_lib.search.study.study import union_length
from nnlo_lib.search.study.trial import resource_hours


def search_section(folder: Path, page_folder: Path | None = None) -> dict[str, Any]:
    """Return the variables of the search template; `page_folder`: of the page, from which the logs of the trials are linked.

    Raises UserError if an input cannot be used.
    """
    data = StudyData.load(folder)
    keys = searched_parameters(data, data.ranked_rows)
    fitted = fit_forest(data, keys)
    ranked = [key for key, _ in fitted.importances] if fitted and fitted.is_reliable else keys
    headings, rows = trial_rows(data, searched_parameters(data, data.rows))
    comparisons = compare_trials(data)
    hosts = (run.summary.get("hardware", {}) for run in data.trained_runs if run.paths.summary.exists())
    return {
        "title": data.study.experiment.name,
        "headline": search_headline(data),
        "question": question_of_effect(data.rows),
        "folder": folder,
        "charts": [chart for chart in (convergence_figure(data), learning_curve_figure(data)) if chart],
        "front": [row for row in rows if int(row[0]) in data.study.snapshot.front],
        "front_charts": front_figures(data),
        "stopped": any(row.state == "stopped" for row in data.ranked_rows),
        # These trials are a mark without a line.
        "single_epoch": sum(len(fold_mean_curve(data, row.number)) == 1 for row in data.drawn_rows),
        "coordinates": parallel_coordinates(data, ranked),
        "effects": importance_figure(fitted),
        "how": importance_note(data, fitted),
        "coverage": data.coverage_note(),
        "folds": fold_figure(data, comparisons),
        "as_good": f"{best_trial_sentence(data, comparisons)} {base_sentence(data, comparisons)}".strip(),
        "folded": sum(len(row.folds) > 1 for row in data.ranked_rows),
        "failures": failure_groups(data),
        # The log of the first fold of each trial, relative to the page.
        "logs": {
            number: Path(os.path.relpath(log, page_folder)).as_posix()
            for number, *_ in rows
            if page_folder and (log := SearchPaths(folder).fold(int(number), 0).state.log).exists()
        },
        "best_page": best_page(data, page_folder),
        "costs": [*filter(None, [cost_sentence(data)]), *(f"{text}." for text in hardware_texts(hosts))],
        "headings": headings,
        "rows": rows,
        "trials": len(data.rows),
        "several": data.study.search.folds.k,
    }


def best_page(data: StudyData, page_folder: Path | None) -> str:
    """Return the address of the page of the run with the best settings, from a page in a folder; empty if there is none."""
    experiment = data.study.folder.absolute().parent
    if page_folder and page_folder.absolute() == experiment:
        return "#comparison"  # this page: the experiment has trained the run
    places = (experiment, experiment.with_name(f"{experiment.name}-best"))
    pages = [each for folder in places if (each := folder / ExperimentPaths.page.name).exists()]
    return Path(os.path.relpath(pages[0], page_folder)).as_posix() if page_folder and pages else ""


def cost_sentence(data: StudyData) -> str:
    """Return sentences on the cost of the ended fold tasks; empty without fold tasks."""
    timed = [result for result in data.study.snapshot.results.values() if result.ended > result.started]
    if not timed:
        return ""
    wall_s, busy_s = (
        union_length(span for each in timed for span in each.spans),
        sum(each.seconds for each in timed),
    )
    in_epochs = sum(trained_seconds(data.study.snapshot, result) for result in timed)
    gpu_hours, cost = resource_hours(timed, "gpus"), core_cost(resource_hours(timed, "cores"))
    gpus = f" and {number(gpu_hours, 3)} GPU hours" if gpu_hours else ""
    return (
        f"{plural(len(timed), 'fold task')} took {cost}{gpus} in {format_duration(wall_s)} without pauses of the whole search: "
        f"on average, {busy_s / wall_s:.1f} ran at a time. They spent {in_epochs / busy_s:.1%} of their time in epochs, "
        "and the rest in starting, saving and stopping."
    )
