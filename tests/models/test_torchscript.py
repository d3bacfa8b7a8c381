"""Networks saved by torch with their code: TorchScript and exported programs."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.factory import build_model
from nnlo_lib.models.torchscript import load_torch_network
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
            each.backward(functional.cross_entropy(each.module(images), labels))
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


def saved(path, module, how):
    """Save a network for images as TorchScript or as an exported program; return the file."""
    example = torch.randn(4, *SHAPE)
    module.train("evaluation" not in how)
    if how.startswith("trace"):
        torch.jit.save(torch.jit.trace(module, example, check_trace=False), path / "net.pt")
        return path / "net.pt"
    if how.startswith("frozen"):
        torch.jit.save(torch.jit.freeze(torch.jit.script(module)), path / "net.pt")
        return path / "net.pt"
    program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    torch.export.save(program, path / "net.pt2")
    return path / "net.pt2"


class OfRows(nn.Module):
    """Apply a layer for sequences to the rows of an image."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.last = layer, nn.Linear(64, 10)

    def forward(self, images):
        found = self.layer(images[:, 0])
        return self.last((found[0] if isinstance(found, tuple) else found).flatten(1))


def convolution(*layers):
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 4, 3), *layers, nn.Flatten(), nn.Linear(144, 10))


MODES = {
    "channels": lambda: convolution(nn.Dropout2d()),
    "alpha": lambda: convolution(nn.AlphaDropout()),
    "alpha of channels": lambda: convolution(nn.FeatureAlphaDropout()),
    "in place": lambda: convolution(nn.Dropout(inplace=True)),
    "rrelu": lambda: convolution(nn.RReLU()),
    "instance norm": lambda: convolution(nn.InstanceNorm2d(4, track_running_stats=True)),
    "no statistics": lambda: convolution(nn.BatchNorm2d(4, track_running_stats=False), nn.InstanceNorm2d(4)),
    "lstm": lambda: OfRows(nn.LSTM(8, 8, 2, dropout=0.5, batch_first=True)),
    "gru": lambda: OfRows(nn.GRU(8, 8, 2, dropout=0.5, batch_first=True)),
    "attention": lambda: OfRows(nn.TransformerEncoderLayer(8, 2, 16, 0.5, batch_first=True)),
}


@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize("how", ["training", "evaluation"])
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(each, marks=[pytest.mark.exhaustive] * (each in ("lstm", "gru", "attention")))
        for each in MODES
    ],
)
def test_an_exported_program_follows_the_mode(tmp_path, kind, how):
    """Outputs and statistics of both modes are those of the network itself, also of a copy of the program."""
    file, original = saved(tmp_path, MODES[kind](), f"export in {how}"), MODES[kind]()
    if (kind, how) == ("attention", "evaluation"):
        with pytest.raises(ValueError, match=r"attention is not in the file; export it in training mode"):
            load_torch_network(str(file))
        return
    program = deepcopy(load_torch_network(str(file)))
    program.load_state_dict({f"network.{name}": value for name, value in original.state_dict().items()})
    images = torch.rand(5, *SHAPE)
    for mode in (True, False, True):
        outputs = []
        for each in (program, original):
            torch.manual_seed(1)
            outputs.append(each.train(mode)(images))
        torch.testing.assert_close(*outputs)
    buffers = dict(original.named_buffers())
    for name, value in program.network.named_buffers():
        if value.is_floating_point() and name in buffers:
            torch.testing.assert_close(value, buffers[name])


FIXED = {
    "traced in training": (network, "dropout|batch_norm"),
    "traced in evaluation": (network, "dropout|batch_norm"),
    "traced LSTM in training": (MODES["lstm"], "lstm"),
    "traced attention in training": (MODES["attention"], "dropout"),
    "frozen in evaluation": (network, "torch.jit.freeze"),
}


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*deprecated:DeprecationWarning")
@pytest.mark.parametrize(("how", "build", "words"), [(how, *each) for how, each in FIXED.items()], ids=FIXED)
def test_a_network_of_one_mode_is_refused(tmp_path, how, build, words):
    with pytest.raises(UserError, match=words):
        build_model(str(saved(tmp_path, build(), how)), {}, SHAPE, 10, 0, trust=True)


@pytest.mark.parametrize("layer", [nn.Dropout(0), nn.LSTM(8, 8, batch_first=True)], ids=["dropout 0", "lstm"])
def test_a_traced_network_without_dropout_is_read(tmp_path, layer):
    module = OfRows(layer)
    images = torch.rand(5, *SHAPE)
    loaded = build_model(str(saved(tmp_path, module, "traced in evaluation")), {}, SHAPE, 10, 0, trust=True)
    torch.testing.assert_close(loaded(images), module(images))


@pytest.mark.parametrize(("write", "name", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(tmp_path, write, name, words):
    write(tmp_path)
    with pytest.raises(UserError, match=words):
        build_model(str(tmp_path / name), {}, SHAPE, 10, 0, trust=True)
