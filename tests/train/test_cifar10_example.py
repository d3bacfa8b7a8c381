"""The CIFAR-10 example learns on real images."""

import json

import pytest
import yaml
from helpers.repository_copy import REPOSITORY
from helpers.training_process import Training


@pytest.mark.nightly
@pytest.mark.slow
def test_the_cifar10_example_learns_on_the_small_archive(shared_data, tmp_path):
    settings = yaml.safe_load((REPOSITORY / "config/experiments/cifar10.yaml").read_text())
    settings["name"] = "t"
    settings["data"] |= {
        "dataset": "cifar10-small",
        "source": str(shared_data / "cifar10/cifar-10-binary.tar.gz"),
        "reader": {"name": "cifar"},
    }
    settings["train"]["epochs"] = 4
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(settings))
    training = Training(tmp_path, "allreduce")
    training.finish()
    assert json.loads((training.job / "summary.json").read_text())["model"]["parameters"] == 1_916_266
    evaluation = json.loads((training.job / "evaluation.json").read_text())
    assert (evaluation["samples"], evaluation["classes"][:2]) == (2000, ["airplane", "automobile"])
    assert evaluation["accuracy"] > 0.4  # chance is 0.1
