"""The report of an experiment or a search as one self-contained HTML file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.report import formatting
from nnlo_lib.report.charts import learning_curves, measured_values
from nnlo_lib.report.finished_job import group_by_run, load_jobs
from nnlo_lib.report.search.section import search_section
from nnlo_lib.report.sections import (
    attempts,
    communication,
    failed_jobs,
    resource_usage,
    time_and_traffic,
)
from nnlo_lib.report.sections.origin import model_layers, provenance, published_weights
from nnlo_lib.report.sections.quality import (
    comparison,
    confusion,
    consensus,
    consensus_matrix,
    gan_samples,
    headline,
)
from nnlo_lib.report.sections.quality.difference_matrix import difference_matrix
from nnlo_lib.report.statistics import guessing
from nnlo_lib.report.statistics.compared_metric import ranking_metric
from nnlo_lib.report.statistics.comparisons_csv import compare_all
from nnlo_lib.report.tables import read_summary
from nnlo_lib.report.time_base import TimeBase, time_base_of
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.published_file import read_text

TEMPLATES = Path(__file__).parent / "templates"


def write_page(
    output: Path,
    experiment_file: Path,
    summary: Path,
    folders: Sequence[Path],
    search: Path | None = None,
    failed: Sequence[Path] = (),
) -> None:
    """Write the report of an experiment.

    Args:
        output: HTML file to write.
        experiment_file: the experiment's YAML file.
        summary: CSV file with one row per job.
        folders: folders of the finished jobs.
        search: folder of the experiment's search, if it has one.
        failed: folders of the jobs that have no results.

    Raises:
        UserError: if an input cannot be used; the message names it.
    """
    jobs = load_jobs(folders)
    # Rendered outside of atomic_write, which reports every OSError as a failure to write `output`.
    text = render(jobs, summary, experiment_file, search, failed)
    with atomic_write(output) as part:
        part.write_text(text, encoding="utf-8")


def write_search_page(output: Path, search: Path) -> None:
    """Write the report of a search alone. Raises UserError, naming the input, if an input cannot be used."""
    section = search_section(search)
    text = (
        _environment()
        .get_template("search_page.html")
        .render(css=_css(), search=section, drawing=learning_curves, formatting=formatting)
    )
    with atomic_write(output) as part:
        part.write_text(text, encoding="utf-8")


def render(
    jobs: Sequence[FinishedRun],
    summary: Path,
    experiment_file: Path,
    search: Path | None = None,
    failed: Sequence[Path] = (),
) -> str:
    """Return the page as HTML; equal inputs give equal bytes.

    Args:
        jobs: the finished jobs.
        summary: CSV file with one row per job, in the order of `jobs`.
        experiment_file: the experiment's YAML file.
        search: folder of the experiment's search, if it has one.
        failed: folders of the jobs that have no results.
    """
    time_base, table = time_base_of(jobs), read_summary(summary, jobs)
    ranking = ranking_metric(table)
    panels = learning_curves.learning_curve_panels(jobs, time_base, ranking.name if ranking else None)
    template = _environment().get_template("page.html")
    return template.render(
        css=_css(),
        search=search_section(search) if search else None,
        experiment_file=experiment_file,
        experiment=read_text(experiment_file),
        runs=list(group_by_run(jobs)),
        job_count=len(jobs),
        **_failed_jobs(jobs, failed),
        title=jobs[0].summary.get("experiment") or experiment_file.stem,
        drawing=learning_curves,
        formatting=formatting,
        panels=panels,
        validated=measured_values.validations_sentence(jobs),
        banded=any(curve.band for panel in panels for curve in panel.curves),
        confusions=confusion.confusion_matrices(jobs),
        confused_on=confusion.evaluated_on(jobs),
        guessing=guessing.guessing_sentence(jobs),
        published=published_weights.published_weights_sentence(jobs),
        pictures=gan_samples.sample_images(jobs),
        clock=time_base,
        **_tables(jobs, table, time_base),
        **_costs(jobs),
        **_resource_usage(jobs),
        **_attempts(jobs),
        **_provenance(jobs, experiment_file),
    )


def _failed_jobs(jobs: Sequence[FinishedRun], folders: Sequence[Path]) -> dict[str, Any]:
    failed = failed_jobs.failed_jobs(folders)
    return {"failed_jobs": failed, "failed_note": failed_jobs.failed_jobs_sentence(failed, jobs)}


def _css() -> Markup:
    # Markup exempts the style sheet from autoescape, which would escape quotes and `>`.
    return Markup((TEMPLATES / "page.css").read_text(encoding="utf-8"))


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        # Names of runs, hosts and classes come from users and may contain HTML.
        autoescape=True,
        # A misspelled variable of a template raises an error instead of printing nothing.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        name: getattr(formatting, name) for name in ("percent", "share", "plural", "listing")
    }
    return environment


def _tables(jobs: Sequence[FinishedRun], table: pd.DataFrame, time_base: TimeBase) -> dict[str, Any]:
    # Dots and node models show the metric by which the headline ranks the runs.
    ranking, comparisons = ranking_metric(table), compare_all(table, jobs)
    headings, rows = comparison.job_rows(table)
    # The weight of one sample is only stated if all jobs were tested on equally many samples.
    samples = {job.evaluation["samples"] for job in jobs}
    return {
        "headline": headline.headline(table, time_base, comparisons, attempts.interruptions_sentence(jobs)),
        "repetitions": headline.repetitions(table),
        "weight": headline.sample_weight_sentence(ranking.split, samples.pop())
        if ranking is not None and ranking.column == "accuracy" and len(samples) == 1
        else "",
        "measured_on": headline.test_split_sentence({job.evaluation.get("split", "test") for job in jobs}),
        "columns": comparison.comparison_columns(table, time_base, comparisons),
        "dots": comparison.job_positions(table, ranking.column) if ranking else {},
        "matrices": list(filter(None, map(difference_matrix, comparisons.values()))),
        "has_folds": bool(table["fold"].notna().any()),
        "headings": headings,
        "rows": rows,
        "distances": consensus_matrix.consensus_matrices(jobs),
        "own_models": consensus.runs_with_node_models(jobs),
        "agreement": consensus.consensus_table(
            jobs, consensus.node_metric_ranges(table, ranking.name if ranking else "loss")
        ),
    }


def _costs(jobs: Sequence[FinishedRun]) -> dict[str, Any]:
    times, volumes = time_and_traffic.seconds_by_phase(jobs), time_and_traffic.bytes_by_purpose(jobs)
    return {
        "times": times,
        "phases": time_and_traffic.segment_names(times),
        "waiting": time_and_traffic.waiting_sentence(times),
        "volumes": volumes,
        "purposes": time_and_traffic.segment_names(volumes),
        "exchange": communication.communication_table(jobs),
        "stale": bool(communication.staleness(jobs)),
    }


def _resource_usage(jobs: Sequence[FinishedRun]) -> dict[str, Any]:
    tables = resource_usage.monitor_tables(jobs)
    return {
        "used": resource_usage.usage_table(tables),
        "use_panels": resource_usage.usage_panels(tables, list(group_by_run(jobs))),
    }


def _attempts(jobs: Sequence[FinishedRun]) -> dict[str, Any]:
    timelines = attempts.attempt_timelines(jobs)
    return {
        "timelines": timelines,
        "reasons": attempts.end_reasons(timelines),
        "attempt_headings": attempts.HEADINGS,
    }


def _provenance(jobs: Sequence[FinishedRun], experiment_file: Path) -> dict[str, Any]:
    return {
        "settings": provenance.resolved_settings(jobs),
        "models": model_layers.trained_models(jobs),
        "layer_headings": model_layers.HEADINGS,
        "facts": provenance.provenance_facts(jobs),
        "packages": provenance.packages(jobs),
        "commands": provenance.commands(jobs, experiment_file),
    }
