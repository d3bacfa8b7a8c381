"""The matrix of differences and comparisons.csv, from job folders to the page."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from nnlo_lib.report.finished_job import load_jobs
from nnlo_lib.report.sections.quality.difference_matrix import difference_matrix
from nnlo_lib.report.statistics.comparisons_csv import compare_all, write_comparisons
from nnlo_lib.report.tables import summarize

GOOD, POOR, NEAR = (0.95, 0.96, 0.97), (0.80, 0.82, 0.81), (0.94, 0.97, 0.96)


def scored(fake, run, accuracies):
    for seed, accuracy in enumerate(accuracies, 1):
        path = fake.job(run, seed) / "evaluation.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"accuracy": accuracy, "samples": 100_000}))


@pytest.fixture
def compared(fake):
    for run, accuracies in (("good", GOOD), ("poor", POOR), ("near", NEAR)):
        scored(fake, run, accuracies)
    jobs = load_jobs(fake.folders)
    return compare_all(summarize(jobs), jobs)


def test_cells_above_and_below_the_diagonal_are_opposite(compared):
    matrix = difference_matrix(compared["accuracy"])
    assert matrix.runs == ("good", "poor", "near")
    assert matrix.cells["good", "poor"].text == "+15.0 [12.5, 17.5]\u00a0points"
    assert matrix.cells["poor", "good"].text == "−15.0 [−17.5, −12.5]\u00a0points"
    verdicts = {pair: cell.verdict for pair, cell in matrix.cells.items()}
    assert (verdicts["good", "poor"], verdicts["poor", "good"], verdicts["good", "near"]) == (
        "better",
        "worse",
        "",
    )
    assert "more seed" in matrix.cells["good", "near"].note


def test_the_ratio_of_the_opposite_pair_is_the_reciprocal(fake):
    for run, speed in (("slow", 1000.0), ("fast", 2000.0)):
        for seed in (1, 2, 3):
            fake.change(fake.job(run, seed), samples_per_second=speed * (1 + seed / 1000 * (run == "fast")))
    jobs = load_jobs(fake.folders)
    matrix = difference_matrix(compare_all(summarize(jobs), jobs)["samples_per_second"])
    assert matrix.cells["fast", "slow"].text.startswith("2.00")
    assert matrix.cells["slow", "fast"].text.startswith("0.49")


def test_the_table_holds_what_scipy_computes(compared, tmp_path):
    write_comparisons(compared, tmp_path / "comparisons.csv")
    table = (
        pd.read_csv(tmp_path / "comparisons.csv").query("metric == 'accuracy'").set_index(["run", "other"])
    )
    raw = {
        pair: stats.ttest_rel(*values).pvalue
        for pair, values in {("good", "poor"): (GOOD, POOR), ("good", "near"): (GOOD, NEAR)}.items()
    }
    assert table.loc[("good", "poor"), "p_value"] == pytest.approx(raw["good", "poor"])
    assert table.loc[("good", "near"), "p_value"] == pytest.approx(raw["good", "near"])
    assert table.loc[("good", "poor"), "better"] == "good"
    assert table.loc[("good", "poor"), ["pairs", "pairs_are"]].tolist() == [3, "seeds"]


def test_the_page_shows_each_pair(fake, report):
    scored(fake, "good", GOOD), scored(fake, "poor", POOR)
    page = report(fake).read_text()
    assert "+15.0 [12.5, 17.5]" in page
    assert "Differences of test accuracy" in page


def test_a_single_run_has_no_matrix(fake, report):
    scored(fake, "good", GOOD)
    assert "Differences of" not in report(fake).read_text()


def test_single_seeds_are_compared_by_the_samples_of_their_files(fake):
    rng = np.random.default_rng(0)
    right = {run: (rng.random(400) < share).astype(np.float32) for run, share in (("a", 0.9), ("b", 0.7))}
    for run, values in right.items():
        scored(fake, run, [values.mean().item()])
        np.savez(fake.folders[-1] / "sample_metrics.npz", accuracy=values)
    jobs = load_jobs(fake.folders)
    [found] = compare_all(summarize(jobs), jobs)["accuracy"]
    disagree = right["a"] != right["b"]
    wins = int((right["a"] > right["b"]).sum())
    assert found.test.p_value == pytest.approx(stats.binomtest(wins, int(disagree.sum())).pvalue)
    assert found.better == "a"
