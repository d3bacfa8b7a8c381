"""Recomputation of the section on trainings without results, and of the sentence on published weights."""

import json
from pathlib import Path

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.raw import Job, Trainings, counted

LAST_LINES = 20


def check_failed(audit: Audit, raw: Trainings) -> None:
    """Compare number, reason, error, end and last log lines of each training without results."""
    section = audit.page.section("failed")
    audit.require(bool(section) == bool(raw.failed), audit.page, f"trainings without results: {raw.failed}")
    if section is None:
        return
    _check_counts(audit, audit.page.first("header").all("p", "headline")[1], raw)
    causes = [each for each in section.all("p") if not each.classes]
    details = iter(section.all("details"))
    for title, cause, folder in zip(section.all("h3"), causes, raw.failed, strict=True):
        _check_cause(audit, title, cause, folder)
        if (folder / "state").exists():
            _check_log(audit, next(details), folder)
    audit.require(next(details, None) is None, section, "a log too many")


def _check_counts(audit: Audit, line: Element, raw: Trainings) -> None:
    runs = dict.fromkeys(folder.parent.name for folder in raw.failed)
    counts = []
    for run in runs:
        done, missing = len(raw.runs.get(run, [])), sum(each.parent.name == run for each in raw.failed)
        counts.append(f"{run} has {done} of {done + missing}")
    every, verb = len(raw.failed) + len(raw.jobs), "is" if len(raw.failed) == 1 else "are"
    start = f"{counted(len(raw.failed), 'training task')} of {every} did not finish and {verb} not part of this page"
    audit.same(line, f"{start}: {'; '.join(counts)}.")


def _check_cause(audit: Audit, title: Element, cause: Element, folder: Path) -> None:
    file = folder / "state/attempts.jsonl"
    if not file.exists():
        audit.same(title.first("small"), folder.name)
        return audit.same(cause, "not started")
    last = json.loads(file.read_text().splitlines()[-1])
    audit.same(title.first("small"), f"{folder.name}, {last['ended']}")
    return audit.same(cause, f"{last['reason']}: {last['error']}")


def _check_log(audit: Audit, details: Element, folder: Path) -> None:
    shown = details.first("summary").text.removeprefix("Last lines of ")
    audit.same(details.first("summary"), f"Last lines of {shown}")
    [log] = [path for path in folder.rglob("*") if path.is_file() and str(path).endswith(shown)]
    audit.same(details.first("code"), "{}", "\n".join(log.read_text().splitlines()[-LAST_LINES:]))
    audit.attribute(
        details.first("pre"), "aria-label", f"last lines of the log of {folder.parent.name} {folder.name}"
    )


def check_published(audit: Audit, raw: Trainings) -> None:
    """Compare the steps of the published weights of runs that restore the best ones."""
    lines = [each for each in audit.page.first("header").all("p", "aside") if "restore_best" in each.text]
    for run, jobs in raw.runs.items():
        metric = jobs[0].summary["config"]["train"].get("restore_best")
        metric = metric["metric"] if isinstance(metric, dict) else metric
        places = [place for job in jobs if (place := _place(job))]
        if metric and places:
            joined = " and ".join(filter(None, [", ".join(places[:-1]), places[-1]]))
            template = f"Test results and model file of {run} are of the weights with the best {metric}"
            audit.says(lines[0], f"{template} (train.restore_best): after {joined}.")


def _place(job: Job) -> str:
    """Return the step and epoch with the best validation, as the page has them; empty for the last step."""
    best = min(job.history, key=lambda row: (row["val_loss"], row["step"]))
    if best is job.history[-1]:
        return ""
    return f"step {best['step']:,.0f} (epoch {best['epoch']:g} of {len(job.history)})"
