"""Recomputation of the texts and tables of a search."""

import json
import math
from collections import Counter, defaultdict

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.raw import counted
from helpers.recomputation.search.charts import coverage
from helpers.recomputation.search.study import RawStudy, RawTrial
from helpers.recomputation.sections.origin import hardware


def check_search_headline(audit: Audit, study: RawStudy) -> None:
    """Compare the first paragraph: best trial, its value and point, and the number of trials by state."""
    section, best = audit.page.section("search"), study.best
    line, count = section.first("p", "headline"), len(study.trials)
    contenders = study.ranked
    rungs = sorted({trial.last_rung for trial in contenders})
    template = f"Trial {{}} has the best {study.metric} of {{}} trials"
    audit.says(line, template, best.number, count)
    if len(rungs) > 1:
        template = "(selected from {} trials trained for {} to {} epochs)"
        audit.says(line, template, len(contenders), rungs[0], rungs[-1])
    audit.says(line, ": {} (± standard error over {} folds)", best.objective, study.fold_count)
    for key, value in best.point.items():
        audit.says(line, f"{key} {{}}", value)
    audit.says(line, f"Of {counted(count, 'trial')}:")
    for state in ("stopped", "failed"):
        number = sum(trial.state == state for trial in study.trials)
        audit.says(line, f" {{}} {state}", number) if number else None
    notes = " ".join(each.text for each in section.all("p", "aside"))
    audit.require(f"mean over {study.fold_count} folds" in notes, section, "the number of folds")
    audit.says(
        next(each for each in section.all("p", "aside") if "The objective of a trial" in each.text),
        "mean over {} folds",
        study.fold_count,
    )


def check_rungs(audit: Audit, study: RawStudy) -> None:
    """Compare the number of trials and the best value of each rung."""
    rungs = sorted({rung for trial in study.trials for rung in trial.rungs})
    rows = audit.page.first("table", "rungs").first("tbody").all("tr")
    for row, rung in zip(rows, rungs, strict=True):
        values = [
            math.fsum(trial.folds(rung)) / study.fold_count
            for trial in study.trials
            if trial.is_complete(rung) and not trial.failures
        ]
        # A failure at a higher rung leaves the result of this rung.
        values += [
            math.fsum(trial.folds(rung)) / study.fold_count
            for trial in study.trials
            if trial.failures and _valid(trial, rung)
        ]
        for cell, value in zip(
            [row.first("th"), *row.all("td")], [rung, len(values), max(values)], strict=True
        ):
            audit.same(cell, "{}", value)


def _valid(trial: RawTrial, rung: int) -> bool:
    results = [result for task, result in trial.results.items() if task[2] == rung]
    return trial.is_complete(rung) and all(result["status"] == "finished" for result in results)


def check_folds(audit: Audit, study: RawStudy) -> None:
    """Compare the marks of the folds of the best trials."""
    drawn = study.ranked[:12]
    values = [value for trial in drawn for value in trial.folds(trial.last_rung)]
    low, high = min(values), max(values)

    def place(value: float) -> float:
        return 4 + 232 * (value - low) / (high - low)

    for row, trial in zip(audit.page.first("div", "spreads").all("div", "spread"), drawn, strict=True):
        audit.same(row.first("span", "label"), f"trial {trial.number}")
        audit.attribute(row.first("svg"), "aria-label", f"folds of trial {trial.number}")
        audit.own(row.first("span", "total"), "{}", trial.objective)
        row.first("path", "grid").attributes["d"].explain()
        marks = [*row.all("path", "fold"), row.first("path", "tick")]
        for mark, value in zip(marks, [*trial.folds(trial.last_rung), trial.objective.mean], strict=True):
            _check_mark(audit, mark, place(value))


def _check_mark(audit: Audit, mark: Element, place: float) -> None:
    mark.attributes["d"].explain()
    shown = float(mark["d"].partition(",")[0].removeprefix("M"))
    audit.require(abs(shown - place) < 0.06, mark, f"{shown} is drawn, recomputed {place:.2f}")


def check_notes(audit: Audit, study: RawStudy) -> None:
    """Compare the number of trials in the parallel coordinates, and the number of trainings of each host."""
    notes = audit.page.section("search").all("p", "aside")
    line = next(each for each in notes if "One line per trial" in each.text)
    audit.says(line, f"One line per trial with an objective ({coverage(study)});")
    hosts = Counter(
        json.loads(file.read_text().splitlines()[-1])["host"]
        for file in sorted((study.folder / "trials").glob("*/fold-*/state/attempts.jsonl"))
    )
    texts = [f"{host} ({counted(count, 'training')})" for host, count in hosts.items()]
    line = next(each for each in notes if each.text.startswith("Trained on"))
    joined = " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
    audit.same(line, f"Trained on {joined}.")
    files = sorted((study.folder / "trials").glob("*/fold-*/summary.json"))
    template, *values = hardware([json.loads(file.read_text()) for file in files])
    [line] = [each for each in notes if each.text.startswith(tuple(hosts))]
    audit.same(line, f"{template}.", *values)


def check_failures(audit: Audit, study: RawStudy) -> None:
    """Compare the table of failures: trials with the same message, apart from numbers, are one row."""
    groups = defaultdict(list)
    for trial in study.trials:
        if trial.failures:
            groups["".join(each for each in trial.failures[0] if not each.isdigit())].append(trial)
    tables = audit.page.section("search").all("table", "failures")
    audit.require(bool(tables) == bool(groups), audit.page, f"{len(groups)} causes of failure")
    rows = tables[0].first("tbody").all("tr") if tables else []
    ranked = sorted(groups.values(), key=lambda group: (-len(group), group[0].number))
    for row, group in zip(rows, ranked, strict=True):
        numbers = ", ".join(str(trial.number) for trial in group)
        cells = [row.first("th"), *row.all("td")]
        for cell, value in zip(cells, [group[0].failures[0], "failed", len(group), numbers], strict=True):
            audit.same(cell, "{}", value)


def check_trials(audit: Audit, study: RawStudy) -> None:
    """Compare the table of all trials, the best first."""
    table = audit.page.section("search").all("table")[-1]
    details = table.parent.parent
    audit.same(details.first("summary"), f"{counted(len(study.trials), 'trial')}, best first")
    shown = [*study.ranked, *(trial for trial in study.trials if trial.state == "failed")]
    headings = [each.text for each in table.first("thead").all("th")]
    for row, trial in zip(table.first("tbody").all("tr"), shown, strict=True):
        values = {
            "trial": trial.number, study.metric: trial.objective, "status": trial.state, "epochs": trial.epochs,
            "time": trial.seconds, **{".".join(key.split(".")[-2:]): value for key, value in trial.point.items()},
        }  # fmt: skip
        for heading, cell in zip(headings, [row.first("th"), *row.all("td")], strict=True):
            audit.same(cell, "{}", values[heading])
