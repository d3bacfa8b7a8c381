"""Weights as other trainers write them: under a key, and with a prefix of a wrapper before all names."""

import pytest
import torch
from torch import nn

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.saved_networks import load_weights

WEIGHTS = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)).state_dict()


def under(prefix):
    return {prefix + name: value for name, value in WEIGHTS.items()}


@pytest.mark.parametrize(
    "saved",
    [
        WEIGHTS, {"state_dict": under("module."), "epoch": 3}, {"state_dict": under("model.")}, under("_orig_mod.module."),
        {"model": WEIGHTS, "optimizer": {"lr": 0.1}}, {"model_state_dict": WEIGHTS, "loss": 0.1}, {"net": under("module."), "acc": 90.0},
    ],
)  # fmt: skip
def test_weights_reach_the_model(tmp_path, saved):
    torch.save(saved, tmp_path / "w.pth")
    module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    load_weights(module, str(tmp_path / "w.pth"))
    assert all(torch.equal(value, WEIGHTS[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (
            {"generator": WEIGHTS, "critic": WEIGHTS},
            "several entries hold tensors by name.*critic, generator",
        ),
        ({"epoch": 3}, "does not contain a state_dict"),
        (under("0."), "missing tensors"),  # a layer of the model is called so: no wrapper
    ],
)
def test_what_is_no_wrapper_is_refused(tmp_path, saved, words):
    torch.save(saved, tmp_path / "w.pth")
    with pytest.raises(UserError, match=words):
        load_weights(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)), str(tmp_path / "w.pth"))
