"""The page of a GAN equals what its raw files say."""

import hashlib

import pytest
import torch
from helpers.recomputation.dense import samples
from helpers.recomputation.experiment import audited_experiment
from helpers.recomputation.page_tests import ExperimentPageTests
from helpers.recomputation.tensors import read_tensors
from torch.nn import functional

# The first test of the module makes the experiment.
pytestmark = [pytest.mark.processes, pytest.mark.timeout(1200)]

SETTINGS = {
    "name": "gan",
    "data": {"dataset": "digits", "validation": 0.2},
    "model": {"name": "wgan", "args": {"filters": [4, 8], "hidden": 0, "latent": 8, "batch_norm": False}},
    "problem": {"name": "gan", "gradient_penalty": 10, "critic_steps": 3},
    "train": {"epochs": 3, "batch_size": 80, "optimizer": {"name": "adam", "lr": 0.001, "beta1": 0.5}},
    "seeds": [1, 2],
    "runs": {
        "pair": {"parallel": {"ranks": 2}},
        "slow": {"parallel": {"ranks": 1}, "train": {"optimizer": {"lr": 0.0002}}},
    },
}
FLOAT32 = 1e-4  # absolute error of a score in single precision


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return audited_experiment(tmp_path_factory.mktemp("gan"), SETTINGS)


class TestPage(ExperimentPageTests):
    """The page equals its raw files."""


def weights(job):
    return {name: torch.tensor(each) for name, each in read_tensors(job.folder / "model.safetensors").items()}


def normalized(values, tensors, layer):
    names = ("running_mean", "running_var", "weight", "bias")
    return functional.batch_norm(values, *(tensors[f"{layer}.{name}"] for name in names)).relu()


def generate(tensors, noise):
    """Return images of digits from noise (n, 8)."""
    small = normalized(noise @ tensors["generator.0.weight"].T, tensors, "generator.1")
    doubling = {"stride": 2, "padding": 2, "output_padding": 1}
    middle = functional.conv_transpose2d(
        small.reshape(-1, 8, 2, 2), tensors["generator.4.weight"], **doubling
    )
    shown = normalized(middle, tensors, "generator.5")
    last = tensors["generator.7.weight"], tensors["generator.7.bias"]
    return functional.conv_transpose2d(shown, *last, **doubling).sigmoid()


def rate(tensors, images):
    """Return the critic's mean score of images."""
    for layer in ("critic.0", "critic.2"):
        images = functional.conv2d(
            images, tensors[f"{layer}.weight"], tensors[f"{layer}.bias"], stride=2, padding=2
        )
        images = functional.leaky_relu(images, 0.2)
    return float((images.flatten(1) @ tensors["critic.5.weight"].T + tensors["critic.5.bias"]).mean())


def noise_to_look_at(count):
    """Return the noise of evaluations, which is the same for all trainings."""
    digest = hashlib.blake2b(b"0/noise to look at/", digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest) >> 1)
    return torch.randn(count, 8, generator=generator).double()


def test_evaluations_equal_those_of_plain_networks(page):
    for job in page.raw.jobs:
        features, _ = samples(job, "test")
        real = torch.tensor(features / 16).reshape(-1, 1, 8, 8)
        tensors = weights(job)
        of_real, of_fake = rate(tensors, real), rate(tensors, generate(tensors, noise_to_look_at(len(real))))
        expected = {
            "distance": of_real - of_fake,
            "critic_loss": of_fake - of_real,
            "generator_loss": -of_fake,
            "loss": -of_real,
        }
        assert {name: job.evaluation[name] for name in expected} == pytest.approx(expected, abs=FLOAT32)


def test_bytes_in_closed_form(page):
    for job in page.raw.runs["pair"]:
        trained = 4 * job.summary["model"]["parameters"]
        assert job.summary["bytes_sent"]["gradient"] == 2 * trained * job.summary["steps"]
    assert all(job.summary["bytes_sent"] == {} for job in page.raw.runs["slow"])
