"""Losses and metrics by name: refused shapes, half precision, bounds of Keras, functions of users."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from nnlo_lib.config.metrics import LOSSES, METRICS
from nnlo_lib.config.problem import ClassificationConfig, RegressionConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.models.factory import build_model
from nnlo_lib.problems.gan import gan_losses_by_name
from nnlo_lib.problems.losses import loss_by_name, metric_by_name

RNG = np.random.default_rng(3)
N, K = 7, 4
SCORES, LABELS = RNG.normal(size=(N, K)), RNG.integers(0, K, N)
SINGLE, NUMBERS = RNG.normal(size=(N, 1)), RNG.normal(size=(N, K)) + 1
CLASSES, NUMBER = ClassificationConfig(), RegressionConfig()
CHANCES = ClassificationConfig(outputs="probabilities")


@pytest.mark.parametrize("problem", [CLASSES, CHANCES, NUMBER])
def test_every_name_is_there(problem):
    for name in (*LOSSES[problem.name], *METRICS[problem.name]):
        assert callable(metric_by_name(problem, name))


def test_probabilities_of_nought_cost_what_keras_makes_of_them():
    outputs, labels = torch.tensor([[0.0, 1.0]]), torch.tensor([0])
    assert loss_by_name(CHANCES, "cross_entropy")(outputs, labels).item() == pytest.approx(-np.log(1e-7))
    assert loss_by_name(CHANCES, "binary_cross_entropy")(outputs, labels).isfinite().all()


def test_half_precision_is_compared_in_single():
    numbers = torch.tensor([[1000.4]])
    answers = torch.tensor([[1000.0]], dtype=torch.bfloat16)
    assert loss_by_name(NUMBER, "mae")(answers, numbers).item() == pytest.approx(0.4, rel=1e-3)


def test_what_does_not_fit_is_told():
    outputs, numbers = torch.zeros(N, 3), torch.zeros(N, 2)
    with pytest.raises(UserError, match="returns 3 numbers per sample, but each sample has 2 labels"):
        loss_by_name(NUMBER, "mse")(outputs, numbers)
    with pytest.raises(UserError, match="accuracy needs one class for each sample"):
        metric_by_name(CLASSES, "accuracy")(outputs, numbers)


@pytest.fixture
def users(tmp_path):
    """Return the path of a file with functions of a user."""
    (tmp_path / "mine.py").write_text(
        "def cubes(outputs, targets):\n    return (outputs[:, 0] - targets).abs() ** 3\n"
        "def mean(outputs, targets):\n    return outputs.mean()\n"
        "def raising(outputs, targets):\n    return {}['x']\n"
        "def lonely(outputs):\n    return outputs\n"
        "def loss(outputs, targets):\n    targets[:] = 0\n    return outputs.sum(1)\n"
    )
    return tmp_path / "mine.py"


def test_functions_of_users(users):
    outputs, numbers = torch.from_numpy(SINGLE), torch.from_numpy(NUMBERS[:, 0])
    found = loss_by_name(NUMBER, f"{users}:cubes")(outputs, numbers)
    assert_allclose(found, np.abs(SINGLE[:, 0] - NUMBERS[:, 0]) ** 3)
    with pytest.raises(UserError, match=r"mine\.py:median cannot be used: AttributeError"):
        loss_by_name(NUMBER, f"{users}:median")


FAILURES = {
    "mean": r"mine\.py:mean returned \(\); it must return a tensor with one number for each of 7",
    "raising": r"raising\(outputs, targets\) failed: .*mine.py:6 in raising: KeyError: 'x'",
    "lonely": r"lonely.* failed: TypeError: .* 1 positional argument but 2 were given$",
}


@pytest.mark.parametrize(("function", "message"), FAILURES.items())
def test_functions_of_users_that_fail(users, function, message):
    for by_name in (loss_by_name, metric_by_name):
        with pytest.raises(UserError, match=message):
            by_name(NUMBER, f"{users}:{function}")(torch.from_numpy(SINGLE), torch.from_numpy(NUMBERS[:, 0]))


def test_a_loss_that_changes_the_targets_does_not_change_the_metrics(users):
    labels = torch.as_tensor(LABELS)
    loss_by_name(CLASSES, f"{users}:loss")(torch.as_tensor(SCORES), labels)
    assert np.array_equal(labels, LABELS)


USES = {
    "model": lambda path: build_model(f"{path}:leave", {}, (3,), 2, 0),
    "loss": lambda path: metric_by_name(CLASSES, f"{path}:leave")(torch.zeros(2, 1), torch.zeros(2, 1)),
    "GAN losses": lambda path: gan_losses_by_name(f"{path}:leave")(torch.zeros(2, 1), torch.zeros(2, 1)),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("place", ["function", "import"])
def test_an_exit_in_the_code_of_a_user_is_an_error_that_names_the_file(tmp_path, use, place):
    body = "import sys\ndef leave(*args):\n    sys.exit(0)\n"
    (tmp_path / "mine.py").write_text(body if place == "function" else body + "sys.exit('no license')\n")
    with pytest.raises(UserError, match=r"SystemExit: (0|no license)") as error:
        USES[use](tmp_path / "mine.py")
    assert "mine.py:" in str(error.value)
