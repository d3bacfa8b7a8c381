"""The page says of which weights its figures are."""

import pandas as pd
from helpers.html_page import check

from nnlo_lib.report.sections.origin import published_weights_sentence
from nnlo_lib.report.sections.predictions import consensus_table
from nnlo_lib.report.tables import load_jobs

CONFIG = {
    "algorithm": {"name": "a"},
    "parallel": {"ranks": 2},
    "metrics": [],
    "train": {"restore_best": "val_loss"},
}


def test_the_step_and_epoch_of_restored_weights_are_said(fake, report):
    fake.job("b")
    assert published_weights_sentence(load_jobs(fake.folders)) == ""
    for seed, step in ((1, 41 * 3), (2, 50)):
        folder = fake.job("a", seed, config=CONFIG)
        fake.change(folder, published_step=step)
    within = {"epoch": [1], "step": [50], "seconds": [0.3], "val_loss": [0.01]}
    pd.DataFrame(within).to_csv(folder / "validations.csv", index=False)
    text = check(report(fake)).text
    assert (
        "of a are of the weights with the best val_loss (train.restore_best): after step 123 (epoch 3 of 20) and "
        "step 50 (epoch 1.22 of 20)." in text
    )
    assert "after the last epoch" not in text


def test_distances_of_the_nodes_are_those_of_the_published_models(fake):
    """The distance of the synthetic nodes is 1 / epoch; of weights from within an epoch, it is unknown."""
    folder = fake.gossip("dsgd")
    fake.change(folder, published_step=41 * 4)
    found = consensus_table(load_jobs(fake.folders), {})
    assert found.rows["dsgd"][found.headings.index("distance to mean")] == "0.2500"
    fake.change(folder, published_step=41 * 4 + 7)
    assert "distance to mean" not in consensus_table(load_jobs(fake.folders), {}).headings
