"""PairPool has the same values and gradients as MaxPool2d(2), also with ties and odd side lengths."""

import pytest
import torch
from torch.nn.functional import max_pool2d

from nnlo_lib.models.pooling import PairPool


@pytest.mark.parametrize("size", [(2, 3, 24, 24), (1, 1, 5, 7), (4, 2, 2, 2)])
@pytest.mark.parametrize("values", [3, 1000])  # few values give many ties
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_equals_max_pooling(size, values, layout):
    torch.manual_seed(values)
    images = torch.randint(values, size).float().contiguous(memory_format=layout).requires_grad_()
    wanted = max_pool2d(images, 2)
    weights = torch.randn_like(wanted)
    found = PairPool()(images)
    assert torch.equal(found, wanted)
    (expected,), (gradient,) = (torch.autograd.grad(output, images, weights) for output in (wanted, found))
    assert torch.equal(gradient, expected)
