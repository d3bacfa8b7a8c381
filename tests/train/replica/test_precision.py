"""Tests of `train.precision`: double precision, mixed precision and the loss scale of fp16 after an overflow."""

import math

import pytest
import torch
from helpers.algorithm_trainings import ASYNCHRONOUS, SYNCHRONOUS, interrupt, measured, rows, task
from helpers.training_here import simulate
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import nn

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import DivergedError
from nnlo_lib.train.replica import precision
from nnlo_lib.train.replica.gradients import LocalGradients
from nnlo_lib.train.replica.precision import LossScale, Precision
from nnlo_lib.train.replica.replica import Replica

ONCE = {name.partition(",")[0]: name for name in (*SYNCHRONOUS, *ASYNCHRONOUS)}.values()


@pytest.mark.parametrize("case", ONCE)
def test_all_that_a_rank_keeps_is_double(tmp_path, manifest, case):
    settings = (SYNCHRONOUS | ASYNCHRONOUS)[case]
    train = settings.get("train", {}) | {"precision": "float64", "epochs": 1}
    job = simulate(task(tmp_path / "double", manifest, case, settings | {"train": train}))
    published = load_file(job.folder / "model.safetensors")
    assert {tensor.dtype for tensor in published.values()} == {torch.float64, torch.int64}
    (*_, newest) = sorted((job.state / "checkpoints").iterdir())
    parts = [load_file(path) for path in newest.glob("*.safetensors")]
    found = {name: tensor.dtype for part in parts for name, tensor in part.items()}
    assert torch.float32 not in {kind for name, kind in found.items() if name != "optimizer.step"}
    assert rows(job)[-1]["invariant"] < 1e-12 if "invariant" in rows(job)[-1] else True


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
def test_mixed_precision_is_torchs(kind):
    """One step equals a step with torch.autocast and torch's gradient scaler."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 50), nn.Tanh(), nn.Linear(50, 3))
    inputs, labels = torch.randn(20, 6), torch.randint(3, (20,))
    low, scaler = precision.HALF_DTYPES[kind], torch.amp.GradScaler("cpu", enabled=kind == "fp16")
    with torch.autocast("cpu", low):
        loss = nn.functional.cross_entropy(module(inputs), labels)
    scaler.scale(loss).backward()
    wanted = [parameter.grad / scaler.get_scale() for parameter in module.parameters()]
    module.zero_grad()
    ours = Precision(kind, "cpu")
    with ours.autocast_context():
        again = nn.functional.cross_entropy(ours.prepare(module)(inputs), labels)
    assert again.dtype == torch.float32
    (again * ours.loss_factor(again.item(), "here")).backward()
    for parameter, reference in zip(module.parameters(), wanted, strict=True):
        assert parameter.dtype == torch.float32
        assert ours.unscale(parameter.grad, "here")
        torch.testing.assert_close(parameter.grad, reference, rtol=1e-6, atol=1e-9)


def test_the_scale_moves_as_torchs(monkeypatch):
    monkeypatch.setattr(precision, "GROWTH_INTERVAL", 3)
    ours, weight = LossScale(), nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    torchs = torch.amp.GradScaler("cpu", growth_interval=3)
    for overflows in (False, True, False, False, False, True, True, False, False, False, False, False, False):
        gradient = torch.tensor([1.0, math.inf if overflows else 2.0])
        torchs.scale(weight.sum())
        weight.grad, before = gradient * torchs.get_scale(), weight.detach().clone()
        mine = gradient * ours.value
        moves = ours.unscale(mine, "here")
        torchs.step(optimizer)
        torchs.update()
        assert moves == bool((weight != before).any()) == (not overflows)
        assert ours.value == torchs.get_scale()
        assert overflows or torch.equal(mine, gradient)


def test_a_gradient_that_always_overflows_is_a_divergence():
    scale, infinite = LossScale(), torch.tensor([math.inf])
    assert not any(scale.unscale(infinite, "in epoch 1") for _ in range(precision.INITIAL_SCALE_EXPONENT))
    assert scale.value == 1
    with pytest.raises(DivergedError, match="at a loss scale of 1; reduce"):
        scale.unscale(infinite, "in epoch 1")


HALF = ("allreduce, buckets", "average, groups", "easgd, synchronous")


@pytest.mark.parametrize("case", HALF)
def test_skipped_steps_resume_to_the_same_bits(tmp_path, manifest, case, monkeypatch):
    """The loss scale starts so high and grows so fast that steps keep overflowing."""
    monkeypatch.setattr(precision, "INITIAL_SCALE_EXPONENT", 30)
    monkeypatch.setattr(precision, "GROWTH_INTERVAL", 2)
    settings = SYNCHRONOUS[case] | {"train": {"precision": "fp16"}}
    whole, parts = (task(tmp_path / name, manifest, case, settings) for name in ("whole", "parts"))
    simulate(whole)
    interrupt(parts)
    assert measured(parts) == measured(whole)
    assert all(math.isfinite(value) for value in rows(whole)[-1].values())
    ends = [scales(job) for job in (whole, parts)]
    assert ends[0] == ends[1]
    workers = [exponent for exponent, _ in ends[0]][1 if case.startswith("easgd") else 0 :]
    assert max(workers) < 30, "some steps were skipped"
    if case.startswith("allreduce"):
        assert len({tuple(scale) for scale in ends[0]}) == 1, "all ranks decide alike"


def scales(job):
    (*_, newest) = sorted((job.state / "checkpoints").iterdir())
    return [load_file(path)["precision.scale"].tolist() for path in sorted(newest.glob("*.safetensors"))]


def test_ranks_skip_together_what_one_of_them_overflowed(tmp_path, manifest, monkeypatch):
    """If the gradient of one rank overflows, all ranks skip the step: replicas (the invariant) and scales stay bit-identical."""
    overflowing, seen = LocalGradients.__call__, []

    def on_one(self, batch, seed, where, step):
        result = overflowing(self, batch, seed, where, step)
        if step == 2 and self._comm.rank == 1:
            self._replica.grad[3] = math.inf
            seen.append(step)
        return result

    monkeypatch.setattr(LocalGradients, "__call__", on_one)
    job = simulate(task(tmp_path / "one", manifest, "allreduce", {"train": {"precision": "fp16"}}))
    assert seen
    assert {tuple(scale) for scale in scales(job)} == {(15, 9)}
    assert [row["invariant"] for row in rows(job)] == [0, 0]


REFUSED = {
    "sent on": ({"algorithm": {"name": "downpour"}}, "downpour keeps gradients"),
    "tracked": ({"algorithm": {"name": "dsgt"}}, "dsgt keeps gradients"),
    "fed back": ({"compression": {"name": "sign"}}, "would remain in the error feedback of the compression; set `train.precision: bf16`"),
    "batched": ({"parallel": {"transport": "simulated", "simulation": {"compute": "batched"}}}, "not supported with simulation.compute: batched"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_fp16_cannot_do_is_refused(case):
    settings, reason = REFUSED[case]
    with pytest.raises(ValidationError, match=reason):
        Experiment.model_validate({**settings, "train": {"precision": "fp16"}})


@pytest.mark.parametrize("last", [True, False])
def test_the_layout_of_images_is_a_choice(last):
    replica = Replica(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv3d(3, 2, 3)), channels_last=last)
    weight, other = replica.module[0].weight, replica.module[1].weight
    assert weight.is_contiguous(memory_format=torch.channels_last) == last
    assert weight.is_contiguous() != last
    assert other.is_contiguous()
