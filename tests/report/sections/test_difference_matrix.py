"""The matrix of differences, from job folders to the page."""

from helpers.html_page import check

from nnlo_lib.report.sections.comparison import difference_matrix
from nnlo_lib.report.statistics.comparison_text import compare_all
from nnlo_lib.report.tables import load_jobs, summarize


def matrix_of(fake, column):
    jobs = load_jobs(fake.folders)
    return difference_matrix(compare_all(summarize(jobs), jobs)[column])


def test_cells_above_and_below_the_diagonal_are_opposite(fake, report):
    fake.scored("good", 0.95, 0.96, 0.97, samples=100_000)
    assert "Differences of" not in check(report(fake)).text
    fake.scored("poor", 0.80, 0.82, 0.81, samples=100_000)
    fake.scored("near", 0.94, 0.97, 0.96, samples=100_000)
    matrix = matrix_of(fake, "accuracy")
    assert matrix.runs == ("good", "poor", "near")
    assert matrix.cells["good", "poor"].text == "+15.0 [12.5, 17.5]\u00a0points"
    assert matrix.cells["poor", "good"].text == "−15.0 [−17.5, −12.5]\u00a0points"
    pairs = ("good", "poor"), ("poor", "good"), ("good", "near")
    assert [matrix.cells[pair].verdict for pair in pairs] == ["better", "worse", ""]
    assert "more seed" in matrix.cells["good", "near"].note
    page = check(report(fake)).text
    assert "+15.0 [12.5, 17.5]" in page
    assert "Differences of test accuracy" in page


def test_the_ratio_of_the_opposite_pair_is_the_reciprocal(fake):
    for run, speed in (("slow", 1000.0), ("fast", 2000.0)):
        for seed in (1, 2, 3):
            fake.change(fake.job(run, seed), samples_per_second=speed * (1 + seed / 1000 * (run == "fast")))
    matrix = matrix_of(fake, "samples_per_second")
    assert matrix.cells["fast", "slow"].text.startswith("2.00")
    assert matrix.cells["slow", "fast"].text.startswith("0.49")
