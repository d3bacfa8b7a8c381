"""The report of an experiment or of a search as one self-contained HTML file, and the outcome of a search as text."""

import gzip
import shlex
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from nnlo_lib.config.paths import RunPaths, SearchPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import PERMANENT_REASONS, error_headline
from nnlo_lib.core.secrets import mask
from nnlo_lib.core.text_format import plural
from nnlo_lib.report import formatting, learning_curves, quantities
from nnlo_lib.report.formatting import format_bytes, format_duration, listing, percent, run_table, share
from nnlo_lib.report.made_from import page_sources, record_page_sources
from nnlo_lib.report.quantities import time_base_of
from nnlo_lib.report.search.section import search_section
from nnlo_lib.report.search.study_data import StudyData
from nnlo_lib.report.search.trial_tables import base_sentence, compare_trials
from nnlo_lib.report.sections import attempts, comparison, headline, nodes, origin, predictions, resources
from nnlo_lib.report.sections.comparison import difference_matrix
from nnlo_lib.report.statistics.comparison_text import compare_all
from nnlo_lib.report.statistics.run_comparison import ranking_metric
from nnlo_lib.report.tables import group_by_run, load_jobs, read_summary, summarize
from nnlo_lib.search.best import best_trial_summary, write_outcome
from nnlo_lib.search.effect import question_of_effect
from nnlo_lib.search.space.space import count_distinct_points
from nnlo_lib.search.space.validate import unfinished_grid
from nnlo_lib.search.study.storage import StoredStudy, load_study
from nnlo_lib.search.study.study import reason_to_end
from nnlo_lib.search.study.trial_summary import (
    TrialSummary,
    format_front,
    format_objective,
    format_point_lines,
    format_selection,
)
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.state.finished_run import SPLIT_NAMES, FinishedRun, read_text
from nnlo_lib.state.resource_use import ResourceUse

TEMPLATES = Path(__file__).parent / "templates"


def write_page(
    output: Path,
    experiment_file: Path | None,
    summary: Path | None,
    folders: Sequence[Path],
    search: Path | None = None,
    failed: Mapping[Path, str] | None = None,
) -> None:
    """Write the report of an experiment to the HTML file `output`; equal inputs give equal bytes.

    The page shows the experiment file if it is at hand, the finished jobs in `folders`, and the search in its folder. Without
    the CSV file `summary`, it is computed. `failed`: folders of the jobs that have no results, each with its state, or with an
    empty text if its files tell it. Raises UserError, naming the input, if an input cannot be used.
    """
    jobs, sources = load_jobs(folders), page_sources(experiment_file, folders, search)
    unfinished = [
        replace(job, reason=state or job.reason)
        for folder, state in (failed or {}).items()
        for job in [attempts.read_failed_job(folder)]
    ]
    # Rendered outside of atomic_write, which reports every OSError as a failure to write `output`.
    text = _render(
        "page.html",
        search=search_section(search, output.parent) if search else None,
        experiment_file=experiment_file,
        experiment=mask(read_text(experiment_file)) if experiment_file else "",
        title=jobs[0].summary.get("experiment") or (experiment_file or jobs[0].folder).stem,
        commands=f"nnlo all {shlex.quote(str(experiment_file or 'FILE'))}",
        searched_by=origin.search_page(output),
        failed_jobs=unfinished,
        failed_note=attempts.failed_jobs_sentence(unfinished, jobs),
        **_facts(jobs, read_summary(summary, jobs) if summary else summarize(jobs)),
    )
    with atomic_write(output) as part:
        part.write_text(text, encoding="utf-8")
    record_page_sources(output, sources)


def write_search_page(output: Path, search: Path) -> None:
    """Write the report of a search alone. Raises UserError, naming the input, if an input cannot be used."""
    text = _render("search_page.html", search=search_section(search, output.parent))
    with atomic_write(output) as part:
        part.write_text(text, encoding="utf-8")


def _facts(jobs: Sequence[FinishedRun], table: pd.DataFrame) -> dict[str, Any]:
    """Return the variables of the template that follow from the finished jobs and their summary."""
    clock, groups = time_base_of(jobs), group_by_run(jobs)
    # Dots, curves and node models show the metric by which the headline ranks the runs.
    ranking, comparisons = ranking_metric(table), compare_all(table, jobs)
    ranked_by = ranking.name if ranking else None
    headings, rows = comparison.job_rows(table)
    splits = sorted({job.evaluation.get("split", "test") for job in jobs})
    times, volumes = resources.seconds_by_phase(jobs), resources.bytes_by_purpose(jobs)
    virtual, monitored = clock.virtual if clock.mixed else (), resources.monitor_tables(jobs)
    return {
        "runs": list(groups),
        "job_count": len(jobs),
        "clock": clock,
        "headline": headline.headline(table, clock, comparisons, jobs),
        "repetitions": headline.repetitions(table),
        "measured_on": headline.test_split_sentence(splits),
        "published": origin.published_weights_sentence(jobs),
        "columns": comparison.comparison_columns(table, clock, comparisons),
        "dots": comparison.job_figure(table, ranking) if ranking else None,
        "matrices": list(filter(None, map(difference_matrix, comparisons.values()))),
        "on_folds": ranking is not None and ranking.is_validation,
        "headings": headings,
        "rows": rows,
        "curves": learning_curves.learning_curve_figures(jobs, clock, ranked_by),
        # Metrics of all samples together are not in the history, and the balanced accuracy only if the user asks for it.
        "unmeasured": ranking
        and not any(f"{split}_{ranking.name}" in job.history for job in jobs for split in ("val", "train"))
        and ranking.name,
        "single": len(jobs) == len(groups),
        "validated": quantities.validations_sentence(jobs),
        "banded": any(len(group) > learning_curves.MAX_JOB_LINES for group in groups.values()),
        "confusions": predictions.confusion_matrices(jobs),
        "predicted": predictions.prediction_figures(jobs),
        "evaluated_on": listing([f"on {SPLIT_NAMES.get(split, split)}" for split in splits]),
        "pictures": predictions.sample_images(jobs),
        "maps": nodes.node_maps(jobs),
        "distances": nodes.consensus_matrices(jobs),
        "own_models": nodes.runs_with_node_models(jobs),
        "agreement": nodes.consensus_table(jobs, nodes.node_metric_ranges(table, ranked_by or "loss")),
        "times": resources.bar_figure("Seconds of a rank by phase", times, format_duration, virtual),
        "waiting": resources.waiting_sentence(times),
        "volumes": any(volumes.values())
        and resources.bar_figure("Bytes sent by purpose", volumes, format_bytes),
        "exchange": resources.communication_table(jobs),
        # What each run asked of the scheduler and used, and the settings that would have been enough.
        "asked": run_table(
            {run: use.cells for run, group in groups.items() if (use := ResourceUse.of(group))}
        ),
        "used": resources.usage_table(monitored),
        "usage": resources.usage_figures(monitored, list(groups)),
        "attempts": attempts.attempt_figure(jobs),
        "settings": origin.resolved_settings(jobs),
        "models": origin.trained_models(jobs),
        "layer_headings": origin.HEADINGS,
        "facts": origin.provenance_facts(jobs),
        "packages": origin.packages(jobs),
    }


@cache
def _scripts() -> dict[str, str]:
    """Return the style sheet and the scripts of a page, Vega compressed, and the hashes by which its policy allows only these."""
    # Markup exempts them from autoescape, which would escape quotes and `>`.
    style, page = (Markup((TEMPLATES / name).read_text(encoding="utf-8")) for name in ("page.css", "page.js"))
    vega = (TEMPLATES / "vega.js.gz").read_bytes()
    digests = [b64encode(sha256(each).digest()).decode() for each in (gzip.decompress(vega), page.encode())]
    hashes = Markup(" ".join(f"'sha256-{digest}'" for digest in digests))
    return {"css": style, "page": page, "vega": b64encode(vega).decode(), "hashes": hashes}


def packed(text: str) -> str:
    """Return a text as page.js unpacks it: compressed, in Base64."""
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _render(template: str, **values: Any) -> str:
    """Return the HTML of a template with the style sheet and the scripts of a page."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        # Names of runs, hosts and classes come from users and may contain HTML.
        autoescape=True,
        # A misspelled variable of a template raises an error instead of printing nothing.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {each.__name__: each for each in (percent, share, plural, listing, packed)}
    return environment.get_template(template).render(scripts=_scripts(), **values)


def report_outcome(folder: Path) -> int:
    """Write trials.csv, best.yaml and report.html, and print a summary; return what `print_outcome` returns.

    Raises UserError if no trial has a result.
    """
    write_outcome(folder)
    write_search_page(SearchPaths(folder).report, folder)
    return print_outcome(folder)


def print_outcome(folder: Path) -> int:
    """Print a summary of a search; return 1 if it has lost trials, else 0. Raises UserError if no trial has a result."""
    record = load_study(folder)
    lost = lost_trials(record)
    print("\n".join([*_lines(record, best_trial_summary(record)), *lost]))
    return int(bool(lost))


def lost_trials(record: StoredStudy) -> list[str]:
    """Return a line about each fold task that failed for a reason other than its point, such as a kill; the point may be good."""
    lines = []
    for task, result in record.snapshot.results.items():
        attempts = read_attempts(RunPaths(task.run_folder(record.folder)).state.folder)
        reason = attempts[-1].reason if attempts else "bad input"
        if result.status == "failed" and reason not in PERMANENT_REASONS:
            again = f"to train it again, delete {task.result_path(record.folder)} and run the same command"
            error = error_headline(result.error, 240)
            lines.append(f"lost:   trial {task.trial}, fold {task.fold}: {error}; {again}")
    return lines


def _lines(record: StoredStudy, best: TrialSummary) -> Iterator[str]:
    count = len(record.snapshot.trials)
    yield f"best: trial {best.number} of {count}  {format_objective(record.search.objective, best)}"
    for text in filter(None, (format_selection(record.snapshot), format_front(record.snapshot))):
        yield f"  {text}"
    yield from (f"  {line}" for line in format_point_lines(best.point))
    data, paths = StudyData(record), SearchPaths(record.folder)
    if sentence := base_sentence(data, compare_trials(data)):
        yield f"base:   {sentence}"
    yield from _unlike_asked(record)
    if question := question_of_effect(data.rows):
        yield f"equal:  {question}"
    counts = {
        each: [row.state for row in data.rows].count(each) for each in ("stopped", "failed", "unwanted")
    }
    others = "".join(f", {number} {state}" for state, number in counts.items() if number)
    yield f"trials: {count}{others}; {formatting.core_cost(sum(row.core_hours for row in data.rows))}"
    yield f"table:  {paths.table}"
    yield f"page:   {paths.report}"
    yield f"next:   nnlo run {paths.best}"


def _unlike_asked(record: StoredStudy) -> Iterator[str]:
    """Yield a line for each reason that ended the search before the limit that the user has set."""
    count, limit, search = len(record.snapshot.trials), record.search.trial_limit, record.search
    if limit is not None and count < limit and count == count_distinct_points(search):
        yield f"space:  exhausted after {plural(count, 'trial')} (search.trials: {limit})"
    if left := unfinished_grid(search, count):
        yield f"grid:   {left}"
    has_limits = search.objective.target is not None or any(most is not None for _, most in search.budget)
    # A budget or a target did not end the search.
    if search.trials is None and count == limit and has_limits and reason_to_end(record.snapshot) is None:
        yield f"ended:  after {plural(limit, 'trial')}, the default of search.trials; raise it to use the whole budget"
