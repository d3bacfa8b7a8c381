"""Gradients: clipped, accumulated over the parts of a batch, compiled; the causes of losses that are not finite.

test_training_oracle.py compares clipped steps of several ranks with torch.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.algorithm_trainings import SYNCHRONOUS, interrupt, measured, task
from helpers.training_here import simulate
from pydantic import ValidationError
from torch import nn

from nnlo_lib.algorithms.dsgd import DSGD
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Experiment, Run
from nnlo_lib.core.errors import DivergedError, UserError
from nnlo_lib.data.loading.loader import Batch
from nnlo_lib.problems.base import build_problem
from nnlo_lib.train.replica.gradients import LocalGradients
from nnlo_lib.train.replica.model_build import compile_module
from nnlo_lib.train.replica.precision import Precision
from nnlo_lib.train.replica.replica import Replica


@pytest.mark.parametrize(
    "case", ["allreduce", "average, groups", "downpour, synchronous", "dsgt", "dinno", "easgd, synchronous"]
)
def test_no_optimizer_is_given_more(tmp_path, manifest, case, monkeypatch):
    """Every algorithm's steps, with a plain SGD, are at most lr * clip_norm long."""
    lengths, step = [], Replica.step

    def measured(self):
        before = self.theta.clone()
        step(self)
        lengths.append(float((self.theta - before).norm()))

    monkeypatch.setattr(Replica, "step", measured)
    train = {"clip_norm": 0.01, "precision": "float64", "optimizer": {"name": "sgd", "lr": 0.5}}
    simulate(task(tmp_path / "job", manifest, case, SYNCHRONOUS[case] | {"train": train | {"epochs": 1}}))
    assert len(lengths) > 10
    assert max(lengths) <= 0.5 * 0.01 * (1 + 1e-9)
    assert max(lengths) > 0.5 * 0.0099


def test_replicas_borrow_the_memory_of_their_gradients():
    first, second = (Replica(nn.Linear(2, 1, bias=False)) for _ in range(2))
    free = []
    for replica in (first, second):
        replica.share_gradient(free)
    # The passes overlap: the memory that is free is enough for one of them.
    for factor, replica in enumerate((first, second), 1):
        replica.backward(replica.module(torch.full((1, 2), float(factor))).sum())
    memory = [replica.grad.data_ptr() for replica in (first, second)]
    assert (first.grad.tolist(), second.grad.tolist()) == ([1, 1], [2, 2])
    for replica in (first, second):
        replica.release_gradient()
        assert not hasattr(replica, "grad")
        assert replica.module.weight.grad is None
    # The layer's gradient is a view of the memory of the last pass, whose values are gone.
    first.backward(first.module(torch.ones(1, 2)).sum())
    assert (len(memory), len(free), first.grad.tolist()) == (2, 0, [1, 1])
    assert first.grad.data_ptr() == first.module.weight.grad.data_ptr() == memory[1]


def test_borrowed_gradients_change_no_bit(tmp_path, manifest, monkeypatch):
    borrowers, share = [], Replica.share_gradient
    monkeypatch.setattr(
        Replica, "share_gradient", lambda self, free: (borrowers.append(self), share(self, free))
    )
    jobs = [simulate(task(tmp_path / "borrowed", manifest, "dsgd", {}))]
    assert len(borrowers) == 4
    monkeypatch.setattr(DSGD, "keeps_gradient", True)
    jobs.append(simulate(task(tmp_path / "own", manifest, "dsgd", {})))
    assert len(borrowers) == 4
    assert len({job.paths.model.read_bytes() for job in jobs}) == 1


def test_nothing_to_clip_is_refused():
    run = {"algorithm": {"name": "prox_pda"}, "train": {"clip_norm": 1.0}, "topology": {"name": "cycle"}}
    with pytest.raises(ValidationError, match="prox_pda has no optimizer, so gradients cannot be clipped"):
        Experiment.model_validate(run)


COUNT = 13
MODEL = {"name": "simplecnn", "args": {"dropout": 0.0}}


def as_tensors(inputs, labels):
    return tuple(map(torch.from_numpy, inputs)), torch.from_numpy(labels)


def batch():
    draw = np.random.default_rng(0)
    images, labels = draw.normal(size=(COUNT, 2, 6, 6)), draw.integers(0, 3, COUNT)
    return Batch(0, (images,), labels, np.arange(COUNT), COUNT, COUNT)


def accumulated(parts, kind="float64"):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3)).double()
    replica, comm = Replica(module), SimpleNamespace(advance_clock=lambda count: None, rank=0)
    problem = build_problem(Experiment().variants["allreduce"])
    gradients = LocalGradients(replica, problem, as_tensors, comm, Precision(kind, "cpu"), parts)
    return replica.grad, gradients(batch(), 0, "here", 0)()


@pytest.mark.parametrize("parts", [2, 3, 5, COUNT, COUNT + 4])
def test_parts_add_up_to_the_whole(parts):
    (ours, sums), (whole, reference) = accumulated(parts), accumulated(1)
    torch.testing.assert_close(ours, whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(sums, reference, rtol=0, atol=1e-12)


def test_the_whole_is_torchs():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3)).double()
    module = module.to(memory_format=torch.channels_last)
    (images,), labels = as_tensors(batch().inputs, batch().labels)
    wanted = torch.autograd.grad(
        nn.functional.cross_entropy(module(images), labels), list(module.parameters())
    )
    ours = torch.split(accumulated(4)[0], [each.numel() for each in wanted])
    for vector, reference in zip(ours, wanted, strict=True):
        in_memory = reference.permute(0, 2, 3, 1) if reference.dim() == 4 else reference
        torch.testing.assert_close(vector, in_memory.flatten(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("compute", ["allreduce", "allreduce, buckets"])
def test_a_training_in_parts_is_one_in_the_whole(tmp_path, manifest, compute):
    """Accumulated training equals training on whole batches; no bucket is sent before the last part.

    The model has no dropout and no batch normalization, because their results depend on the parts.
    """
    bucket = {"name": "allreduce", "bucket_mb": 0.001} if "buckets" in compute else {"name": "allreduce"}
    results = []
    for parts in (1, 4):
        settings = {
            "algorithm": bucket,
            "train": {"accumulate": parts, "precision": "float64"},
            "model": MODEL,
        }
        job = simulate(task(tmp_path / f"{parts}", manifest, "allreduce", settings))
        results.append(measured(job)[0])
    for ours, reference in zip(*results, strict=True):
        assert ours.keys() == reference.keys()
        for name, value in reference.items():
            assert ours[name] == pytest.approx(value, rel=1e-12), name


def test_peak_memory_is_that_of_a_part():
    """The peak size of the tensors that autograd saves shrinks with the parts; hooks of autograd count it."""

    def kept(parts):
        sizes, live = [0], [0]

        def pack(tensor):
            live[0] += tensor.numel()
            sizes.append(live[0])
            return tensor

        def unpack(tensor):
            live[0] -= tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            accumulated(parts)
        return max(sizes)

    assert kept(13) < kept(1) / 2


def test_more_parts_than_samples_are_refused():
    with pytest.raises(ValidationError, match="a batch of 4 samples cannot be divided into 5 parts"):
        Experiment.model_validate({"train": {"batch_size": 4, "accumulate": 5}})


def test_the_virtual_clock_counts_a_step_once():
    def program(comm):
        module = nn.Sequential(nn.Flatten(), nn.Linear(72, 3)).double()
        problem = build_problem(Experiment().variants["allreduce"])
        gradients = LocalGradients(Replica(module), problem, as_tensors, comm, Precision("float64", "cpu"), 4)
        gradients(batch(), 0, "here", 0)
        return comm.now()

    assert SimulatedWorld(1).run(program) == [pytest.approx(COUNT * 1e-4)]


# The cause of an infinite or NaN loss: a sample, the scale of the samples, the weights, or the rate


IDS = np.array([40, 7, 23, 11])


def loss_of(inputs, targets, kind="float32", step=0, weight=0.1, parts=1):
    """Compute the gradient of a linear regression for the samples IDS."""
    module = nn.Sequential(nn.Linear(2, 1))
    nn.init.constant_(module[0].weight, weight)
    precision = Precision(kind, "cpu")
    replica, comm = Replica(precision.prepare(module)), SimpleNamespace(advance_clock=lambda count: None)

    def tensors(inputs, labels):
        return (torch.from_numpy(inputs[0]).to(precision.dtype),), torch.from_numpy(labels)

    problem = build_problem(Run(problem={"name": "regression"}))
    batch = Batch(0, (inputs,), targets, IDS, len(IDS), len(IDS))
    gradients = LocalGradients(replica, problem, tensors, comm, precision, parts)
    return gradients(batch, 0, "in epoch 1, step 1, on rank 0", step)


def samples():
    return np.ones((4, 2)), np.ones(4)


@pytest.mark.parametrize("kind", ["float32", "float64", "bf16", "fp16"])
@pytest.mark.parametrize(
    ("value", "where", "parts"), [(np.nan, "inputs", 1), (np.inf, "inputs", 4), (np.nan, "targets", 4)]
)
def test_the_sample_is_named_and_not_the_rate(kind, value, where, parts):
    """The advice was a smaller learning rate; with fp16, the steps of the sample were skipped without a message."""
    inputs, targets = samples()
    {"inputs": inputs[:, 1], "targets": targets}[where][2] = value
    sentence = f"^sample 23 of the training split has the value {value} in its {where}"
    with pytest.raises(DivergedError, match=sentence) as error:
        loss_of(inputs, targets, kind, step=5, parts=parts)
    assert "lr" not in str(error.value)


@pytest.mark.parametrize(("kind", "value"), [("float32", 1e300), ("fp16", 1e5)])
def test_a_number_beyond_the_type_of_the_model_is_named(kind, value):
    inputs, targets = samples()
    inputs[3, 0] = value
    with pytest.raises(DivergedError, match=r"^sample 11 of the training split"):
        loss_of(inputs, targets, kind)


def test_float64_computes_with_numbers_beyond_float32():
    inputs, targets = samples()
    inputs[3, 0] = 1e100
    assert loss_of(inputs, targets, "float64") is not None


def test_before_the_first_step_the_rate_is_not_the_cause():
    inputs, targets = samples()
    targets[1] = 1e25
    sentence = r"no step was made, so train.optimizer.lr is not the cause; scale .*1e\+25"
    with pytest.raises(DivergedError, match=sentence):
        loss_of(inputs, targets)
    with pytest.raises(DivergedError, match="initial weights have NaN or infinite values; check the model"):
        loss_of(*samples(), weight=np.nan)


def test_later_the_rate_is_named_beside_large_samples():
    inputs, targets = samples()
    message = r"the loss became nan in epoch 1.*; reduce train.optimizer.lr \("
    with pytest.raises(DivergedError, match=message):
        loss_of(inputs, targets, step=1, weight=np.nan)
    inputs[0] = 300
    sentence = r"scale the samples, which have inputs up to 300 .* or reduce train"
    with pytest.raises(DivergedError, match=sentence):
        loss_of(inputs, targets, step=1, weight=np.nan)


# Compiled passes


def test_without_a_compiler_a_sentence_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserError, match=r"needs a C\+\+ compiler"):
        compile_module(nn.Linear(2, 2), "cpu")


def test_not_with_normalization_over_ranks():
    run = {"train": {"compile": True}, "parallel": {"sync_batch_norm": True}}
    with pytest.raises(ValidationError, match="a compiled model cannot wait for other ranks"):
        Experiment.model_validate(run)


@pytest.mark.exhaustive
def test_gradients_land_in_the_flat_vector():
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)]
    replica = Replica(nn.Sequential(*layers).double())
    replica.network = compile_module(replica.module, "cpu")
    assert next(iter(replica.network.parameters())) is next(replica.module.parameters())
    before, statistics = replica.theta.clone(), replica.buffers.clone()
    for count in (8, 3):
        inputs, labels = torch.randn(count, 2, 6, 6, dtype=torch.float64), torch.randint(3, (count,))
        grads = []
        for network in (replica.module, replica.network):
            replica.buffers.copy_(statistics)
            replica.backward(nn.functional.cross_entropy(network(inputs), labels))
            grads.append(replica.grad.clone())
            assert not torch.equal(replica.buffers, statistics), (
                "batch normalization goes on in the flat buffers"
            )
        torch.testing.assert_close(*grads, rtol=0, atol=1e-12)
    assert torch.equal(before, replica.theta)
    assert all(each.grad.untyped_storage().data_ptr() == replica.grad.untyped_storage().data_ptr()
               for each in replica.module.parameters())  # fmt: skip


@pytest.mark.exhaustive
def test_a_training_resumes_to_the_same_bits(tmp_path, manifest, monkeypatch):
    """A training that resumes within an epoch compiles again and sees the batch shapes in another order.

    The shapes differ because the last batch is smaller.
    """

    def anew(module, device):
        torch._dynamo.reset()
        return compile_module(module, device)

    monkeypatch.setattr("nnlo_lib.train.replica.recorded_passes.compile_module", anew)
    settings = {"train": {"compile": True}}
    whole, parts = (task(tmp_path / name, manifest, "allreduce", settings) for name in ("whole", "parts"))
    simulate(whole)
    interrupt(parts)
    assert measured(parts) == measured(whole)
    plain = simulate(task(tmp_path / "plain", manifest, "allreduce", {}))
    for ours, reference in zip(measured(whole)[0], measured(plain)[0], strict=True):
        # Compiled dropout draws other numbers.
        assert ours["val_loss"] == pytest.approx(reference["val_loss"], rel=1e-2)
