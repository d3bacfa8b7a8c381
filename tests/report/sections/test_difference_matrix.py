"""The matrix of differences, from job folders to the page."""

import pytest
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
    assert matrix.cells["good", "near"].note == ""
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


def repeated(fake, run, hour, **values):
    """Write three trainings of a run, at an hour of a day."""
    for seed in (1, 2, 3):
        times = dict.fromkeys(("started", "finished"), f"2026-01-02T{hour:02d}:0{seed}:00+00:00")
        speed = 1000.0 * (1 + hour / 100 + seed / 10_000)
        # The headline names speeds only of runs that are distributed otherwise and train for 10 s.
        own = {"training_seconds": 60.0, "config": CONFIG | {"algorithm": {"name": run}}}
        fake.change(fake.job(run, seed), samples_per_second=speed, **own | times | values)


CONFIG = {"parallel": {"ranks": 2, "transport": "mpi"}, "metrics": []}
HOST = {"cores": 8, "cores_available": 8, "ranks": 2, "threads": 2, "memory_bytes": 1, "gpus": []}
CPUS = [{"hardware": {"node0": HOST | {"cpu": name}}} for name in ("Xeon", "Epyc")]
OTHER_TIME, OTHER_CPU = "measured at different times", "measured on different processors"


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ({}, {}, OTHER_TIME),
        ({"started": None}, {}, OTHER_TIME),
        ({"started": "2026-01-02T01:00:00+00:00"}, {"started": "2026-01-02T02:00:00+00:00"}, ""),
        ({"session": "one"}, {"session": "one"}, ""),
        ({"session": "one"}, {"session": "two"}, OTHER_TIME),
        (CPUS[0] | {"session": "one"}, CPUS[1] | {"session": "one"}, OTHER_CPU),
        (CPUS[0], CPUS[0], OTHER_TIME),
    ],
)  # fmt: skip
def test_speeds_have_a_verdict_only_if_they_were_measured_together(fake, report, first, second, why):
    repeated(fake, "run", 3, **first)
    repeated(fake, "again", 9, **second)
    cell = matrix_of(fake, "samples_per_second").cells["again", "run"]
    assert (cell.verdict, cell.note) == ("" if why else "better", why)
    page = check(report(fake)).text
    assert (f"(not tested: {why})" in page) == bool(why)


def test_virtual_speeds_need_no_common_time(fake):
    config = {"algorithm": {"name": "a"}, "parallel": {"ranks": 2, "transport": "simulated"}, "metrics": []}
    for run, hour in (("run", 3), ("again", 9)):
        repeated(fake, run, hour, config=config)
    assert matrix_of(fake, "samples_per_second").cells["again", "run"].verdict == "better"
    measured = config | {"parallel": config["parallel"] | {"simulation": {"sample_seconds": "measured"}}}
    for folder in fake.folders:
        fake.change(folder, config=measured)
    assert matrix_of(fake, "samples_per_second").cells["again", "run"].note == OTHER_TIME
