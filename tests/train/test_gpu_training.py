"""Trainings on a GPU (skipped without one): they agree with trainings on CPUs up to rounding, and resume to the same bits."""

from dataclasses import replace

import pytest
import torch
from helpers.algorithm_trainings import ASYNCHRONOUS, CALLS, SYNCHRONOUS, rows, task
from helpers.chaos_report import find_differences
from helpers.training_here import digits, simulate
from helpers.training_process import training

from nnlo_lib.core.errors import DivergedError

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
    "recorded": ({"compile": "cuda_graph"}, 1e-3),
    "recorded in bf16": ({"compile": "cuda_graph", "precision": "bf16"}, 5e-2),
}
ALGORITHMS = SYNCHRONOUS | ASYNCHRONOUS
COMPRESSED = 0.1  # a compressor that keeps signs or the largest values may choose others after rounding


def on_gpu(job, folder):
    """Return the task with its ranks on one GPU."""
    shared = {"gpus_per_rank": 1, "ranks_per_gpu": job.run.parallel.ranks}
    run = job.run.model_copy(update={"parallel": job.run.parallel.model_copy(update=shared)})
    return replace(job, run=run, folder=folder)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("case", WAYS)
def test_a_gpu_learns_what_processors_do(tmp_path, case, ranks):
    """After one epoch: later, float32 and float64 differ on processors, too, and fp16 may skip a step that overflows."""
    train, tolerance = WAYS[case]
    gpu = {"ranks": ranks, "gpus_per_rank": 1, "ranks_per_gpu": 2}
    same_steps = {key: value for key, value in train.items() if key not in ("precision", "compile")}
    one = training(tmp_path / "gpu", train=train | {"epochs": 1}, parallel=gpu, **PLAIN)
    other = training(tmp_path / "cpu", train=same_steps | {"epochs": 1}, parallel={"ranks": ranks}, **PLAIN)
    assert "GPU vectors summed through" in one.finish()
    other.finish()
    for ours, reference in zip(one.history, other.history, strict=True):
        assert ours["val_loss"] == pytest.approx(reference["val_loss"], rel=tolerance)


@pytest.mark.parametrize("case", ALGORITHMS)
def test_every_algorithm_learns_on_a_gpu_what_it_does_on_processors(tmp_path, case):
    """The simulated ranks of both trainings take turns in this process, so that their messages have one order."""
    settings = ALGORITHMS[case] | PLAIN
    cpu = task(tmp_path / "cpu", digits(), case, settings)
    tolerance = COMPRESSED if "compression" in settings else 1e-3
    gpu = rows(simulate(on_gpu(cpu, tmp_path / "gpu")))
    for ours, reference in zip(gpu, rows(simulate(cpu)), strict=True):
        assert ours["val_loss"] == pytest.approx(reference["val_loss"], rel=tolerance)
        assert ours["train_loss"] == pytest.approx(reference["train_loss"], rel=tolerance)


@pytest.mark.parametrize("case", SYNCHRONOUS)
def test_a_training_on_a_gpu_resumes_to_the_same_bits(tmp_path, case):
    whole = on_gpu(task(tmp_path / "whole", digits(), case, SYNCHRONOUS[case]), tmp_path / "whole")
    stopped = replace(whole, folder=tmp_path / "stopped")
    simulate(whole)
    simulate(stopped, CALLS)
    assert find_differences(stopped.folder, whole.folder) == []


@pytest.mark.parametrize("case", ["allreduce", "dsgd", "dinno"])
def test_batched_gradients_on_a_gpu_are_those_of_each_rank(tmp_path, case):
    """Its dropout has the same masks; and a training that is stopped resumes to the same bits."""
    settings = SYNCHRONOUS[case]
    exact, batched = (
        on_gpu(task(tmp_path / how, digits(), case, settings, compute=how), tmp_path / how)
        for how in ("exact", "batched")
    )
    for ours, reference in zip(rows(simulate(batched)), rows(simulate(exact)), strict=True):
        assert ours["val_loss"] == pytest.approx(reference["val_loss"], rel=1e-3)
        assert ours["train_loss"] == pytest.approx(reference["train_loss"], rel=1e-3)
    stopped = simulate(replace(batched, folder=tmp_path / "stopped"), CALLS)
    assert find_differences(stopped.folder, batched.folder) == []


@pytest.mark.parametrize("way", [False, "cuda_graph"])
def test_samples_that_stay_on_the_gpu_give_the_same_bits(tmp_path, way):
    """`recorded` and plain steps; the images have crops, windows and flips."""
    changes = {"augment": {"flip": 0.5, "pad": 2, "window": 5}, "crop": 6}
    jobs = []
    for placement in ("host", "device"):
        settings = PLAIN | {"data": changes | {"placement": placement}, "train": {"compile": way}}
        settings |= {"parallel": {"gpus_per_rank": 1, "ranks_per_gpu": 4}}
        jobs.append(simulate(task(tmp_path / placement, digits(), "allreduce", settings)))
    assert find_differences(jobs[1].folder, jobs[0].folder) == []


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


@pytest.mark.parametrize("way", [False, "cuda_graph"])
def test_a_training_that_diverges_on_a_gpu_says_where(tmp_path, way):
    """The loss is read while the next step computes."""
    train = {"compile": way, "optimizer": {"name": "sgd", "lr": 1e30}}
    settings = PLAIN | {"train": train, "parallel": {"gpus_per_rank": 1, "ranks_per_gpu": 4}}
    with pytest.raises(DivergedError, match=r"the loss became \w+ in epoch 1, step [23]"):
        simulate(task(tmp_path / "diverges", digits(), "allreduce", settings))
