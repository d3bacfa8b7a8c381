"""PyDTNN's NPZ weights: a file written by hand, the same network in numpy with channels last, round trips, refusals."""

import io
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.factory import build_model
from nnlo_lib.models.pydtnn_weights import pydtnn_arrays
from nnlo_lib.models.saved_networks import load_weights

RNG = np.random.default_rng(3)
IMAGES = RNG.standard_normal((5, 4, 6, 2)).astype(np.float32)  # NHWC
# Layer 0 is the input; ReLU 2, pooling 4, flattening 5, ReLU 7 and dropout 8 have no weights.
HANDMADE = {
    "1_Conv2D_weights": RNG.standard_normal((2, 3, 3, 3)),  # inputs, height, width, outputs
    "1_Conv2D_biases": RNG.standard_normal(3),
    "3_BatchNormalization_beta": RNG.standard_normal(3),
    "3_BatchNormalization_gamma": RNG.standard_normal(3),
    "3_BatchNormalization_running_mean": RNG.standard_normal(3),
    "3_BatchNormalization_running_var": RNG.uniform(0.5, 2, 3),
    "6_FC_weights": RNG.standard_normal((2 * 3 * 3, 7)),  # inputs in the order height, width, channels
    "6_FC_biases": RNG.standard_normal((1, 7)),
    "9_FC_weights": RNG.standard_normal((7, 5)),
    "9_FC_biases": RNG.standard_normal((1, 5)),
}


def network():
    first = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(3), nn.MaxPool2d(2))
    dense = (nn.Flatten(), nn.Linear(18, 7), nn.ReLU(), nn.Dropout(0.5), nn.Linear(7, 5))
    return nn.Sequential(first, *dense).eval()


def saved(tmp_path, arrays):
    path = str(tmp_path / "model-best-weights.npz")
    np.savez_compressed(path, **arrays)
    return path


def numpy_scores(weights, images):
    """Return the scores of the network above for images (n, height, width, channels), one value at a time."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    n, height, width, _ = images.shape
    maps = np.zeros((n, height, width, 3))
    for y in range(height):
        for x in range(width):
            for out in range(3):
                kernel = weights["1_Conv2D_weights"][..., out].transpose(1, 2, 0)  # height, width, inputs
                window = padded[:, y : y + 3, x : x + 3]
                maps[:, y, x, out] = (window * kernel).sum((1, 2, 3)) + weights["1_Conv2D_biases"][out]
    maps = np.maximum(maps, 0)
    names = ("gamma", "beta", "running_mean", "running_var")
    gamma, beta, mean, variance = (weights[f"3_BatchNormalization_{name}"] for name in names)
    maps = (maps - mean) * gamma / np.sqrt(variance + 1e-5) + beta
    maps = maps.reshape(n, height // 2, 2, width // 2, 2, 3).max((2, 4))
    hidden = np.maximum(maps.reshape(n, -1) @ weights["6_FC_weights"] + weights["6_FC_biases"], 0)
    return hidden @ weights["9_FC_weights"] + weights["9_FC_biases"]


def test_a_file_gives_the_scores_of_the_same_network_in_numpy(tmp_path):
    module = network()
    load_weights(module, saved(tmp_path, HANDMADE), channels=2)
    with torch.no_grad():
        found = module(torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy()))
    np.testing.assert_allclose(found.numpy(), numpy_scores(HANDMADE, IMAGES), rtol=1e-4, atol=1e-4)


def test_the_export_has_the_names_and_values_of_the_file(tmp_path):
    module = network().double()
    load_weights(module, saved(tmp_path, HANDMADE), channels=2)
    found = pydtnn_arrays(module, 2, "NHWC")
    assert found.keys() == HANDMADE.keys()
    for key, array in HANDMADE.items():
        np.testing.assert_array_equal(found[key], array.reshape(found[key].shape))


@pytest.mark.parametrize("order", ["NHWC", "NCHW"])
@pytest.mark.parametrize(
    ("name", "shape"), [("simplecnn", (3, 8, 6)), ("vgg3dobn", (3, 8, 8)), ("simplemlp", (1, 5, 4))]
)
def test_round_trips(tmp_path, order, name, shape):
    args = {"hidden": 8} if name == "vgg3dobn" else {}
    written, read = (build_model(name, args, shape, 10, seed) for seed in (1, 2))
    path = saved(tmp_path, pydtnn_arrays(written, shape[0], order))
    load_weights(read, path, channels=shape[0])
    for key, tensor in written.state_dict().items():
        assert torch.equal(tensor, read.state_dict()[key]), key


def test_numbers_of_layers_are_those_of_pydtnn():
    # Input, Conv, ReLU, Conv, ReLU, MaxPool, Flatten, FC, ReLU, Dropout, FC
    found = pydtnn_arrays(build_model("simplecnn", {}, (1, 28, 28), 10, 0), 1, "NHWC")
    assert {key.rpartition("_")[0] for key in found} == {"1_Conv2D", "3_Conv2D", "7_FC", "10_FC"}


UNFIT = {
    "layers": (lambda a: [a.pop("9_FC_weights"), a.pop("9_FC_biases")], "3 layers with weights, but the model has 4"),
    "variable": (lambda a: a.pop("6_FC_biases"), r"missing tensors: 2\.bias"),
    "name": (lambda a: a.update(w=np.ones(3)), "has the array w, but PyDTNN's are named like"),
    "shape": (lambda a: a.update({"9_FC_weights": np.ones((7, 4))}), r"5\.weight \(4 x 7 in the file, 5 x 7"),
    "type": (lambda a: a.update({"9_FC_weights": np.ones((7, 5), int)}), "is int64, but weights are floats"),
    "pickle": (lambda a: a.update({"9_FC_weights": np.array([{}])}), "is damaged"),
    "size": (lambda a: a.update({"9_FC_weights": np.ones((7, 200_000))}), "declares .* bytes, but the model has"),
}  # fmt: skip


@pytest.mark.parametrize("fault", UNFIT)
def test_files_that_do_not_fit_are_refused(tmp_path, fault):
    arrays = dict(HANDMADE)
    change, reason = UNFIT[fault]
    change(arrays)
    with pytest.raises(UserError, match=reason):
        load_weights(network(), saved(tmp_path, arrays), channels=2)


def test_damaged_files_are_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"no archive")
    torn = io.BytesIO()
    with zipfile.ZipFile(torn, "w") as archive:
        archive.writestr("1_Conv2D_weights.npy", b"\x93NUMPY\x01\x00")
    (tmp_path / "b.npz").write_bytes(torn.getvalue())
    for name in ("a.npz", "b.npz"):
        with pytest.raises(UserError, match="is damaged"):
            load_weights(network(), str(tmp_path / name), channels=2)


def test_an_order_that_the_shapes_do_not_tell_is_refused(tmp_path):
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    path = saved(tmp_path, {"2_FC_weights": RNG.standard_normal((12, 3)), "2_FC_biases": np.zeros(3)})
    with pytest.raises(UserError, match="fits NHWC and NCHW order"):
        load_weights(module, path, channels=3)
    load_weights(module, path, channels=1)


@pytest.mark.parametrize(
    ("name", "shape"), [("resnet20", (3, 32, 32)), ("mobilenet_v1", (3, 32, 32)), ("lstm", (9,))]
)
def test_networks_that_are_no_sequences_are_refused(name, shape):
    with pytest.raises(UserError, match=r"sequences of layers only|grouped convolutions|PyDTNN has no layer"):
        pydtnn_arrays(build_model(name, {}, shape, 10, 0), shape[0], "NHWC")
