"""Networks saved by torch with their code: TorchScript and exported programs."""

import pytest
import torch
from helpers.training_process import training
from torch import nn
from torch.nn import functional

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.factory import build_model
from nnlo_lib.train.replica.replica import Replica

SHAPE = (1, 8, 8)


def network(classes=10):
    torch.manual_seed(3)
    first = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5))
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(144, classes))


@pytest.fixture(params=["script", "export", "export in evaluation"])
def file(request, tmp_path):
    """Return a file with the saved network, as TorchScript, exported in training mode or exported in evaluation mode."""
    module, example = network(), (torch.randn(3, *SHAPE),)
    if "export" in request.param:
        module.train("evaluation" not in request.param)
        program = torch.export.export(module, example, dynamic_shapes=({0: torch.export.Dim.AUTO},))
        torch.export.save(program, tmp_path / "net.pt2")
        return tmp_path / "net.pt2"
    scripted = torch.jit.script(module)
    torch.jit.save(scripted, tmp_path / "net.pt")
    return tmp_path / "net.pt"


def test_it_is_the_network_that_was_saved(file):
    """The loaded network has the gradients and statistics of the original, with the same dropout masks in training."""
    replica, original = Replica(build_model(str(file), {}, SHAPE, 10, 0, trust=True)), Replica(network())
    images, labels = torch.rand(5, *SHAPE), torch.arange(5)
    for mode in (True, False, True):
        for each in (replica, original):
            each.module.train(mode)
            torch.manual_seed(1)
            each.backward(functional.cross_entropy(each.forward(images), labels))
        torch.testing.assert_close(replica.grad, original.grad)
        torch.testing.assert_close(replica.buffers, original.buffers)
    assert replica.theta.numel() == original.theta.numel()
    replica.theta.zero_()
    assert not replica.module.eval()(images).any()


REFUSED = {
    "pickled": (lambda path: torch.save(network(), path / "net.pt"), "net.pt", "can run arbitrary code"),
    "weights": (lambda path: torch.save(network().state_dict(), path / "net.pth"), "net.pth", "model.weights"),
    "text": (lambda path: (path / "net.pt").write_text("hello"), "net.pt", "neither TorchScript"),
    "too few outputs": (
        lambda path: torch.jit.save(torch.jit.script(network(4)), path / "net.pt"), "net.pt", "4 outputs.*10 classes"
    ),
    "one batch size": (
        lambda path: torch.export.save(torch.export.export(network(), (torch.randn(3, *SHAPE),)), path / "net.pt2"),
        "net.pt2", "fixed batch size",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("write", "name", "told"), REFUSED.values(), ids=REFUSED)
def test_refused(tmp_path, write, name, told):
    write(tmp_path)
    with pytest.raises(UserError, match=told):
        build_model(str(tmp_path / name), {}, SHAPE, 10, 0, trust=True)


@pytest.mark.exhaustive
@pytest.mark.processes
def test_a_saved_network_trains(tmp_path, file):
    parallel = {"ranks": 2, "transport": "simulated"}
    run = training(
        tmp_path / "run", model={"name": str(file), "trust": True}, parallel=parallel, train={"epochs": 2}
    )
    run.finish()
    assert run.rows[-1]["val_accuracy"] > 0.6
