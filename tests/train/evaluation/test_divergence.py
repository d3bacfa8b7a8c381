"""The error about an infinite or NaN loss names its cause: a sample, the scale of the samples, the weights, or the rate."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from nnlo_lib.config import Run
from nnlo_lib.core.errors import DivergedError
from nnlo_lib.data.loading.loader import Batch
from nnlo_lib.problems.base import build_problem
from nnlo_lib.train.replica.gradients import LocalGradients
from nnlo_lib.train.replica.precision import Precision
from nnlo_lib.train.replica.replica import Replica

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
    with pytest.raises(
        DivergedError, match=r"the loss became nan in epoch 1.*; reduce train.optimizer.lr \("
    ):
        loss_of(inputs, targets, step=1, weight=np.nan)
    inputs[0] = 300
    sentence = r"scale the samples, which have inputs up to 300 .* or reduce train"
    with pytest.raises(DivergedError, match=sentence):
        loss_of(inputs, targets, step=1, weight=np.nan)
