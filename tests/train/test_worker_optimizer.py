"""The optimizer and the momentum that `algorithm.lr` and `algorithm.momentum` of EASGD give the workers."""

import pytest
import yaml
from helpers.algorithm_trainings import measured, task

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated

SCHEDULED = {"schedule": {"name": "step", "every": 3, "factor": 0.5, "unit": "steps"}, "scale_lr": "sqrt"}
RUN = {"algorithm": {"name": "easgd", "momentum": 0.5}, "parallel": {"ranks": 4}}


def trained(folder, manifest, algorithm, **train):
    job = task(folder, manifest, "easgd", {"algorithm": {"name": "easgd", **algorithm}, "train": train})
    assert train_simulated(job, StopFlag())
    history, _, _, weights = measured(job)
    return history, weights


def test_lr_is_sgd_with_this_rate_under_the_schedule(tmp_path, manifest):
    sgd = {"name": "sgd", "lr": 0.03, "momentum": 0.0}
    by_key = trained(tmp_path / "key", manifest, {"lr": 0.03}, optimizer={"name": "adam"}, **SCHEDULED)
    assert by_key == trained(tmp_path / "optimizer", manifest, {}, optimizer=sgd, **SCHEDULED)
    assert by_key != trained(tmp_path / "other", manifest, {"lr": 0.03})


def gan(**problem):
    bound = {} if "weight_clip" in problem else {"gradient_penalty": 10}
    return {"problem": {"name": "gan", "critic_steps": 1, **bound, **problem}, "model": {"name": "wgan"}}


REFUSED = {
    "one of them has the momentum": {"parallel": {"ranks": 5, "processes_per_worker": 2}},
    "in a step that fp16 skips": {"train": {"precision": "fp16"}},
    "after the step that `problem.weight_clip` changes": gan(weight_clip=0.01),
    "after the step that `problem.generator_optimizer` changes": gan(generator_optimizer={"name": "sgd"}),
    "would move the generator in every step": gan(critic_steps=3),
    "would move the resting network in every step": {
        "problem": {"name": "gan", "half_steps": True},
        "model": {"name": "wgan"},
        "loss": "least_squares",
    },
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_momentum_would_break_is_refused(tmp_path, reason):
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump(RUN | REFUSED[reason]))
    with pytest.raises(UserError, match=rf"algorithm.momentum: the .*{reason}"):
        load_experiment(path)
    path.write_text(yaml.safe_dump(RUN | REFUSED[reason] | {"algorithm": {"name": "easgd"}}))
    load_experiment(path)


def test_two_momenta_are_a_warning():
    (doubt,) = Run.model_validate(RUN).algorithm.doubts(Run.model_validate(RUN))
    assert "easgd multiplies its momentum with the momentum of adam" in doubt
    plain = Run.model_validate(RUN | {"algorithm": RUN["algorithm"] | {"lr": 0.1}})
    assert list(plain.algorithm.doubts(plain)) == []


def test_an_optimizer_that_lr_replaces_is_refused(tmp_path):
    path = tmp_path / "x.yaml"
    settings = RUN | {"algorithm": {"name": "easgd", "lr": 0.1}, "train": {"optimizer": {"name": "adam"}}}
    path.write_text(yaml.safe_dump(settings))
    with pytest.raises(
        UserError, match=r"train.optimizer: easgd with `algorithm.lr` .* remove `train.optimizer` or"
    ):
        load_experiment(path)
