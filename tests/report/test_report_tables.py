"""The numbers in the tables equal numbers computed by hand."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from helpers.synthetic_runs import change_json
from scipy import stats

from nnlo_lib.core.errors import UserError
from nnlo_lib.report.quantities import time_base_of
from nnlo_lib.report.sections.headline import headline
from nnlo_lib.report.sections.origin import resolved_settings
from nnlo_lib.report.sections.predictions import confusion_matrices
from nnlo_lib.report.sections.resources import bytes_by_purpose, seconds_by_phase
from nnlo_lib.report.statistics.comparison_text import compare_all
from nnlo_lib.report.statistics.run_comparison import ranking_metric
from nnlo_lib.report.tables import MEASURED, load_jobs, read_summary, summarize, write_summary


def sentences(fake):
    jobs = load_jobs(fake.folders)
    table = summarize(jobs)
    text = headline(table, time_base_of(jobs), compare_all(table, jobs), jobs)
    return str(text).replace("\u00a0", " ")


def test_a_row_per_job_in_the_order_given(fake):
    fake.job("b", 2, 1)
    fake.job("a", 1, 0, restarts=3)
    for folder in fake.folders:
        change_json(folder / "evaluation.json", top5_accuracy=0.999)
    table = summarize(load_jobs(fake.folders))
    assert list(table) == [
        "run", "seed", "fold", "accuracy", "loss", "seconds", "samples_per_second", "bytes_sent", "top5_accuracy",
        "val_loss", "val_accuracy", "epochs", "ranks", "restarts", "transport", "ended_early", *MEASURED,
    ]  # fmt: skip
    assert table[["run", "seed", "fold"]].to_numpy().tolist() == [["b", 2, 1], ["a", 1, 0]]
    assert table["bytes_sent"].tolist() == [8_000_000 + 6_000_000 + 5000 + 800] * 2
    assert table["restarts"].tolist() == [0, 3]


@pytest.mark.parametrize("missing", [None, math.nan], ids=["null", "NaN of an earlier version"])
def test_an_undefined_metric_is_an_empty_cell(fake, tmp_path, missing):
    for seed in (1, 2):
        change_json(fake.job(seed=seed) / "evaluation.json", r2=missing, loss=missing, classes=None)
    write_summary(summarize(load_jobs(fake.folders)), tmp_path / "summary.csv")
    table = pd.read_csv(tmp_path / "summary.csv")
    assert table[["r2", "loss"]].isna().all(axis=None)
    assert "classes" not in table
    assert sentences(fake)


@pytest.mark.parametrize("name", ["007", "NA", 'a,"b'])
def test_a_summary_reads_back_as_written(fake, tmp_path, name):
    fake.job().rename(fake.root / "odd")
    fake.change(fake.root / "odd", run=name)
    jobs = load_jobs([fake.root / "odd"])
    write_summary(summarize(jobs), tmp_path / "summary.csv")
    pd.testing.assert_frame_equal(
        read_summary(tmp_path / "summary.csv", jobs), summarize(jobs), check_dtype=False
    )


def test_a_summary_of_other_jobs_is_refused(fake, tmp_path):
    fake.job(seed=1), fake.job(seed=2)
    jobs = load_jobs(fake.folders)
    write_summary(summarize(jobs[:1]), tmp_path / "summary.csv")
    with pytest.raises(UserError, match=r"summary.csv: the rows do not match the given jobs"):
        read_summary(tmp_path / "summary.csv", jobs)


HEADLINES = {
    # Differences 15, 14, 16 points: t quantile of 2 degrees of freedom 4.303, width 4.303 / sqrt(3) = 2.48.
    "a clear win": (
        {"good": (0.95, 0.96, 0.97), "poor": (0.80, 0.82, 0.81)},
        "<b>good</b> has the highest mean test accuracy: 96.0 ± 1.0 % over 3 seeds. "
        "The run is better than <b>poor</b> (difference +15.0 [12.5, 17.5] points). "
        "<b>poor</b> has the highest mean training speed: 2,500 samples per second with 2 ranks, 2.50 times that of the "
        "slowest run, <b>good</b> (2 ranks).",
    ),
    "no significant difference": (
        {"one": (0.95, 0.97, 0.99, 0.97), "two": (0.94, 0.98, 0.97, 0.97)},
        "<b>two</b> (difference +0.5 [−1.6, 2.6] points) cannot be distinguished from it; ",
    ),
    "three seeds know too little of the variation for a number of seeds": (
        {"one": (0.95, 0.97, 0.99), "two": (0.94, 0.98, 0.97)},
        "<b>two</b> (difference +0.7 [−3.1, 4.5] points) cannot be distinguished from it. ",
    ),
    "two seeds": (
        {"one": (0.95, 0.97), "two": (0.94, 0.95)},
        "<b>two</b> (difference +1.5 points) cannot be distinguished from it; a test needs 3 seeds. ",
    ),
    "a job without a finite metric": (
        {"one": (0.95, 0.97, 0.96), "two": (0.94, math.nan, 0.97)},
        "Without a finite test accuracy, and not in the means: <b>two</b> seed 2.",
    ),
    "a mean over fewer seeds": ({"one": (0.95, math.nan, 0.97)}, "of 96.0 ± 1.4 % over 2 of 3 seeds."),
}  # fmt: skip


@pytest.mark.parametrize(("accuracies", "said"), HEADLINES.values(), ids=HEADLINES)
def test_the_headline(fake, accuracies, said):
    for run, values in accuracies.items():
        fake.scored(run, *values, samples_per_second=2500.0 if run == "poor" else 1000.0)
    text = sentences(fake)
    assert said in text
    assert ("more seeds would be needed." in text) == (said.endswith("from it; "))


def test_a_single_seed_is_compared_by_its_test_samples(fake):
    fake.scored("one", 0.95)
    fake.scored("two", 0.40)
    assert "<b>two</b> (difference +55 points) cannot be distinguished from it." in sentences(fake)
    for folder, correct in zip(fake.folders, (95, 40), strict=True):
        values = np.arange(100) < correct
        np.savez(folder / "sample_metrics.npz", accuracy=values.astype(np.float32))
    text = sentences(fake)
    assert "The run is better than <b>two</b> (difference +55.0 [" in text
    assert "verdicts are about these trained models on the test samples, not about other seeds." in text


def test_a_job_that_ended_early_is_named_with_the_reason(fake):
    fake.scored("one", 0.95, math.nan, 0.97)
    fake.change(fake.folders[1], ended_early="the loss is NaN")
    assert "not in the means: <b>one</b> seed 2 (ended early: the loss is NaN)." in sentences(fake)


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        ((500.0, 500.0), "All runs have the same mean training speed: 500 samples per second."),
        ((500.0, 500.0, 100.0), "<b>r0</b> and <b>r1</b> share the highest mean training speed: 500 samples"),
    ],
)
def test_equal_runs_are_not_the_highest(fake, speeds, said):
    for number, speed in enumerate(speeds):
        fake.scored(f"r{number}", 0.9, 0.92, samples_per_second=speed)
    text = sentences(fake)
    assert said in text
    several = (
        " and ".join(["<b>r0</b>", "<b>r1</b>"]) if len(speeds) == 2 else "<b>r0</b>, <b>r1</b> and <b>r2</b>"
    )
    assert f"{several} share the highest mean test accuracy" in text


@pytest.mark.parametrize(
    ("settings", "seconds", "transport", "is_told"),
    [
        ({"algorithm": {"name": "dsgd"}}, 60.0, "mpi", True),
        ({"compression": {"name": "top_k"}}, 60.0, "mpi", True),
        ({"algorithm": {"name": "dsgd"}}, 3.0, "mpi", False),  # as long as the noise of a host
        ({"algorithm": {"name": "dsgd"}}, 3.0, "simulated", True),  # a virtual clock has no noise
        ({"train": {"batch_size": 512}}, 60.0, "mpi", False),  # distributed alike
    ],
)
def test_speeds_are_told_of_long_runs_that_are_distributed_otherwise(
    fake, settings, seconds, transport, is_told
):
    for run, other in (("one", {}), ("two", settings)):
        config = {
            "algorithm": {"name": "allreduce"},
            "parallel": {"ranks": 2, "transport": transport},
        } | other
        for seed in (1, 2):
            speed = 500.0 if other else 400.0
            fake.change(
                fake.job(run, seed, config=config), training_seconds=seconds, samples_per_second=speed
            )
    assert ("training speed" in sentences(fake)) == is_told


@pytest.mark.parametrize(
    ("confusion", "balanced"), [([[900, 0], [60, 40]], 0.7), ([[50, 0], [30, 30]], None), (None, None)]
)
def test_of_rare_classes_the_mean_over_classes_is_compared(fake, confusion, balanced):
    for seed in (1, 2):
        change_json(fake.job("one", seed) / "evaluation.json", confusion=confusion)
    table = summarize(load_jobs(fake.folders))
    assert table.get("balanced_accuracy", pd.Series([None] * 2)).tolist() == [balanced] * 2
    assert ranking_metric(table).column == ("balanced_accuracy" if balanced else "accuracy")
    change_json(fake.folders[0] / "evaluation.json", balanced_accuracy=0.5)  # the evaluation's own
    assert summarize(load_jobs(fake.folders))["balanced_accuracy"][0] == 0.5


def folds(fake, seeds, split, **levels):
    """Write three folds per seed; `chosen` keeps its best weights, and is far better on the validation folds."""
    for run, level in levels.items():
        train = {"restore_best": "val_loss"} if run == "chosen" else {}
        for seed in range(1, seeds + 1):
            for fold in range(3):
                config = {"algorithm": {"name": run}, "parallel": {"ranks": 2}, "metrics": [], "train": train}
                folder = fake.job(run, seed, fold, config=config)
                accuracy = 0.8 + 0.01 * seed + 0.001 * fold
                change_json(folder / "evaluation.json", split=split, accuracy=accuracy)
                fake.change(folder, final={"val_accuracy": accuracy + level, "val_loss": 1.0 - level})


def test_validation_samples_that_chose_weights_decide_nothing(fake):
    folds(fake, 3, "held back", chosen=0.1, plain=0.0)
    text = sentences(fake)
    assert "<b>chosen</b> has the highest mean validation accuracy" in text
    assert (
        "No run is called better: train.restore_best of <b>chosen</b> chose the weights by the samples"
        in text
    )
    assert "The run is better" not in text
    jobs = load_jobs(fake.folders)
    [found] = compare_all(summarize(jobs), jobs)["val_accuracy"]
    assert (found.better, math.isnan(found.p_holm), found.test.pairs) == (None, True, 9)


def test_the_test_split_decides_if_validation_folds_chose_weights(fake):
    """Oracle: a paired t-test of the means of each seed, as folds of a seed share the test samples."""
    folds(fake, 3, "test", chosen=0.1, plain=0.0)
    gains = [0.01, 0.02, 0.03, 0.02, 0.02, 0.02, 0.0, 0.01, 0.02]
    for folder, gain in zip(fake.folders[:9], gains, strict=True):
        path = folder / "evaluation.json"
        change_json(path, accuracy=json.loads(path.read_text())["accuracy"] + gain)
    jobs = load_jobs(fake.folders)
    found = compare_all(summarize(jobs), jobs)
    assert not any(name.startswith("val_") for name in found)
    [accuracy] = found["accuracy"]
    assert (accuracy.method, accuracy.test.pairs) == ("seeds", 3)
    assert accuracy.test.p_value == pytest.approx(stats.ttest_1samp([0.02, 0.02, 0.01], 0).pvalue)
    assert (
        "Compared on the test split, seed by seed, because train.restore_best of <b>chosen</b> chose"
        in sentences(fake)
    )


def test_folds_of_one_seed_give_no_verdict_on_the_test_split(fake):
    folds(fake, 1, "test", chosen=0.1, plain=0.0)
    text = sentences(fake)
    assert "a verdict needs more than one seed" in text
    assert "The run is better" not in text


def test_early_stopping_on_held_back_samples_decides_nothing_without_folds(fake):
    config = {"train": {"early_stopping": {"metric": "val_loss", "patience": 3}}}
    fake.scored("stopped", 0.95, 0.96, 0.97, config=config)
    fake.scored("plain", 0.80, 0.82, 0.81)
    assert "The run is better than <b>plain</b>" in sentences(fake)
    for folder in fake.folders:
        change_json(folder / "evaluation.json", split="held back")
    assert "No run is called better: train.early_stopping of <b>stopped</b>" in sentences(fake)


def test_without_accuracy_the_lowest_loss_leads(fake):
    fake.job("a", accuracy=False, level=0.9)
    fake.job("b", accuracy=False, level=0.99)
    assert sentences(fake).startswith("<b>b</b> has the lowest mean test loss")


def test_confusion_is_summed_over_jobs(fake):
    for seed, counts in enumerate(([[8, 2], [0, 5]], [[7, 3], [1, 4]]), 1):
        change_json(fake.job(seed=seed) / "evaluation.json", confusion=counts, classes=["cat", "dog"])
    (matrix,) = confusion_matrices(load_jobs(fake.folders))
    assert matrix.counts.tolist() == [[15, 5], [1, 9]]
    np.testing.assert_allclose(matrix.shares, [[0.75, 0.25], [0.1, 0.9]])
    assert matrix.pairs() == [("cat", "dog", 5, 0.25)]


def test_confusion_of_unequal_classes_names_the_file(fake):
    fake.job(seed=1, classes=3), fake.job(seed=2, classes=4)
    with pytest.raises(UserError, match=r"seed-2/evaluation.json"):
        confusion_matrices(load_jobs(fake.folders))


def test_time_is_split_by_role_unless_all_ranks_are_alike(fake):
    first = {"total": 10.0, "compute": 4.0, "communication": 5.0}
    second = {"total": 20.0, "compute": 16.0, "communication": 2.0}
    third = {"total": 20.0, "compute": 12.0, "communication": 6.0}
    folder = fake.job(roles=("server", "worker", "worker"))
    fake.change(folder, seconds_by_rank=[first, second, third])
    fake.job("alike", roles=("worker",) * 4)
    bars = seconds_by_phase(load_jobs(fake.folders))
    assert list(bars) == [("allreduce", "server"), ("allreduce", "worker"), ("alike", "")]
    assert bars["allreduce", "worker"] == {"compute": 14.0, "communication": 4.0, "other": 2.0}


def test_bytes_are_means_over_jobs(fake):
    fake.change(fake.job(seed=1), bytes_sent={"gradient": 100, "control": 1})
    fake.change(fake.job(seed=2), bytes_sent={"gradient": 300})
    assert bytes_by_purpose(load_jobs(fake.folders)) == {
        ("allreduce", ""): {"gradient": 200.0, "control": 0.5}
    }


def test_settings_that_differ(fake):
    fake.job("a", config={"train": {"lr": 0.1, "epochs": 3}})
    fake.job("b", config={"train": {"lr": 0.2, "epochs": 3, "momentum": 0.9}})
    table = {setting["key"]: setting for setting in resolved_settings(load_jobs(fake.folders))}
    assert table["train.lr"]["texts"] == ("0.1", "0.2")
    assert table["train.momentum"]["texts"] == ("–", "0.9")
    assert [key for key in table if table[key]["differs"]] == ["train.lr", "train.momentum"]


def test_settings_by_rank_have_rows(fake):
    machine = {"speeds": {"1": 0.5}, "elastic": {"3": 1}}
    fake.job(config={"parallel": {"transport": "simulated", "simulation": machine}})
    table = {setting["key"]: setting for setting in resolved_settings(load_jobs(fake.folders))}
    assert all(table[f"parallel.simulation.{key}"]["is_set"] for key in ("speeds.1", "elastic.3"))
