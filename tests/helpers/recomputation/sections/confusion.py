"""Recomputation of the confusion matrices."""

import math

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.raw import Trainings

MOST_PAIRS = 5  # pairs of classes that the page names


def check_confusion(audit: Audit, raw: Trainings) -> None:
    """Compare the cells, shades and most frequent errors of each run with the evaluations."""
    section = audit.page.section("confusion")
    if section is None:
        audit.require(not raw.accuracy, audit.page, "no confusion matrices")
        return
    for article, (run, jobs) in zip(section.all("article"), raw.runs.items(), strict=True):
        audit.require(article.first("h3").text == run, article, f"the matrix of {run}")
        matrices = [job.evaluation["confusion"] for job in jobs]
        size = range(len(matrices[0]))
        total = [[sum(matrix[a][b] for matrix in matrices) for b in size] for a in size]
        _check_matrix(audit, article, total, jobs[0].evaluation["classes"])
        _check_pairs(audit, article.first("p", "pairs"), total, jobs[0].evaluation["classes"])
    audit.says(section.all("p")[-1], f"Counts are summed over {raw.repetitions}")


def _check_matrix(audit: Audit, article: Element, total: list[list[int]], classes: list[str]) -> None:
    head, body = article.first("thead"), article.first("tbody").all("tr")
    for cell, name in zip(head.all("th"), classes, strict=True):
        audit.same(cell, name)
    for row, name, counts in zip(body, classes, total, strict=True):
        audit.same(row.first("th"), name)
        for cell, guess, count in zip(row.all("td"), classes, counts, strict=True):
            _check_cell(audit, cell, f"{name} classified as {guess}: ", count, count / sum(counts))


def _check_cell(audit: Audit, cell: Element, text: str, count: int, share: float) -> None:
    audit.own(cell, "{}" if count else "·", *[count][: bool(count)])
    for small in cell.all("small"):
        # "100%" is exact; other shares have one decimal.
        audit.same(small, "{}", share)
    audit.attribute(cell, "title", f"{text}{{}}, {{}}", count, share)
    audit.percentage(cell, "--s", math.sqrt(share), 0.051)


def _check_pairs(audit: Audit, paragraph: Element, total: list[list[int]], classes: list[str]) -> None:
    wrong = sorted(
        {count for a, row in enumerate(total) for b, count in enumerate(row) if a != b}, reverse=True
    )
    shown = []
    for span in paragraph.all("span"):
        actual, guess = (each.text for each in span.all("b"))
        row = total[classes.index(actual)]
        count = row[classes.index(guess)]
        shown.append(count)
        audit.says(span, f"{actual} classified as {guess}, {{}}× ({{}} of {actual})", count, count / sum(row))
    counts = sorted(
        (count for a, row in enumerate(total) for b, count in enumerate(row) if a != b), reverse=True
    )
    least = min(2, wrong[0])
    expected = [count for count in counts[:MOST_PAIRS] if count >= max(1, least)]
    audit.require(shown == expected, paragraph, f"the most frequent errors are {expected}, shown {shown}")
