"""Values and gradients of each loss, equal to formulas in float64, over uneven batches; test_metric_oracles.py: means."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from helpers.oracles.gan_losses import GAN_ORACLES
from helpers.oracles.losses import LOSS_ORACLES, TOLERANCE
from torch import nn

from nnlo_lib.config import Run
from nnlo_lib.config.metrics import LOSSES
from nnlo_lib.config.problem import ClassificationConfig, RegressionConfig
from nnlo_lib.problems.base import build_problem
from nnlo_lib.problems.gan import GAN_LOSSES

CLOSE = {"rtol": TOLERANCE, "atol": TOLERANCE}
SEEDS = range(5)
NO_ORACLE = (
    "name",
    "class_weights",
    "mixup",
    "cutmix",
)  # of test_class_weights.py and test_training_oracle.py
PARTS = [1, 5, 0, 2, 9]  # samples of uneven batches, one of them empty


def problem_of(oracle):
    return build_problem(
        Run.model_validate({"problem": oracle.problem, "loss": oracle.loss, "metrics": [oracle.loss]})
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("oracle", LOSS_ORACLES.values(), ids=LOSS_ORACLES)
def test_losses_and_gradients_follow_their_formulas(oracle, seed):
    outputs, labels = oracle.sample(seed, sum(PARTS), factor=1.0 if seed < 3 else 100.0)
    problem, expected = problem_of(oracle), oracle.formula(outputs, labels)
    torch.testing.assert_close(problem.losses(outputs, labels), expected, **CLOSE)
    single = problem.losses(outputs.detach().float(), labels)
    torch.testing.assert_close(single.double(), expected.detach(), rtol=2e-5, atol=1e-5)
    loss = problem.compute_loss(nn.Identity(), (outputs,), labels, 0).loss
    torch.testing.assert_close(loss, expected.mean(), **CLOSE)
    gradients = [torch.autograd.grad(each, outputs)[0] for each in (loss, expected.mean())]
    torch.testing.assert_close(*gradients, **CLOSE)


@pytest.mark.parametrize("oracle", LOSS_ORACLES.values(), ids=LOSS_ORACLES)
def test_uneven_batches_add_up_to_the_mean_over_samples(oracle):
    outputs, labels = oracle.sample(7, sum(PARTS))
    problem, expected = problem_of(oracle), oracle.formula(outputs, labels).mean().item()
    ends = np.cumsum(PARTS)
    sums, gradient = 0, torch.zeros_like(outputs)
    for part in (slice(end - size, end) for size, end in zip(PARTS, ends, strict=True) if size):
        batch = problem.compute_loss(nn.Identity(), (outputs[part],), labels[part], 0)
        sums = sums + batch.sums()
        # The share of the batch, as in the exchange of gradients.
        gradient += (
            torch.autograd.grad(batch.loss, outputs, retain_graph=True)[0] * len(labels[part]) / len(labels)
        )
    assert problem.means(sums)["loss"] == pytest.approx(expected, rel=TOLERANCE)
    (whole,) = torch.autograd.grad(oracle.formula(outputs, labels).mean(), outputs)
    torch.testing.assert_close(gradient, whole, **CLOSE)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", GAN_ORACLES)
def test_losses_of_gans_follow_their_formulas(name, seed):
    drawn = torch.Generator().manual_seed(seed)
    scores = [
        3 * torch.randn(count, 1, generator=drawn, dtype=torch.float64).requires_grad_() for count in (7, 5)
    ]
    for found, expected in zip(GAN_LOSSES[name](*scores), GAN_ORACLES[name].losses(*scores), strict=True):
        torch.testing.assert_close(found, expected, **CLOSE)
        pairs = [
            torch.autograd.grad(each, scores, retain_graph=True, allow_unused=True)
            for each in (found, expected)
        ]
        for one, other in zip(*pairs, strict=True):
            torch.testing.assert_close(one, other, **CLOSE)


def test_each_loss_has_an_oracle():
    supervised = {(oracle.problem["name"], oracle.loss) for oracle in LOSS_ORACLES.values()}
    found = supervised | {("gan", name) for name in GAN_ORACLES}
    # test_dense_classification.py compares its only loss.
    named = {(problem, name) for problem, names in LOSSES.items() for name in names}
    assert found == named - {("dense_classification", "cross_entropy")}


def test_each_setting_of_a_supervised_problem_has_two_values_with_an_oracle():
    values = defaultdict(set)
    blocks = {"classification": ClassificationConfig, "regression": RegressionConfig}
    for oracle in LOSS_ORACLES.values():
        for key, value in blocks[oracle.problem["name"]](**oracle.problem):
            values[oracle.problem["name"], key].add(value)
    known = {
        (name, key) for name, block in blocks.items() for key in block.model_fields if key not in NO_ORACLE
    }
    assert {each for each in known if len(values[each]) < 2} == set()
