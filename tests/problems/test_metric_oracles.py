"""Metrics over uneven batches of several ranks, equal to scikit-learn's of the whole data in float64."""

import numpy as np
import pytest
import torch
from helpers.oracles.metrics import METRIC_ORACLES, TOLERANCE
from torch import nn

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Run
from nnlo_lib.config.metrics import METRICS
from nnlo_lib.problems.base import build_problem
from nnlo_lib.problems.gan import GAN_LOSSES, fixed_noise

RANKS, SAMPLES = 3, 53
PARTS = [1, 7, 0, 4, 100]  # samples of a rank's batches; the last one has the rest


def problem_of(oracle):
    loss = {"loss": oracle.loss} if oracle.loss else {}
    return build_problem(
        Run.model_validate({"problem": oracle.problem, "metrics": [oracle.metric], **loss}), 6
    )


def batches(samples):
    """Yield parts of the samples of uneven sizes."""
    for start, size in zip(np.cumsum([0, *PARTS[:-1]]), PARTS, strict=True):
        if len(part := samples[start : start + size]):
            yield part


def streamed(problem, outputs, labels):
    """Return the means as the ranks of a validation compute them: float64 sums of each rank's share, added up."""

    def program(comm):
        sums = torch.zeros(problem.sums_size, dtype=torch.float64)
        for part in batches(np.arange(len(labels))[comm.rank :: comm.size]):
            sums += problem.measure(nn.Identity(), (outputs[part],), labels[part])
        comm.allreduce(sums, "metrics")
        return problem.means(sums)

    first, *others = SimulatedWorld(RANKS).run(program)
    assert all(str(each) == str(first) for each in others)  # as text, because NaN differs from NaN
    return first


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("oracle", METRIC_ORACLES.values(), ids=METRIC_ORACLES)
def test_metrics_follow_their_references(oracle, seed):
    outputs, labels = oracle.sample(seed, SAMPLES)
    problem = problem_of(oracle)
    found = streamed(problem, torch.tensor(outputs), torch.tensor(labels))[oracle.metric]
    expected = oracle.value(outputs, labels)
    assert found == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE, nan_ok=True)


@pytest.mark.parametrize("oracle", METRIC_ORACLES.values(), ids=METRIC_ORACLES)
def test_metrics_of_stacked_nodes_follow_their_references(oracle):
    """The samples of three nodes, padded to the same number by samples that do not count."""
    counts = [SAMPLES, 7, 31]
    drawn = [oracle.sample(seed, SAMPLES) for seed in range(3)]
    outputs, labels = (torch.tensor(np.concatenate(each)) for each in zip(*drawn, strict=True))
    problem = problem_of(oracle)
    sums = problem.sums_by_node(outputs, labels, problem.losses(outputs, labels), torch.tensor(counts))
    for node, count, (own, truth) in zip(sums, counts, drawn, strict=True):
        expected = oracle.value(own[:count], truth[:count])
        found = problem.means(node)[oracle.metric]
        assert found == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE, nan_ok=True)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_padding_that_is_not_finite_has_no_effect_on_the_sums_of_a_node(value):
    oracle = METRIC_ORACLES["mse, metric"]
    outputs, labels = (torch.tensor(each) for each in oracle.sample(0, 12))
    outputs[[4, 5, 10, 11]] = value
    problem = problem_of(oracle)
    sums = problem.sums_by_node(outputs, labels, problem.losses(outputs, labels), torch.tensor([4, 4]))
    for node, first in zip(sums, (0, 6), strict=True):
        real = slice(first, first + 4)
        expected = oracle.value(outputs[real].numpy(), labels[real].numpy())
        assert problem.means(node)[oracle.metric] == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.parametrize("loss", GAN_LOSSES)
def test_metrics_of_gans_are_means_over_samples(loss):
    """`distance` is a difference of mean scores; a critic of one weight gives scores that are known."""
    run = {"problem": {"name": "gan", "gradient_penalty": 1}, "model": {"name": "wgan"}, "loss": loss}
    problem = build_problem(Run.model_validate(run))
    module = nn.Module()
    module.latent, module.generator, module.critic = 1, nn.Identity(), nn.Identity()
    real = torch.randn(SAMPLES, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sums, expected = torch.zeros(5, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
    for part in batches(np.arange(SAMPLES)):
        sums += problem.measure(module, (real[part],), torch.zeros(len(part)))
        made = fixed_noise(len(part), 1).double()
        critic, generator = GAN_LOSSES[loss](real[part], made)
        values = [1.0, critic + generator, real[part].mean() - made.mean(), critic, generator]
        expected += len(part) * torch.tensor(values, dtype=torch.float64)
    assert problem.names == ("loss", "distance", "critic_loss", "generator_loss")
    torch.testing.assert_close(sums, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_each_metric_has_an_oracle():
    found = {(oracle.problem["name"], oracle.metric) for oracle in METRIC_ORACLES.values()}
    named = {
        (problem, name)
        for problem, names in METRICS.items()
        for name in names
        if problem in ("classification", "regression")
    }
    assert named - found == set()
    # The gap is computed by hand in test_gan_options.py.
    assert METRICS["gan"] == ("distance", "critic_loss", "generator_loss", "loss_gap")
