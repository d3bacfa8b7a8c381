"""The same experiment gives the same bits on MPI and simulated ranks, stopped or not, and the same weights on one rank."""

import json

import pytest
import torch
from helpers.algorithm_trainings import SYNCHRONOUS, rows, task
from helpers.chaos_report import find_differences
from helpers.observed_training import watched
from helpers.training_here import simulate, train_with_mpi
from PIL import Image
from safetensors.torch import load_file

from nnlo_lib.config import merge_settings
from nnlo_lib.train.evaluation.evaluate import evaluate_model

AUGMENTED = {"augment": {"flip": 0.5, "pad": 1, "window": 6}, "normalize": "standard"}
FEW = {"partition": {"name": "dirichlet", "alpha": 0.1}}
THREE = {"parallel": {"ranks": 3}}
CASES = {
    "allreduce, augmented": {"data": AUGMENTED, "problem": {"mixup": 0.4, "cutmix": 1.0}, **THREE},
    # 721 samples in global batches of 144: in the last step, only one rank has a sample.
    "allreduce, a lone sample": {"train": {"batch_size": 36}},
    "allreduce, float64": {"train": {"precision": "float64"}, "parallel": {"ranks": 2}},
    "allreduce, bf16": {"train": {"precision": "bf16"}, "parallel": {"ranks": 2}},
    "allreduce, fp16": {"train": {"precision": "fp16"}, "parallel": {"ranks": 2}},
    "downpour, groups": {
        "algorithm": {"name": "downpour", "synchronous": True}, "train": {"batch_size": 60},
        "parallel": {"ranks": 3, "processes_per_worker": 2},
    },
    **{name: settings for name, settings in SYNCHRONOUS.items() if "masters" not in name},
    "gosgd, few": SYNCHRONOUS["gosgd, synchronous"] | {"data": FEW},
}  # fmt: skip
# Calls of the stop flag of each rank before it requests a stop; None: the training is not stopped. All others: exhaustive.
STOPS = {
    "allreduce, augmented": 0, "allreduce, a lone sample": None, "allreduce, float64": 3, "allreduce, buckets": None,
    "allreduce, shard": 3,
    "average, groups": 4, "diloco": None, "downpour, groups": 3, "dinno": 4, "easgd, synchronous": 3, "gosgd, few": 3, "sgp": None,
}  # fmt: skip


@pytest.mark.mpi
@pytest.mark.parametrize(
    "case", [name if name in STOPS else pytest.param(name, marks=pytest.mark.exhaustive) for name in CASES]
)
def test_mpi_ranks_give_the_bits_of_simulated_ones(tmp_path, manifest, case):
    simulated = task(tmp_path / "simulated", manifest, case, CASES[case])
    mpi = merge_settings(CASES[case], {"parallel": {"transport": "mpi"}})
    mpi = task(tmp_path / "mpi", manifest, case, mpi)
    simulate(simulated)
    if (calls := STOPS.get(case)) is not None:
        assert not train_with_mpi(mpi, calls)
    assert train_with_mpi(mpi)
    assert find_differences(mpi.folder, simulated.folder) == []
    if calls is None:  # a resume repeats the broadcast of the start
        assert [row["bytes"] for row in rows(mpi)] == [row["bytes"] for row in rows(simulated)]


GAN = {
    "problem": {"name": "gan", "critic_steps": 2, "weight_clip": 0.05, "generator_optimizer": {"name": "adam", "lr": 0.002}},
    "model": {"name": "wgan", "args": {"filters": [4, 8], "hidden": 0, "latent": 8, "batch_norm": False}},
    "train": {"epochs": 2, "batch_size": 20, "optimizer": {"name": "rmsprop", "lr": 0.001, "momentum": 0.5}},
}  # fmt: skip


@pytest.mark.mpi
def test_a_gan_has_the_bits_and_samples_of_simulated_ranks_on_mpi(tmp_path, small_store):
    virtual, real = (
        watched(tmp_path / each, small_store, {}, parallel={"ranks": 2, "transport": each}, **GAN)
        for each in ("simulated", "mpi")
    )
    simulate(virtual)
    assert not train_with_mpi(real, 7)
    assert train_with_mpi(real)
    assert find_differences(real.folder, virtual.folder) == []
    sheets = [(each.folder / "samples.png").read_bytes() for each in (virtual, real)]
    assert sheets[0] == sheets[1]
    with Image.open(real.folder / "samples.png") as sheet:
        assert sheet.size == (8 * 60 - 4, 8 * 60 - 4)
    weights = load_file(real.folder / "model.safetensors")
    critic = [each for name, each in weights.items() if name.startswith("critic") and "weight" in name]
    assert max(float(each.abs().max()) for each in critic) <= 0.05 + 1e-7
    evaluate_model(real.run, small_store, real.paths.model, real.paths.evaluation)
    evaluation = json.loads(real.paths.evaluation.read_text())
    assert {"loss", "distance", "critic_loss", "generator_loss"} < evaluation.keys()
    assert "confusion" not in evaluation
    assert {"val_distance", "train_critic_loss"} < rows(real)[-1].keys()
    summary = json.loads((real.folder / "summary.json").read_text())
    assert "samples.png" in summary["outputs"]
    assert {row["name"].partition(".")[0] for row in summary["model"]["layers"]} == {"generator", "critic"}


@pytest.mark.mpi
def test_with_dynamic_dealing_mpi_ranks_use_every_sample_once(tmp_path, manifest):
    settings = {
        "train": {"dealing": "dynamic", "batch_size": 16},
        "parallel": {"ranks": 3, "transport": "mpi"},
    }
    dealt = task(tmp_path / "job", manifest, "downpour", settings)
    assert train_with_mpi(dealt)
    assert [(row["samples"], row["passes"]) for row in rows(dealt)] == [(721, 1), (2 * 721, 2)]


@pytest.mark.parametrize(
    ("ranks", "normalized"),
    [(2, False), (4, False), pytest.param(4, True, marks=pytest.mark.mpi)],
    ids=["2", "4", "4, normalized"],
)
def test_allreduce_equals_one_process_with_the_combined_batch(tmp_path, manifest, ranks, normalized):
    """The results agree although in the last step only one rank has a sample.

    In float64: an exchange or a sum in float32 would leave differences of about 1e-8.
    """
    (tmp_path / "net.py").write_text(NETWORK)
    weights = []
    for number in (1, ranks):
        made = task(tmp_path / str(number), manifest, "allreduce", {
            "model": {"name": f"{tmp_path}/net.py:{'normalized' if normalized else 'plain'}"},
            "train": {"precision": "float64", "batch_size": 144 // number},
            "parallel": {
                "ranks": number, "sync_batch_norm": normalized, "transport": "mpi" if normalized else "simulated",
            },
        })  # fmt: skip
        assert train_with_mpi(made) if normalized else simulate(made)
        weights.append(load_file(made.folder / "model.safetensors"))
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, rtol=0, atol=1e-10, msg=name)


# No dropout, so that all trainings use the same network.
NETWORK = """
from torch import nn

def plain(shape, classes):
    return nn.Sequential(nn.Conv2d(shape[0], 4, 3, padding=1, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(64, classes))

def normalized(shape, classes):
    return nn.Sequential(nn.Conv2d(shape[0], 4, 3, padding=1, stride=2), nn.BatchNorm2d(4), nn.ReLU(),
                         nn.Flatten(), nn.Linear(64, classes))
"""
