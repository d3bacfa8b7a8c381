"""comparisons.csv equals SciPy's tests of what the files of the jobs say: over seeds, over folds, and over test samples."""

import json
import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from helpers.synthetic_runs import change_json
from scipy import integrate, stats

from nnlo_lib.report.statistics.comparison_text import compare_all, write_comparisons
from nnlo_lib.report.tables import load_jobs, summarize

LEVEL, POWER = 0.05, 0.8
ROUNDING = math.sqrt(2 / 12)  # standard deviation of a difference of two rounded values, in last digits
SPEEDS = {"seconds": "training_seconds", "samples_per_second": "samples_per_second"}
SMALLER_IS_BETTER = ("loss", "seconds")


def seeds(fake):
    """Four runs; one lacks a seed; `near` cannot be distinguished from `good`."""
    for run, level, speed in (
        ("good", 0.95, 5000),
        ("near", 0.948, 5030),
        ("poor", 0.8, 9000),
        ("short", 0.9, 5000),
    ):
        for seed in (1, 2, 3, 4)[: 3 if run == "short" else 4]:
            folder = fake.job(run, seed, epochs=1, level=level, speed=speed)
            fake.change(folder, training_seconds=1300 / speed * (1 + 0.01 * math.sin(seed + level * 99)))


def folds(fake):
    """Three runs with two seeds of three folds."""
    for run, level in (("good", 0.95), ("near", 0.945), ("poor", 0.7)):
        for seed, fold in ((seed, fold) for seed in (1, 2) for fold in range(3)):
            folder = fake.job(run, seed, fold, epochs=1, level=level)
            fake.change(
                folder, training_samples=800, validation_samples=400, training_seconds=seed + fold + level
            )


def samples(fake):
    """Three runs with a single seed, of which each test sample is known."""
    draws = np.random.default_rng(0)
    for run, share in (("good", 0.9), ("near", 0.88), ("poor", 0.7)):
        folder, right = fake.job(run, 1, epochs=1), draws.random(360) < share
        fake.change(folder, training_seconds=1.0)
        change_json(folder / "evaluation.json", accuracy=float(right.mean()))
        np.savez(folder / "sample_metrics.npz", accuracy=right.astype(np.float32))


def value(folder, column):
    """Return the value of a job by a column of comparisons.csv, on the scale of the test."""
    summary, evaluation = (
        json.loads((folder / name).read_text()) for name in ("summary.json", "evaluation.json")
    )
    if column in SPEEDS:
        return math.log(summary[SPEEDS[column]])
    return summary["final"][column] if column.startswith("val_") else evaluation[column]


def paired(ours, theirs, overlap, step):
    """Return mean, ends, p-value and deviation of a paired t-test: SciPy's, Nadeau and Bengio's, or that of rounded values."""
    differences = np.subtract(ours, theirs)
    count, mean, std = len(differences), differences.mean(), differences.std(ddof=1)
    if not overlap and std > step * ROUNDING:
        found = stats.ttest_rel(ours, theirs)
        return mean, *found.confidence_interval(1 - LEVEL), found.pvalue, std
    std = max(std, step * ROUNDING)
    error = std * math.sqrt(1 / count + overlap)
    width = error * stats.t(count - 1).isf(LEVEL / 2)
    return mean, mean - width, mean + width, 2 * stats.t(count - 1).cdf(-abs(mean) / error), std


def mcnemar(ours, theirs):
    """Return McNemar's exact test, with Agresti and Min's interval: half a sample in each cell of the table."""
    wins, losses, count = int((ours > theirs).sum()), int((ours < theirs).sum()), len(ours)
    shares = np.array([wins + 0.5, losses + 0.5]) / (count + 2)
    middle = shares[0] - shares[1]
    width = stats.norm.isf(LEVEL / 2) * math.sqrt((shares.sum() - middle**2) / (count + 2))
    p_value = min(1.0, 2 * stats.binom.cdf(min(wins, losses), wins + losses, 0.5))
    return (wins - losses) / count, middle - width, middle + width, p_value, math.nan


def holm(p_values):
    """Return Holm's adjusted p-values, by their definition."""
    known = sorted(p for p in p_values if not math.isnan(p))
    adjusted = [
        max(min(1.0, (len(known) - k) * known[k]) for k in range(rank + 1)) for rank in range(len(known))
    ]
    return [math.nan if math.isnan(p) else adjusted[known.index(p)] for p in p_values]


def power(effect, pairs, level):
    """Return the power of a paired t-test: a normal probability, integrated over the estimated deviation."""
    bound, shift = stats.t(pairs - 1).isf(level / 2), effect * math.sqrt(pairs)
    ratio = stats.chi(pairs - 1, scale=1 / math.sqrt(pairs - 1))
    ends = ratio.ppf(1e-12), ratio.isf(1e-12)
    points = [shift / bound] if ends[0] < shift / bound < ends[1] else None
    return integrate.quad(
        lambda s: stats.norm.sf(bound * s - shift) * ratio.pdf(s), *ends, points=points, limit=200
    )[0]


def expected(fake, kind, column):
    """Return the rows of a metric: run, other, mean, ends, p-value, deviation, and number of pairs."""
    jobs = {}
    for folder in fake.folders:
        run, key = folder.relative_to(fake.root).parts[0], folder.parts[folder.parts.index("results") + 2 :]
        jobs.setdefault(run, {})[key] = folder
    for run, other in combinations(jobs, 2):
        both = sorted(jobs[run].keys() & jobs[other].keys())
        ours, theirs = ([value(jobs[name][key], column) for key in both] for name in (run, other))
        if len(both) > 1:
            number = 400 if column.startswith("val_") else 360
            step = 1 / number if column.endswith("accuracy") else 0.0
            yield (
                run,
                other,
                *paired(ours, theirs, 0.5 if column.startswith("val_") else 0.0, step),
                len(both),
            )
        elif column == "accuracy":
            right = [np.load(jobs[name][both[0]] / "sample_metrics.npz")["accuracy"] for name in (run, other)]
            yield run, other, *mcnemar(*right), 360
        else:
            yield run, other, ours[0] - theirs[0], *[math.nan] * 4, 1


@pytest.mark.parametrize("kind", [seeds, folds, samples], ids=lambda kind: kind.__name__)
def test_each_row_equals_the_test_of_scipy(kind, fake):
    kind(fake)
    jobs = load_jobs(fake.folders)
    write_comparisons(compare_all(summarize(jobs), jobs), fake.root / "comparisons.csv")
    table = pd.read_csv(fake.root / "comparisons.csv")
    first = ["val_accuracy", "val_loss"] if kind is folds else ["accuracy", "loss"]
    assert list(dict.fromkeys(table["metric"])) == [*first, *SPEEDS]
    verdicts = set()
    for column, rows in table.groupby("metric"):
        oracle = list(expected(fake, kind, column))
        adjusted = holm([each[5] for each in oracle])
        tested = sum(map(math.isfinite, adjusted))
        for (_, row), (run, other, *ends, p_value, std, pairs), p_holm in zip(
            rows.iterrows(), oracle, adjusted, strict=True
        ):
            assert (row["run"], row["other"], row["pairs"]) == (run, other, pairs)
            assert row["left_out"] == ("short" in (run, other))
            known = np.exp(ends) if column in SPEEDS else ends
            found = row[["difference", "low", "high", "p_value", "p_holm"]].to_list()
            assert found == pytest.approx([*known, p_value, p_holm], rel=1e-6, abs=1e-9, nan_ok=True)
            better = run if (ends[0] > 0) != column.endswith(SMALLER_IS_BETTER) else other
            assert row["better"] == better if p_holm <= LEVEL else pd.isna(row["better"])
            verdicts.add(row["better"])
            if pd.notna(row["more_seeds"]):
                assert row["pairs_are"] == "seeds"
                effect, needed = abs(ends[0]) / std, int(row["more_seeds"]) + pairs
                assert power(effect, needed, LEVEL / tested) >= POWER - 1e-6
                assert needed == pairs + 1 or power(effect, needed - 1, LEVEL / tested) < POWER + 1e-6
    assert {"good"} < verdicts
    assert table["more_seeds"].notna().any() == (kind is seeds)
