"""Update rules on one flat vector compared with torch's optimizers per tensor or with the papers' rules in numpy."""

import numpy as np
import pytest
import torch
from helpers.algorithm_trainings import manifest, rows, task
from helpers.training_process import TIMINGS, StopAfter
from safetensors.torch import load, save
from torch import nn, optim

from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.config.base import block_types
from nnlo_lib.config.optimizer import (
    AdadeltaConfig,
    AdagradConfig,
    AdamaxConfig,
    AdamConfig,
    AdamWConfig,
    LAMBConfig,
    LARSConfig,
    NAdamConfig,
    OptimizerConfig,
    RMSpropConfig,
    SGDConfig,
)
from nnlo_lib.core.errors import UserError
from nnlo_lib.train.optimizers import chunked as pieces
from nnlo_lib.train.optimizers.factory import attach_optimizer
from nnlo_lib.train.optimizers.parameter_layout import layout_of, layout_of_prefix
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.replica.replica import Replica

__all__ = ["manifest"]
STEPS = 20
BETAS = {"beta1": 0.8, "beta2": 0.99}
ADAM = {"betas": (0.8, 0.99), "eps": 1e-6}
TORCH = {
    "sgd": (SGDConfig(lr=0.1), optim.SGD, {"lr": 0.1}),
    "sgd, nesterov": (
        SGDConfig(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    "adam": (
        AdamConfig(lr=0.01, epsilon=1e-6, weight_decay=0.1, **BETAS),
        optim.Adam,
        {"lr": 0.01, "weight_decay": 0.1, **ADAM},
    ),
    "adam, amsgrad": (
        AdamConfig(epsilon=1e-6, amsgrad=True, **BETAS),
        optim.Adam,
        {"lr": 0.001, "amsgrad": True, **ADAM},
    ),
    "adamw": (
        AdamWConfig(epsilon=1e-6, **BETAS),
        optim.AdamW,
        {"lr": 0.001, "weight_decay": 0.01, **ADAM},
    ),
    "nadam": (
        NAdamConfig(epsilon=1e-6, momentum_decay=0.01, weight_decay=0.1, **BETAS),
        optim.NAdam,
        {"lr": 0.002, "momentum_decay": 0.01, "weight_decay": 0.1, **ADAM},
    ),
    "nadam, decoupled": (
        NAdamConfig(epsilon=1e-6, decoupled=True, weight_decay=0.1, **BETAS),
        optim.NAdam,
        {"lr": 0.002, "decoupled_weight_decay": True, "weight_decay": 0.1, **ADAM},
    ),
    "adamax": (AdamaxConfig(epsilon=1e-6, **BETAS), optim.Adamax, {"lr": 0.002, **ADAM}),
    "rmsprop": (
        RMSpropConfig(lr=0.01, rho=0.8, momentum=0.5),
        optim.RMSprop,
        {"lr": 0.01, "alpha": 0.8, "momentum": 0.5},
    ),
    "rmsprop, centered": (
        RMSpropConfig(centered=True),
        optim.RMSprop,
        {"lr": 0.001, "alpha": 0.9, "centered": True},
    ),
    "adadelta": (AdadeltaConfig(rho=0.9), optim.Adadelta, {"lr": 1.0, "rho": 0.9}),
    "adagrad": (
        AdagradConfig(lr=0.1, lr_decay=0.1, initial=0.2, weight_decay=0.1),
        optim.Adagrad,
        {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.2, "weight_decay": 0.1},
    ),
}
LAYERWISE = {
    "lars": LARSConfig(weight_decay=0.1),
    "lars, matrices": LARSConfig(lr=2.0, exclude_vectors=True, weight_decay=0.1),
    "lars, without decay": LARSConfig(momentum=0.5),
    "lamb": LAMBConfig(lr=0.01),
    "lamb, all": LAMBConfig(weight_decay=0.2, exclude_vectors=False),
}
RULES = {name: rule for name, (rule, _, _) in TORCH.items()} | LAYERWISE


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Reduce the chunk size, so that the vectors of these tests have several chunks, the last one smaller."""
    monkeypatch.setattr(pieces, "CHUNK_SIZE", 50)


def model():
    """Return a float64 network with parameters of 4, 2 and 1 dimensions, one of which is zero."""
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    nn.init.zeros_(layers[-1].weight)
    return nn.Sequential(*layers).double()


def equipped(rule):
    replica = Replica(model())
    attach_optimizer(replica, rule)
    return replica


def gradients(size):
    """Return gradients of shape (STEPS, size); the first parameter has a zero gradient in the first step."""
    drawn = torch.randn(STEPS, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    drawn[0, :72] = 0
    return drawn


def follow(replica, steps=slice(None)):
    for gradient in gradients(len(replica.theta))[steps]:
        replica.grad.copy_(gradient)
        replica.step()
    return replica.theta


def flat(tensors):
    return torch.cat([tensor.detach().as_strided((tensor.numel(),), (1,)) for tensor in tensors])


@pytest.mark.parametrize(("rule", "kind", "options"), TORCH.values(), ids=TORCH)
def test_flat_is_tensor_by_tensor(rule, kind, options):
    reference = Replica(model()).module  # its parameters have the channels-last memory format, too
    parameters = list(reference.parameters())
    optimizer = kind(parameters, **options)
    for gradient in gradients(sum(parameter.numel() for parameter in parameters)):
        for parameter, piece in zip(
            parameters, gradient.split([parameter.numel() for parameter in parameters]), strict=True
        ):
            parameter.grad = piece.as_strided(parameter.shape, parameter.stride())
        optimizer.step()
    torch.testing.assert_close(follow(equipped(rule)), flat(parameters), rtol=1e-12, atol=1e-12)


def lars(rule, w, gradients, adapts):
    """Return the parameters after all steps (You, Gitman and Ginsburg 2017, algorithm 1).

    Args:
        rule: settings of LARS.
        w: initial parameters of one layer.
        gradients: gradient of each step.
        adapts: scale the step by the trust ratio and apply weight decay.
    """
    v = np.zeros_like(w)
    decay = rule.weight_decay if adapts else 0
    for g in gradients:
        norm_w, norm_g = np.linalg.norm(w), np.linalg.norm(g)
        local = rule.trust * norm_w / (norm_g + decay * norm_w) if adapts and norm_w and norm_g else 1
        v = rule.momentum * v + rule.lr * local * (g + decay * w)
        w = w - v
    return w


def lamb(rule, w, gradients, adapts):
    """Return the parameters after all steps (You et al. 2020, algorithm 2); arguments as for `lars`."""
    m, v = np.zeros_like(w), np.zeros_like(w)
    decay = rule.weight_decay if adapts else 0
    for t, g in enumerate(gradients, 1):
        m, v = rule.beta1 * m + (1 - rule.beta1) * g, rule.beta2 * v + (1 - rule.beta2) * g**2
        r = (m / (1 - rule.beta1**t)) / (np.sqrt(v / (1 - rule.beta2**t)) + rule.epsilon) + decay * w
        norm_w, norm_r = np.linalg.norm(w), np.linalg.norm(r)
        w = w - rule.lr * (norm_w / norm_r if adapts and norm_w and norm_r else 1) * r
    return w


@pytest.mark.parametrize("rule", LAYERWISE.values(), ids=LAYERWISE)
def test_layer_wise_rules_are_those_of_the_papers(rule):
    replica = equipped(rule)
    begun, drawn = replica.theta.clone().numpy(), gradients(len(replica.theta)).numpy()
    paper = lars if rule.name == "lars" else lamb
    expected = [
        paper(
            rule,
            begun[slot.start : slot.stop],
            drawn[:, slot.start : slot.stop],
            adapts=len(slot.shape) > 1 or not rule.exclude_vectors,
        )
        for slot in replica.layout
    ]
    np.testing.assert_allclose(follow(replica).numpy(), np.concatenate(expected), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("done", [0, 1, 7])
def test_resumes_to_the_same_bits(rule, done):
    whole, first, second = equipped(rule), equipped(rule), equipped(rule)
    follow(first, slice(done))
    second.load_state(load(save({name: tensor.clone() for name, tensor in first.state().items()})))
    assert torch.equal(follow(second, slice(done, None)), follow(whole))
    for name, tensor in whole.state().items():
        assert torch.equal(second.state()[name], tensor)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_forgets(rule):
    one, other = equipped(rule), equipped(rule)
    follow(one)
    other.theta.copy_(one.theta)
    one.lr = other.lr = rule.lr / 2
    one.reset_optimizer()
    assert torch.equal(follow(one), follow(other))


def test_all_rules_are_tested():
    assert {rule.name for rule in RULES.values()} == {
        block.model_fields["name"].default for block in block_types(OptimizerConfig)
    }


def test_layout_tells_each_parameter():
    replica = Replica(model())
    named = dict(replica.module.named_parameters())
    assert [slot.name for slot in replica.layout] == list(named)
    for slot in replica.layout:
        values = replica.theta[slot.start : slot.stop]
        assert torch.equal(values, flat([named[slot.name]]))
        assert slot.shape == named[slot.name].shape
    assert replica.layout[-1].stop == len(replica.theta)


def test_layout_leaves_out_what_is_not_trained():
    network = model()
    network[0].weight.requires_grad_(False)
    assert layout_of(network.named_parameters())[0].name == "0.bias"


def test_part_of_a_layout():
    layout = layout_of(nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.Linear(3, 1)}).named_parameters())
    where, own = layout_of_prefix(layout, "b.")
    assert where == slice(9, 13)
    assert [(slot.name, slot.start, slot.numel) for slot in own] == [("b.weight", 0, 3), ("b.bias", 3, 1)]
    with pytest.raises(UserError, match="no trainable parameter whose name starts with 'c'"):
        layout_of_prefix(layout, "c")
    with pytest.raises(UserError, match="not contiguous"):
        layout_of_prefix((layout[0], layout[2], layout[3]._replace(name="a.other")), "a.")


SERVED = {"downpour", "easgd", "gem"}
QUICK = {"allreduce": "lars", "downpour": "lamb", "dinno": "adagrad", "easgd": "nadam", "dsgd": "adadelta"}
EVERY = [
    pytest.param(name, rule, marks=[] if QUICK.get(name) == rule else pytest.mark.slow)
    for name in sorted(ALGORITHMS)
    for rule in sorted({rule.name for rule in RULES.values()})
]


def settings(name, rule):
    """Return settings with an update rule for the workers and, with downpour, for the server.

    downpour and easgd run synchronously.
    """
    graph = {"name": "cycle", "weights": "lazy_metropolis"}
    algorithm = {"name": name} | ({"synchronous": True} if name in SERVED - {"gem"} else {})
    return {
        "algorithm": algorithm,
        "topology": graph,
        "train": {"optimizer": {"name": rule, "lr": 0.001}, "schedule": {"name": "constant"}},
    }


@pytest.mark.long
@pytest.mark.parametrize(("name", "rule"), EVERY)
def test_every_rule_goes_with_every_algorithm(tmp_path, manifest, name, rule):
    whole, parts = (
        task(tmp_path / folder, manifest, name, settings(name, rule)) for folder in ("whole", "parts")
    )
    assert train_simulated(whole, StopFlag())
    while not train_simulated(parts, StopAfter(30)):
        pass
    one, other = (
        [{key: value for key, value in row.items() if key not in TIMINGS} for row in rows(job)]
        for job in (whole, parts)
    )
    assert all(np.isfinite(row["val_loss"]) for row in one)
    if not ALGORITHMS[name].asynchronous or name in SERVED - {"gem"}:
        assert one == other
        assert (whole.folder / "model.safetensors").read_bytes() == (
            parts.folder / "model.safetensors"
        ).read_bytes()
