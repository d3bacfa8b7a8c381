"""Tensors of a user's network: views train as their dense twins, and state that a resume would lose is refused."""

import pytest
import torch
from torch import nn

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.saved_networks import StateGuard, make_dense
from nnlo_lib.train.replica.replica import Replica

# As meshgrid, windows, slices of a larger table and transposed weights make them.
VIEWS = {
    "expanded": torch.linspace(0, 1, 8).expand(8, 8),
    "strided": torch.randn(8, 64, generator=torch.manual_seed(1))[:, ::8],
    "part": torch.randn(8, 20, generator=torch.manual_seed(2))[:, :8],
    "transposed": torch.randn(8, 8, generator=torch.manual_seed(3)).t(),
}


class Scaled(nn.Module):
    """Scales its input by a tensor, which is a parameter or a buffer."""

    def __init__(self, values: torch.Tensor, trained: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.out = nn.Linear(64, 3)
        if trained:
            self.scale = nn.Parameter(values)
        else:
            self.register_buffer("scale", values)
        self.after = nn.Linear(3, 2)

    def forward(self, x):
        return self.after(self.out((x * self.scale).flatten(1)))


def losses(module: nn.Module) -> list[float]:
    """Return the losses of a training that continues from a saved state in the middle."""
    replica = Replica(make_dense(module))
    replica.set_optimizer(torch.optim.SGD, lr=0.1, momentum=0.9)
    inputs, found = torch.randn(4, 8, 8, generator=torch.manual_seed(4)), []
    for step in range(6):
        loss = replica.module(inputs).square().mean()
        replica.backward(loss)
        replica.step()
        found.append(loss.item())
        if step == 2:
            replica.load_state({name: tensor.clone() for name, tensor in replica.state().items()})
    return found


@pytest.mark.parametrize("trained", [True, False], ids=["parameter", "buffer"])
@pytest.mark.parametrize("kind", VIEWS)
def test_a_view_trains_as_its_dense_twin(kind, trained):
    view = (
        VIEWS[kind].clone(memory_format=torch.preserve_format)
        if kind == "transposed"
        else VIEWS[kind].detach()
    )
    assert losses(Scaled(view, trained)) == losses(Scaled(VIEWS[kind].contiguous().clone(), trained))


def test_weights_of_a_file_reach_a_view():
    module = make_dense(Scaled(VIEWS["expanded"].detach(), trained=False))
    module.load_state_dict({name: torch.ones_like(each) for name, each in module.state_dict().items()})
    assert module.scale.tolist() == [[1.0] * 8] * 8


def shared_memory() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    module[1].weight.data = module[0].weight.data
    return module


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.LazyLinear(3), "weight of the model has no shape before the first call"),
        (lambda: nn.ParameterList([torch.zeros(3, dtype=torch.cfloat)]), "0 of the model is complex"),
        (shared_memory, "the parameters 0.weight and 1.weight of the model share memory"),
    ],
    ids=["lazy", "complex", "shared memory"],
)
def test_what_a_replica_cannot_hold_is_refused(make, words):
    with pytest.raises(UserError, match=words):
        make_dense(make())


def test_one_parameter_under_two_names_is_no_shared_memory():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    module[1].weight = module[0].weight
    assert make_dense(module) is module


class Stateful(nn.Module):
    """Keeps a mean of its inputs in the way of `kind`."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.calls = kind, 0
        self.register_buffer("mean", torch.zeros(4), persistent=kind != "not persistent")
        self.slow, self.out = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4)

    def get_extra_state(self):
        return torch.tensor(self.calls)

    def forward(self, x):
        if self.kind in ("in place", "not persistent"):
            self.mean.lerp_(x.mean(0), 0.1)
        elif self.kind == "assigned":
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        elif self.kind == "teacher":
            self.slow.weight.lerp_(self.out.weight.detach(), 0.1)
        elif self.kind == "extra":
            self.calls += 1
        elif self.kind == "late":
            self.last = nn.Linear(4, 4)
        return self.out(x) + self.slow(x - self.mean)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("none", ""),
        ("in place", ""),
        ("not persistent", "changes mean, a buffer with persistent=False"),
        ("assigned", "assigns a new tensor to the buffer mean"),
        ("teacher", "changes slow.weight, a parameter without gradient"),
        ("extra", "changes get_extra_state() of the model"),
        ("late", "the parameter last.weight appeared in the first call"),
    ],
)
def test_state_that_checkpoints_do_not_hold_is_found(kind, words):
    module = Stateful(kind).train()
    guard = StateGuard(module)
    module(torch.ones(2, 4)).sum().backward()
    assert words in guard.problem()
    assert bool(words) == bool(guard.problem())
