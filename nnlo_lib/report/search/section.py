"""Data of the report page's section on a search, with its cost: hours, the share of the available time, and the hosts."""

import os
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from nnlo_lib.config.paths import ExperimentPaths, SearchPaths
from nnlo_lib.core.text_format import number, plural
from nnlo_lib.report.formatting import core_cost, format_duration, listing
from nnlo_lib.report.search.importance import fit_forest, importance_figure, importance_note
from nnlo_lib.report.search.study_data import StudyData, searched_parameters
from nnlo_lib.report.search.trial_charts import (
    convergence_figures,
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
from nnlo_lib.search.study.trial import Result, resource_hours
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.state.training_records import read_rows


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
    return {
        "title": data.study.experiment.name,
        "headline": search_headline(data),
        "question": question_of_effect(data.rows),
        "folder": folder,
        "charts": [chart for chart in (*convergence_figures(data), learning_curve_figure(data)) if chart],
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
        "costs": [sentence for sentence in (cost_sentence(data), *host_sentences(data)) if sentence],
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
    """Return sentences on the cost of the ended fold tasks and the utilization; empty without fold tasks."""
    timed = [result for result in data.study.snapshot.results.values() if result.ended > result.started]
    if not timed:
        return ""
    wall_s = union_length(span for result in timed for span in result.spans)
    in_epochs = sum(trained_seconds(data.study.snapshot, result) for result in timed)
    gpu_hours, cost = resource_hours(timed, "gpus"), core_cost(resource_hours(timed, "cores"))
    gpus = f", {number(gpu_hours, 3)} GPU hours" if gpu_hours else ""
    return (
        f"Utilization of the workers: {_utilization(data, timed)}, {cost}{gpus} in {format_duration(wall_s)}, "
        "including their start-up; pauses of the whole search are excluded. Fold tasks spent "
        f"{in_epochs / sum(result.seconds for result in timed):.1%} of their time in epochs, and the rest in starting, saving and stopping."
    )


def _utilization(data: StudyData, timed: Sequence[Result]) -> str:
    """Return the share of the available time in which a fold task ran, and the definition of the available time.

    The available time is that of the MPI pool's allocations, plus the slots of fold tasks outside of them. An
    allocation contributes the time of its rank groups. Outside of allocations, the wall time in which fold tasks
    ran counts once per slot.
    """
    rows = read_rows(SearchPaths(data.study.folder).state.pool_utilization)
    outside = [
        result for result in timed if not any(row["begun"] <= result.started <= row["ended"] for row in rows)
    ]
    # Results within an allocation are already contained in its `trained`.
    trained_s, available_s, parts = sum(result.seconds for result in outside), 0.0, []
    for row in rows:
        trained_s += row["trained"]
        # The ratio of the two recorded numbers excludes lost rank groups, which `blocks` includes. Without any
        # training it is 0, and the time of all groups is the best estimate.
        all_groups = row["blocks"] * (row["ended"] - row["begun"])
        available_s += row["trained"] / row["utilisation"] if row["utilisation"] else all_groups
    if counts := sorted({row["blocks"] for row in rows}):
        several = f"{counts[0]} to {counts[-1]} rank groups"
        parts.append(f"the time of {plural(counts[0], 'rank group') if len(counts) == 1 else several}")
    if outside:
        slots = _slots(data, outside)
        available_s += slots * union_length(span for result in outside for span in result.spans)
        parts.append(f"{slots} × wall time ({plural(slots, 'fold task')} could run at a time)")
    return f"{trained_s / available_s if available_s else 0.0:.1%} of {' and '.join(parts)}"


def _slots(data: StudyData, results: Sequence[Result]) -> int:
    """Return the number of fold tasks that could run at a time: of `search.parallel`, those that a host had cores for.

    At least as many could run as did. This number alone decides if each training saw only the cores of its own job.
    """
    # The tolerance of 1 ms lets a fold task follow its predecessor.
    spans = [span for result in results for span in result.spans]
    changes = sorted([*((start + 1e-3, 1) for start, _ in spans), *((end, -1) for _, end in spans)])
    ran = max(accumulate(change for _, change in changes))
    cores = [host["cores_available"] for hosts in _hardware(data) for host in hosts.values()]
    parallel = data.study.search.parallel
    if cores:
        parallel = min(parallel, max(cores) // min(result.cores for result in results))
    return max(1, ran, parallel)


def _hardware(data: StudyData) -> list[dict[str, Any]]:
    """Return the hardware by host of each training of a fold that has finished; its summary records it."""
    return [run.summary.get("hardware", {}) for run in data.trained_runs if run.paths.summary.exists()]


def host_sentences(data: StudyData) -> list[str]:
    """Return the hosts on which the folds of the trials were trained last, with their number and known hardware."""
    attempts = [read_attempts(run.paths.state.folder) for run in data.trained_runs]
    launched = Counter(each[-1].host for each in attempts if each)
    if not launched:
        return []
    counts = [f"{host} ({plural(count, 'training')})" for host, count in launched.items()]
    return [f"Trained on {listing(counts)}.", *(f"{text}." for text in hardware_texts(_hardware(data)))]
