"""The report of an experiment or a search as one self-contained HTML file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.report import formatting
from nnlo_lib.report.charts import learning_curves
from nnlo_lib.report.finished_job import group_by_run, load_jobs
from nnlo_lib.report.search.section import search_section
from nnlo_lib.report.sections import (
    attempts,
    communication,
    comparison,
    confusion,
    consensus,
    gan_samples,
    headline,
    model_layers,
    provenance,
    resource_usage,
    time_and_traffic,
)
from nnlo_lib.report.tables import ranking_metric, read_summary
from nnlo_lib.report.time_base import TimeBase, time_base_of
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.published_file import read_text

TEMPLATES = Path(__file__).parent / "templates"


def write_page(
    output: Path, experiment_file: Path, summary: Path, folders: Sequence[Path], search: Path | None = None
) -> None:
    """Write the report of an experiment.

    Args:
        output: HTML file to write.
        experiment_file: the experiment's YAML file.
        summary: CSV file with one row per job.
        folders: folders of the finished jobs.
        search: folder of the experiment's search, if it has one.

    Raises:
        UserError: if an input cannot be used; the message names it.
    """
    jobs = load_jobs(folders)
    # Rendered outside of atomic_write, which reports every OSError as a failure to write `output`.
    text = render(jobs, summary, experiment_file, search)
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
    jobs: Sequence[FinishedRun], summary: Path, experiment_file: Path, search: Path | None = None
) -> str:
    """Return the page as HTML; equal inputs give equal bytes.

    Args:
        jobs: the finished jobs.
        summary: CSV file with one row per job, in the order of `jobs`.
        experiment_file: the experiment's YAML file.
        search: folder of the experiment's search, if it has one.
    """
    time_base = time_base_of(jobs)
    panels = learning_curves.learning_curve_panels(jobs, time_base)
    template = _environment().get_template("page.html")
    return template.render(
        css=_css(),
        search=search_section(search) if search else None,
        experiment_file=experiment_file,
        experiment=read_text(experiment_file),
        runs=list(group_by_run(jobs)),
        job_count=len(jobs),
        title=jobs[0].summary.get("experiment") or experiment_file.stem,
        drawing=learning_curves,
        formatting=formatting,
        panels=panels,
        banded=any(curve.band for panel in panels for curve in panel.curves),
        confusions=confusion.confusion_matrices(jobs),
        pictures=gan_samples.sample_images(jobs),
        clock=time_base,
        **_tables(jobs, summary, time_base),
        **_costs(jobs),
        **_resource_usage(jobs),
        **_attempts(jobs),
        **_provenance(jobs, experiment_file),
    )


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


def _tables(jobs: Sequence[FinishedRun], summary: Path, time_base: TimeBase) -> dict[str, Any]:
    table = read_summary(summary, jobs)
    # Dots and node models show the metric by which the headline ranks the runs.
    ranked_by, _ = ranking_metric(table)
    headings, rows = comparison.job_rows(table)
    # The weight of one sample is only stated if all jobs were tested on equally many samples.
    samples = {job.evaluation["samples"] for job in jobs}
    return {
        "headline": headline.headline(table, time_base, attempts.interruptions_sentence(jobs)),
        "repetitions": headline.repetitions(table),
        "weight": headline.sample_weight_sentence(samples.pop())
        if ranked_by == "accuracy" and len(samples) == 1
        else "",
        "measured_on": headline.test_split_sentence({job.evaluation.get("split", "test") for job in jobs}),
        "columns": comparison.comparison_columns(table, time_base),
        "dots": comparison.job_positions(table, ranked_by),
        "headings": headings,
        "rows": rows,
        "own_models": consensus.runs_with_node_models(jobs),
        "agreement": consensus.consensus_table(jobs, consensus.node_metric_ranges(table, ranked_by)),
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
