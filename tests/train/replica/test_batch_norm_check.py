"""Batches of one sample that batch normalization cannot normalize are refused before the first step.

test_refused_trainings.py has a training.
"""

import numpy as np
import pytest
import torch
from torch import nn

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.problems.factory import build_problem
from nnlo_lib.train.replica.batch_norm_check import check_batch_norm_batches, explain_batch_norm_error


class Steps:
    """Loader whose steps have the given numbers of samples."""

    def __init__(self, *counts):
        self.counts, self.steps_per_epoch = counts, len(counts)

    def count(self, epoch, step):
        return self.counts[step]

    def batch(self, epoch, step):
        return self

    @property
    def inputs(self):
        return (np.ones((2, 3, 4), np.float32),)

    @property
    def labels(self):
        return np.zeros(2, np.int64)


def tensors(inputs, labels):
    return tuple(map(torch.from_numpy, inputs)), torch.from_numpy(labels)


def refuse(module, *counts, parts=1):
    check_batch_norm_batches(module, build_problem(Run(metrics=())), tensors, Steps(*counts), parts, 7)


def network():
    return nn.Sequential(nn.BatchNorm1d(3), nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5))


@pytest.mark.parametrize(("counts", "parts", "step"), [((9, 9, 1), 1, 3), ((5, 9), 4, 1), ((1,), 1, 1), ((8, 3), 4, 2)])  # fmt: skip
def test_where_it_would_end(counts, parts, step):
    module = network()
    before = {name: each.clone() for name, each in module.state_dict().items()}
    with pytest.raises(UserError, match=f"in step {step} of each epoch, on rank 7: .* train.steps_per_epoch"):
        refuse(module, *counts, parts=parts)
    assert all(torch.equal(each, before[name]) for name, each in module.state_dict().items())


def test_what_can_be_normalized():
    refuse(network(), 9, 2)
    refuse(network(), 8, 0, parts=4)
    refuse(nn.Sequential(nn.BatchNorm1d(3), nn.Flatten()), 9, 1)  # one sample has four values per channel
    refuse(nn.Flatten(), 9, 1)


def test_other_errors_stay():
    with pytest.raises(ValueError, match="another"), explain_batch_norm_error("here"):
        raise ValueError("another")
