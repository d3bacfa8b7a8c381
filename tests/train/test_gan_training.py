"""Training of a GAN on MPI and simulated ranks, with interruptions and with every kind of algorithm."""

import json
import signal

import pytest
from helpers.training_process import Training, training, under_way
from PIL import Image
from safetensors.torch import load

pytestmark = pytest.mark.processes

GAN = {
    "problem": {"name": "gan", "critic_steps": 3, "gradient_penalty": 10},
    "model": {"name": "wgan", "args": {"filters": [4, 8], "hidden": 0, "latent": 8, "batch_norm": False}},
    "train": {"epochs": 2, "batch_size": 20, "optimizer": {"name": "rmsprop", "lr": 0.001, "momentum": 0.5}},
}
CLIPPED = {
    **GAN,
    "problem": {
        "name": "gan",
        "critic_steps": 2,
        "weight_clip": 0.05,
        "generator_optimizer": {"name": "adam", "lr": 0.002},
    },
}


def test_simulated_equals_mpi(tmp_path):
    runs = []
    for transport in ("mpi", "simulated"):
        runs.append(training(tmp_path / transport, **CLIPPED, parallel={"ranks": 2, "transport": transport}))
        runs[-1].finish()
    assert runs[0].weights == runs[1].weights
    assert runs[0].history == runs[1].history
    sheets = [(run.job / "samples.png").read_bytes() for run in runs]
    assert sheets[0] == sheets[1]
    check(runs[0])


def check(run: Training) -> None:
    """Check the outputs of a finished run."""
    evaluation = json.loads((run.job / "evaluation.json").read_text())
    assert {"loss", "distance", "critic_loss", "generator_loss"} < evaluation.keys()
    assert "confusion" not in evaluation
    assert {"val_distance", "train_critic_loss"} < run.rows[-1].keys()
    summary = json.loads((run.job / "summary.json").read_text())
    assert "samples.png" in summary["outputs"]
    assert {row["name"].partition(".")[0] for row in summary["model"]["layers"]} == {"generator", "critic"}
    weights = [
        each for name, each in load(run.weights).items() if name.startswith("critic") and "weight" in name
    ]
    assert max(float(each.abs().max()) for each in weights) <= 0.05 + 1e-7
    with Image.open(run.job / "samples.png") as sheet:
        assert sheet.size == (8 * 60 - 4, 8 * 60 - 4)


def test_interrupted_on_real_ranks_equals_undisturbed_on_simulated_ones(tmp_path):
    settings = {**GAN, "train": {**GAN["train"], "epochs": 5}}
    disturbed = training(tmp_path / "disturbed", ranks=2, **settings)
    undisturbed = training(
        tmp_path / "undisturbed", **settings, parallel={"ranks": 2, "transport": "simulated"}
    )
    with under_way(disturbed, 1) as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=200)
        assert process.returncode == 75
    disturbed.finish()
    undisturbed.finish()
    assert disturbed.weights == undisturbed.weights
    assert disturbed.history == undisturbed.history


SLOW = {
    "downpour, accrued": {"algorithm": {"name": "downpour", "sync_every": 4}},
    "gem": {"algorithm": "gem"},
    "diloco": {"algorithm": {"name": "diloco", "sync_every": 5}},
    "gosgd": {"algorithm": "gosgd"},
    "dsgd": {"algorithm": "dsgd"},
    "dinno": {"algorithm": "dinno"},
}
FAST = {
    "downpour": {"algorithm": "downpour"},
    "easgd": {"algorithm": {"name": "easgd", "sync_every": 3}},
}


# Settings of a gan that an algorithm does not keep are refused (test_gan_guarantees.py).
PENALIZED = {**GAN, "problem": {**GAN["problem"], "critic_steps": 1}}
WITHOUT_BOUND = ("gem", "diloco", "dinno")


@pytest.mark.parametrize("case", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_every_kind_of_algorithm(tmp_path, case):
    settings = {**SLOW, **FAST}[case]
    gan = PENALIZED if case in WITHOUT_BOUND else CLIPPED
    run = training(tmp_path, **settings, **gan, parallel={"ranks": 3, "transport": "simulated"})
    run.finish()
    assert (run.job / "samples.png").exists()
    assert {"val_critic_loss", "val_distance"} < run.rows[-1].keys()
