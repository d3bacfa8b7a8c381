"""The report: one HTML file that needs nothing else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from nnlo_lib.data.atomic import replacing
from nnlo_lib.report import (
    attempts,
    comparison,
    confusion,
    costs,
    exchange,
    headline,
    layers,
    monitor,
    nodes,
    plots,
    provenance,
    samples,
    words,
)
from nnlo_lib.report.clock import Clock, clock
from nnlo_lib.report.job import Job, by_run, load_jobs, read_text
from nnlo_lib.report.search_section import search_section
from nnlo_lib.report.tables import ranking, read_summary

HERE = Path(__file__).parent


def write_page(
    output: Path, experiment_file: Path, summary: Path, folders: Sequence[Path], search: Path | None = None
) -> None:
    """Write the report of an experiment. Raises UserError naming an input that cannot be used.

    search: the folder of its search, if it has one.
    """
    jobs = load_jobs(folders)
    text = render(jobs, summary, experiment_file, search)
    with replacing(output) as part:
        part.write_text(text, encoding="utf-8")


def write_search_page(output: Path, search: Path) -> None:
    """Write the report of a search alone. Raises UserError naming an input that cannot be used."""
    found = search_section(search)
    text = (
        _environment()
        .get_template("search_page.html")
        .render(css=_css(), search=found, drawing=plots, words=words)
    )
    with replacing(output) as part:
        part.write_text(text, encoding="utf-8")


def render(jobs: Sequence[Job], summary: Path, experiment_file: Path, search: Path | None = None) -> str:
    """Return the page; the same inputs give the same bytes."""
    timed_by = clock(jobs)
    panels = plots.panels(jobs, timed_by)
    template = _environment().get_template("page.html")
    return template.render(
        css=_css(),
        search=search_section(search) if search else None,
        experiment_file=experiment_file,
        experiment=read_text(experiment_file),
        runs=list(by_run(jobs)),
        job_count=len(jobs),
        title=jobs[0].summary.get("experiment") or experiment_file.stem,
        drawing=plots,
        words=words,
        panels=panels,
        banded=any(curve.band for panel in panels for curve in panel.curves),
        confusions=confusion.confusions(jobs),
        pictures=samples.pictures(jobs),
        clock=timed_by,
        **_tables(jobs, summary, timed_by),
        **_costs(jobs),
        **_use(jobs),
        **_attempts(jobs),
        **_provenance(jobs, experiment_file),
    )


def _css() -> Markup:
    return Markup((HERE / "page.css").read_text(encoding="utf-8"))


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(words, name) for name in ("percent", "share", "plural", "listing")}
    return environment


def _tables(jobs: Sequence[Job], summary: Path, timed_by: Clock) -> dict[str, Any]:
    table = read_summary(summary, jobs)
    ranked_by, _ = ranking(table)
    headings, rows = comparison.job_rows(table)
    samples = {job.evaluation["samples"] for job in jobs}
    return {
        "headline": headline.headline(table, timed_by, attempts.sentence(jobs)),
        "repetitions": headline.repetitions(table),
        "weight": headline.weight(samples.pop()) if ranked_by == "accuracy" and len(samples) == 1 else "",
        "measured_on": headline.measured_on({job.evaluation.get("split", "test") for job in jobs}),
        "columns": comparison.columns(table, timed_by),
        "dots": comparison.dots(table, ranked_by),
        "headings": headings,
        "rows": rows,
        "own_models": nodes.own_models(jobs),
        "agreement": nodes.agreement(jobs, nodes.spans(table, ranked_by)),
    }


def _costs(jobs: Sequence[Job]) -> dict[str, Any]:
    times, volumes = costs.times(jobs), costs.volumes(jobs)
    return {
        "times": times,
        "phases": costs.names(times),
        "waiting": costs.waiting(times),
        "volumes": volumes,
        "purposes": costs.names(volumes),
        "exchange": exchange.exchange(jobs),
        "stale": bool(exchange.staleness(jobs)),
    }


def _use(jobs: Sequence[Job]) -> dict[str, Any]:
    watched = monitor.tables(jobs)
    return {"used": monitor.means(watched), "use_panels": monitor.panels(watched, list(by_run(jobs)))}


def _attempts(jobs: Sequence[Job]) -> dict[str, Any]:
    courses = attempts.courses(jobs)
    return {"courses": courses, "reasons": attempts.reasons(courses), "course_headings": attempts.HEADINGS}


def _provenance(jobs: Sequence[Job], experiment_file: Path) -> dict[str, Any]:
    return {
        "settings": provenance.settings(jobs),
        "models": layers.models(jobs),
        "layer_headings": layers.HEADINGS,
        "facts": provenance.facts(jobs),
        "packages": provenance.packages(jobs),
        "commands": provenance.commands(jobs, experiment_file),
    }
