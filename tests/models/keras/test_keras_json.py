"""Networks in the JSON format of Keras 1, 2 and 3, loaded and trained as torch modules."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.requires import optional
from torch.nn import functional

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.factory import build_model
from nnlo_lib.models.saved_networks import load_weights
from nnlo_lib.train.replica.replica import Replica

os.environ["KERAS_BACKEND"] = "torch"
optional("keras")
FILES = Path(__file__).parent
IMAGES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "digits": (1, 8, 8)}


def network(file, shape, undone=None, seed=0):
    return build_model(str(FILES / f"{file}.json"), {}, shape, 10, seed, undone)


def arrays(module):
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize(
    ("file", "parameters"),
    [("mnist_keras2", 600_810), ("mnist_keras1", 600_810), ("cifar10_keras2", 1_916_266)],
)
def test_parameters_are_those_of_nnlo(file, parameters):
    module = network(file, IMAGES[file.partition("_")[0]])
    assert sum(each.numel() for each in module.parameters()) == parameters


def test_outputs_are_those_of_torch_by_hand():
    """The network equals the same layers in torch.

    Keras kernels have the axes (h, w, in, out), and images are flattened with the channels last.
    """
    module = network("cifar10_keras2", (3, 32, 32)).eval()
    weights = {name: torch.from_numpy(value) for name, value in arrays(module).items()}
    images = torch.randn(2, 3, 32, 32)
    values = images
    for layer in ("conv2d_1", "conv2d_2", "conv2d_3"):
        kernel, bias = weights[f"{layer}/kernel"].permute(3, 2, 0, 1), weights[f"{layer}/bias"]
        values = functional.max_pool2d(functional.conv2d(values, kernel, bias, padding=1).relu(), 2)
    values = values.permute(0, 2, 3, 1).flatten(1)
    for layer in ("dense_1", "dense_2"):
        values = (values @ weights[f"{layer}/kernel"] + weights[f"{layer}/bias"]).relu()
    scores = values @ weights["dense_3/kernel"] + weights["dense_3/bias"]
    torch.testing.assert_close(module(images), scores.softmax(1), rtol=1e-4, atol=1e-6)
    undone = network("cifar10_keras2", (3, 32, 32), "softmax").eval()
    undone.load_state_dict(module.state_dict())
    torch.testing.assert_close(undone(images), scores, rtol=1e-4, atol=1e-5)


def test_weights_are_drawn_from_the_seed():
    one, same, other = (arrays(network("digits_keras2", (1, 8, 8), seed=seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not np.array_equal(one["conv2d_1/kernel"], other["conv2d_1/kernel"])


def test_a_replica_holds_all_that_is_trained():
    """Keras computes with the values in theta and buffers and writes the gradient into grad."""
    replica = Replica(network("digits_keras2", (1, 8, 8), "softmax"))
    images, labels = torch.rand(4, 1, 8, 8), torch.arange(4)
    replica.module.eval()
    before = replica.module(images)
    replica.theta.mul_(2.0)
    assert not torch.equal(replica.module(images), before)
    replica.module.train()
    replica.buffers.zero_()
    replica.backward(functional.cross_entropy(replica.module(images), labels))
    assert replica.grad.abs().sum() > 0
    assert replica.buffers.numel() == 16  # means and variances of 8 channels
    assert replica.buffers.abs().sum() > 0  # the forward pass has written the statistics of the batch


def test_draws_come_from_torch_s_generator():
    """Dropout layers with their own seed use torch's generator, too, so that a resumed run draws the same numbers."""
    module, images = network("digits_keras2", (1, 8, 8)).train(), torch.rand(2, 1, 8, 8)
    drawn = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        drawn.append(module(images))
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("name", ["new.weights.h5", "old.h5"])
def test_weights_that_keras_wrote(tmp_path, name):
    """Weight files of Keras 3 and of Keras 1 and 2 are loaded.

    The old format stores arrays per layer, with their order in attributes.
    """
    import h5py
    import keras

    layers = [keras.layers.Input((6,)), keras.layers.Dense(4, name="a"), keras.layers.Dense(3, name="b")]
    model = keras.Sequential([*layers, keras.layers.Softmax()])
    (tmp_path / "net.json").write_text(model.to_json())
    if name == "new.weights.h5":
        model.save_weights(tmp_path / name)
    else:
        with h5py.File(tmp_path / name, "w") as file:
            file.attrs.update(layer_names=[b"a", b"b"], backend=b"tensorflow", keras_version=b"2.2.4")
            for layer in model.layers[:2]:
                names = [f"{layer.name}/{kind}:0" for kind in ("kernel", "bias")]
                group = file.create_group(layer.name)
                group.attrs["weight_names"] = [each.encode() for each in names]
                for each, variable in zip(names, layer.weights, strict=True):
                    group[each] = variable.numpy()
    module = build_model(str(tmp_path / "net.json"), {}, (6,), 3, 5, "softmax")
    inputs = torch.randn(2, 6)
    load_weights(module, str(tmp_path / name))
    replica = Replica(module)
    wanted = torch.from_numpy(model.predict(inputs.numpy(), verbose=0))
    torch.testing.assert_close(replica.module(inputs).softmax(1), wanted)
    with pytest.raises(UserError, match="does not fit"):
        load_weights(network("digits_keras2", (1, 8, 8)), str(tmp_path / name))


REFUSED = {
    "other images": ((3, 32, 32), None, r"takes samples of shape \(28, 28, 1\).*the samples are \(3, 32, 32\)"),
    "another end": ((1, 28, 28), "sigmoid", "ends in softmax.*problem.outputs: probabilities"),
}  # fmt: skip


@pytest.mark.parametrize(("shape", "undone", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(shape, undone, message):
    with pytest.raises(UserError, match=message):
        network("mnist_keras2", shape, undone)


@pytest.mark.parametrize(
    "text",
    [
        "[]", "{}", '{"class_name": "Sequential"}', '{"class_name": ["Sequential"], "config": {}}',
        '{"class_name": "Sequential", "config": {"layers": [3]}}',
        '{"class_name": "Sequential", "config": {"layers": [{"class_name": "Dense"}]}}',
    ],
)  # fmt: skip
def test_json_that_keras_did_not_write_is_refused(tmp_path, text):
    (tmp_path / "net.json").write_text(text)
    message = r"^ValueError: the file is not a network saved with model.to_json\(\) of Keras"
    with pytest.raises(UserError, match=message):
        build_model(str(tmp_path / "net.json"), {}, (4,), 2, 0)


@pytest.mark.parametrize("shape", [(1, 8, 8), (8, 8), (64,)])
def test_samples_of_one_channel_in_any_shape(tmp_path, shape):
    import keras

    for own in ((8, 8, 1), (8, 8), (64,)):
        layers = [keras.layers.Input(own), keras.layers.Flatten(), keras.layers.Dense(10)]
        (tmp_path / "net.json").write_text(keras.Sequential(layers).to_json())
        if own == (64,) or len(shape) > 1:
            module = build_model(str(tmp_path / "net.json"), {}, shape, 10, 0)
            assert module(torch.rand(2, *shape)).shape == (2, 10)
