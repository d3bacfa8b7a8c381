"""Learning curves: every validation at its place, one quantity per axis, the ranking metric against time."""

import pandas as pd
import pytest
from helpers.synthetic_runs import change_json

from nnlo_lib.report.learning_curves import learning_curve_figures
from nnlo_lib.report.quantities import measured_values, time_base_of
from nnlo_lib.report.tables import load_jobs


def panels(fake, ranked_by=None):
    jobs = load_jobs(fake.folders)
    return learning_curve_figures(jobs, time_base_of(jobs), ranked_by)


def titles(fake, against, ranked_by=None):
    return [panel.title for panel in panels(fake, ranked_by) if panel.text.split(":")[-2].endswith(against)]


def configured(fake, run, **settings):
    return fake.job(
        run, config={"algorithm": {"name": run}, "parallel": {"ranks": 2}, "metrics": [], **settings}
    )


def test_validations_between_epochs_are_drawn_where_they_were_made(fake):
    """41 steps per epoch: before step 1, after 10 of the first 41 steps, and at the end of a cut epoch."""
    folder = fake.job(epochs=2)
    rows = [(0, 0, 0.0, 9.0), (0, 10, 0.1, 8.0), (1, 61, 0.3, 7.0), (1, 82, 0.4, 6.0)]
    table = pd.DataFrame(rows, columns=["epoch", "step", "seconds", "val_loss"])
    table.to_csv(folder / "validations.csv", index=False)
    values = measured_values(load_jobs([folder])[0], "val_loss")
    between = values[values["value"] > 5]
    assert between["epoch"].tolist() == pytest.approx([0, 10 / 41, 1 + 20 / 41])
    assert between["value"].tolist() == [9, 8, 7]
    assert values["epoch"].is_monotonic_increasing
    panel = next(panel for panel in panels(fake) if panel.title == "Validation loss")
    columns = panel.spec["data"]["columns"]
    assert columns["epoch"] == pytest.approx([0, 10 / 41, 1, 1 + 20 / 41, 2], rel=1e-4)
    assert columns["value"][:2] == [9, 8]


def test_a_training_without_validations_has_whole_epochs(fake):
    values = measured_values(load_jobs([fake.job(epochs=3)])[0], "val_loss")
    assert values["epoch"].tolist() == [1, 2, 3]


def test_losses_of_different_functions_have_axes_of_their_own(fake):
    """Equal losses, of `b` and `c`, share an axis."""
    configured(fake, "a", loss="mse", problem={"name": "regression", "huber_delta": 1.0})
    for run in "bc":
        configured(fake, run, loss="huber", problem={"name": "regression", "huber_delta": 50.0})
    drawn = [panel for panel in panels(fake) if panel.title.startswith("Training loss")]
    assert [panel.title for panel in drawn] == ["Training loss (mse)", "Training loss (huber, delta 50)"]
    assert [sorted(set(panel.spec["data"]["columns"]["run"])) for panel in drawn] == [[0], [1, 2]]


def test_the_loss_of_a_gan_says_of_what_it_is(fake):
    """The gradient penalty is part of the training loss only."""
    gan = {"name": "gan", "gradient_penalty": 10.0, "critic_steps": 1, "energy_weight": None}
    folder = configured(fake, "a", loss="wasserstein", problem=gan)
    fake.add_to_history(folder, val_critic_loss=0.5, val_distance=0.1)
    found = titles(fake, "epoch")
    assert "Training loss (wasserstein, critic + generator, gradient penalty 10)" in found
    assert "Validation loss (wasserstein, critic + generator)" in found
    assert "Validation critic loss (wasserstein)" in found


@pytest.mark.parametrize(
    ("ranked_by", "title"),
    [
        ("mae", "Validation mae"),
        ("loss", "Validation loss"),
        ("accuracy", "Validation accuracy"),
        ("rank", "Training rank"),
        ("unknown", "Validation accuracy"),
    ],
)
def test_the_chart_against_time_shows_the_metric_that_ranks_the_runs(fake, ranked_by, title):
    fake.add_to_history(fake.job(), val_mae=1.0, train_mae=2.0, train_rank=3.0)
    assert titles(fake, "time (s)", ranked_by) == [title]


def test_the_loss_of_the_best_constant_predictor_is_a_line_of_the_validation_loss(fake):
    known = {"manifest": "m", "sha256": "0", "fingerprint": "0", "constant_loss": 0.5}
    for run in "ab":
        change_json(configured(fake, run) / "summary.json", data=known)
    drawn = {panel.title: panel for panel in panels(fake)}
    (rule, name) = drawn["Validation loss"].spec["layer"][-2:]
    assert rule["data"]["columns"]["y"] == name["data"]["columns"]["y"] == [0.5]
    assert name["mark"]["text"] == "best constant predictor"
    assert drawn["Validation loss"].text.endswith("The best constant predictor has 0.5000.")
    assert "constant predictor" not in drawn["Training loss"].text
    change_json(fake.folders[0] / "summary.json", data=known | {"constant_loss": 0.4})
    assert not any("constant predictor" in panel.text for panel in panels(fake)), "runs with other samples"
