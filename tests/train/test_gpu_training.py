"""Trainings on a GPU (skipped without one) agree with trainings on CPUs up to rounding."""

import pytest
import torch
from helpers.training_process import training

pytestmark = [pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"), pytest.mark.processes]
PLAIN = {"model": {"name": "simplecnn", "args": {"dropout": 0.0}}}
WAYS = {
    "float32": ({}, 1e-3),
    "float64": ({"precision": "float64"}, 1e-3),
    "bf16": ({"precision": "bf16"}, 5e-2),
    "fp16": ({"precision": "fp16"}, 2e-2),
    "parts": ({"accumulate": 3}, 1e-3),
    "clipped": ({"clip_norm": 0.5}, 1e-3),
    "compiled": ({"compile": True}, 1e-3),
}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("case", WAYS)
def test_a_gpu_learns_what_processors_do(tmp_path, case, ranks):
    train, tolerance = WAYS[case]
    gpu = {"ranks": ranks, "gpus_per_rank": 1, "ranks_per_gpu": 2}
    one = training(tmp_path / "gpu", train={**train, "epochs": 2}, parallel=gpu, **PLAIN)
    other = training(tmp_path / "cpu", train={"epochs": 2}, parallel={"ranks": ranks}, **PLAIN)
    assert "GPU vectors summed through" in one.finish()
    other.finish()
    for ours, reference in zip(one.history, other.history, strict=True):
        assert ours["val_loss"] == pytest.approx(reference["val_loss"], rel=tolerance)


def test_normalization_over_ranks_that_share_a_gpu(tmp_path):
    gpu = {"gpus_per_rank": 1, "ranks_per_gpu": 2, "sync_batch_norm": True}
    run = training(tmp_path, model={"name": "resnet20"}, parallel=gpu, train={"epochs": 1})
    run.finish()
    assert run.history[0]["invariant"] == 0


def test_nccl_adds_for_one_rank(tmp_path):
    run = training(
        tmp_path, parallel={"ranks": 1, "gpus_per_rank": 1, "gpu_exchange": "nccl"}, train={"epochs": 1}
    )
    assert "summed through NCCL" in run.finish()
