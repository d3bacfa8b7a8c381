"""The page says of which weights its figures are, and on which samples they were measured."""

import json

import pandas as pd
import pytest
from helpers.html_page import check

from nnlo_lib.report.finished_job import load_jobs
from nnlo_lib.report.sections.origin.published_weights import published_weights_sentence
from nnlo_lib.report.sections.quality.consensus import consensus_table

UNBROKEN = "\u00a0"
CONFIG = {"algorithm": {"name": "a"}, "parallel": {"ranks": 2}, "metrics": []}


def restored(fake, step, seed=1, **given):
    """Write a job that published the weights with the best val_loss, which it had at a step."""
    folder = fake.job("a", seed, config=CONFIG | {"train": {"restore_best": "val_loss"}}, **given)
    fake.change(folder, published_step=step)
    return folder


def test_without_restore_best_nothing_is_said(fake, report):
    fake.job("a")
    assert published_weights_sentence(load_jobs(fake.folders)) == ""
    assert "weights with the best" not in check(report(fake)).text


def test_the_step_and_epoch_of_the_published_weights_are_said(fake, report):
    restored(fake, step=41 * 3)
    within = restored(fake, step=50, seed=2)
    rows = [(1, 50, 0.3, 0.01)]
    pd.DataFrame(rows, columns=["epoch", "step", "seconds", "val_loss"]).to_csv(
        within / "validations.csv", index=False
    )
    expected = (
        "of a are of the weights with the best val_loss (train.restore_best): after step 123 (epoch 3 of 20) and "
        "step 50 (epoch 1.22 of 20)."
    )
    text = check(report(fake)).text
    assert expected in text
    assert "after the last epoch" not in text


def test_distances_of_the_nodes_are_those_of_the_published_models(fake):
    """The distance of the synthetic nodes is 1 / epoch."""
    folder = fake.gossip("dsgd")
    fake.change(folder, published_step=41 * 4)
    found = consensus_table(load_jobs(fake.folders), {})
    assert found.rows["dsgd"][found.headings.index("distance to mean")] == "0.2500"


def test_distances_of_weights_from_within_an_epoch_are_unknown(fake):
    fake.change(fake.gossip("dsgd"), published_step=41 * 4 + 7)
    assert "distance to mean" not in consensus_table(load_jobs(fake.folders), {}).headings


@pytest.mark.parametrize(
    ("split", "heading"),
    [
        ("test", "Confusion matrices on the test split"),
        ("validation", "Confusion matrices on the validation split"),
        ("held back", "Confusion matrices on the samples held back for validation"),
    ],
)
def test_the_heading_of_the_confusion_matrices_names_their_samples(fake, report, split, heading):
    path = fake.job() / "evaluation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"split": split}))
    assert heading in check(report(fake)).text
