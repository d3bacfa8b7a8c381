"""Networks in the JSON of Keras 1.0 to 2.15: parameters counted by hand, functions of the old versions, refusals."""

import json
import os

import numpy as np
import pytest
import torch
from helpers.keras_files import KERAS_FILES
from helpers.keras_layers import (
    GLOROT,
    ZEROS,
    dense_1,
    dense_2,
    functional,
    input_2,
    layer_1,
    layer_2,
    recurrent_1,
    recurrent_2,
    sequential,
)
from helpers.requires import optional

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.models.factory import build_model
from nnlo_lib.train.replica.model_build import build_random_model

os.environ["KERAS_BACKEND"] = "torch"
optional("keras")


def network(folder, text, shape, classes=5, custom_objects=None):
    (folder / "net.json").write_text(text)
    return build_model(
        str(folder / "net.json"), {}, shape, classes, 0, "softmax", custom_objects=custom_objects
    )


@pytest.mark.parametrize("name", KERAS_FILES)
def test_files_of_each_version_can_be_trained(tmp_path, name):
    file = KERAS_FILES[name]
    module = network(tmp_path, file.text, file.shape)
    assert sum(each.numel() for each in module.parameters()) == file.parameters
    scores, penalty = module(torch.rand(3, *file.shape)), module.regularization_loss()
    assert scores.shape == (3, 5)
    assert (penalty is not None and penalty.item() > 0) == file.penalty
    (scores.logsumexp(1).sum() + (0 if penalty is None else penalty)).backward()
    # A PReLU has no gradient if no value is negative.
    assert all(each.grad is not None for each in module.parameters())


def sigmoid_of_keras_2(values):
    return np.clip(0.2 * values + 0.5, 0.0, 1.0)


@pytest.mark.parametrize("version", [1, 2])
def test_an_lstm_is_that_of_its_version(tmp_path, version):
    """Keras 1 and 2 compute gates with the slope 0.2; the slope of Keras 3 is 1/6."""
    units, inputs = 3, 2
    if version == 1:
        layers = [
            layer_1("Masking", "m", [4, inputs], mask_value=9.0),
            recurrent_1("LSTM", "l", units, inputs),
        ]
    else:
        given = {"recurrent_activation": "hard_sigmoid", "implementation": 1, "dropout": 0.0}
        layers = [input_2([4, inputs]), recurrent_2("LSTM", "l", units, recurrent_dropout=0.0, **given)]
    module = network(tmp_path, sequential(layers, f"{version}.2.2"), (4, inputs), units).double().eval()
    kernel, recurrent, bias = (each.detach().numpy() for each in module.parameters())
    samples = 3 * np.random.default_rng(0).normal(size=(5, 4, inputs))
    hidden, cell = np.zeros((5, units)), np.zeros((5, units))
    for step in range(4):
        gates = samples[:, step] @ kernel + hidden @ recurrent + bias
        entry, forget, update, exit = np.split(gates, 4, axis=1)
        cell = sigmoid_of_keras_2(forget) * cell + sigmoid_of_keras_2(entry) * np.tanh(update)
        hidden = sigmoid_of_keras_2(exit) * np.tanh(cell)
    np.testing.assert_allclose(module(torch.from_numpy(samples)).detach().numpy(), hidden, rtol=1e-6)
    assert np.array_equal(bias, [0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0])  # forget_bias_init, unit_forget_bias


def dense_model(kind, version):
    """Return a model with one dense layer, to be used as a layer, as `kind` of Keras wrote it."""
    layers = [dense_2("inner", 3, [4])]
    if kind == "list of layers":
        return {"class_name": "Sequential", "config": layers, "name": "base"}
    if kind == "Sequential":
        return {"class_name": kind, "config": {"name": "base", "layers": layers}, "name": "base"}
    inner = json.loads(functional([input_2([4], "inside"), dense_2("inner", 3)], version, {}, kind))
    return {"class_name": kind, "config": {**inner["config"], "name": "base"}, "name": "base"}


@pytest.mark.parametrize("kind", ["list of layers", "Sequential", "Model", "Functional"])
def test_a_model_is_a_layer_and_is_called_twice(tmp_path, kind):
    """Keras 1 and 2 number the calls of an inner model from 1."""
    node = {"base": [[["x", 0, 0, {}]], [["y", 0, 0, {}]]], "j": [[["base", 2, 0, {}], ["base", 1, 0, {}]]]}
    plain = [input_2([4], "x"), input_2([4], "y"), layer_2("Concatenate", "j", axis=-1)]
    layers = [*(each | {"name": each["config"]["name"]} for each in plain), dense_model(kind, "2.2.4")]
    config = {
        "name": "twins", "layers": [each | {"inbound_nodes": node.get(each["name"], [])} for each in layers],
        "input_layers": [["x", 0, 0], ["y", 0, 0]], "output_layers": [["j", 0, 0]],
    }  # fmt: skip
    text = json.dumps({"class_name": "Model", "config": config, "keras_version": "2.2.4"})
    module = network(tmp_path, text, ((4,), (4,)), 6)
    kernel, bias = module.parameters()
    x, y = torch.rand(2, 4), torch.rand(2, 4)
    torch.testing.assert_close(module(x, y), torch.cat([y @ kernel + bias, x @ kernel + bias], 1))


def test_arguments_by_keyword_are_passed(tmp_path):
    """MultiHeadAttention takes its values, and by default its keys, by keyword."""
    attention = layer_2(
        "MultiHeadAttention", "m", num_heads=1, key_dim=2, value_dim=2, dropout=0.0, use_bias=True, output_shape=None,
        attention_axes=[1], kernel_initializer=GLOROT, bias_initializer=ZEROS, query_shape=[None, 3, 4],
        key_shape=[None, 3, 4], value_shape=[None, 3, 4],
    )  # fmt: skip
    layers = [input_2([3, 4], "x"), input_2([3, 4], "y"), attention, layer_2("GlobalAveragePooling1D", "g")]
    model = json.loads(functional(layers, "2.9.0", {"m": ["x"]}, "Functional"))
    model["config"]["layers"][2]["inbound_nodes"] = [[["x", 0, 0, {"value": ["y", 0, 0]}]]]
    module = network(tmp_path, json.dumps(model), ((3, 4), (3, 4)), 4).eval()
    assert sum(each.numel() for each in module.parameters()) == 3 * (4 * 2 + 2) + 2 * 4 + 4
    x, y = torch.rand(2, 3, 4), torch.rand(2, 3, 4)
    weights = dict(module.named_parameters())
    query, key, value = (
        tensor @ weights[f"m/{kind}/kernel"][:, 0] + weights[f"m/{kind}/bias"][0]
        for tensor, kind in ((x, "query"), (y, "key"), (y, "value"))
    )
    attended = (query @ key.transpose(1, 2) / 2**0.5).softmax(2) @ value
    wanted = attended @ weights["m/attention_output/kernel"][0] + weights["m/attention_output/bias"]
    torch.testing.assert_close(module(x, y), wanted.mean(1))


REFUSED = {
    "unknown class": (layer_2("GarNet", "g", [6], units=3), r"layer g \(GarNet\): Keras 3 has no class GarNet; .*model.custom_objects: \{GarNet: file.py:GarNet\}"),
    "layer that was removed": (layer_1("Highway", "h", [6]), r"layer h \(Highway\): Keras 3 has no class Highway"),
    "code": (layer_2("Lambda", "l", [6], function=["4wAAAA==", None, None], function_type="lambda"), r"layer l \(Lambda\): code in a file is not executed"),
    "unknown option": (dense_2("d", 5, [6], folds=3), r"layer d \(Dense\): Keras 3 does not support folds: 3"),
    "mode of Keras 1": (layer_1("BatchNormalization", "b", [6], mode=1), r"layer b \(BatchNormalization\): Keras 3 does not support mode: 1"),
    "words that are dropped": (layer_1("Embedding", "e", [6], input_dim=5, output_dim=5, dropout=0.1), r"layer e \(Embedding\): Keras 3 does not support dropout: 0.1"),
    "bias of the forget gate": (layer_1("LSTM", "l", [6, 2], output_dim=5, forget_bias_init="uniform"), r"layer l \(LSTM\): Keras 3 does not support forget_bias_init: 'uniform'"),
    "regularizer of Keras 1": (dense_1("d", 6, 5, [6], W_regularizer={"name": "EigenvalueRegularizer", "k": 1}), r"layer d \(Dense\): Keras 3 has no class EigenvalueRegularizer"),
    "constraint of Keras 1": (dense_1("d", 6, 5, [6], W_constraint={"name": "MaxNorm", "m": 2, "axis": 0}), r"layer d \(Dense\): kernel_constraint MaxNorm is not supported"),
    "mixed types": (layer_2("Dense", "d", [6], {"class_name": "Policy", "config": {"name": "mixed_float16"}}, units=5), r"layer d \(Dense\): dtype mixed_float16 is not supported"),
    "value that Keras refuses": (dense_2("d", 5, [6], kernel="nonsense"), r"layer d \(Dense\): Could not interpret initializer identifier: nonsense"),
    "shape": (layer_2("Conv1D", "c", [6, 1], filters=5, kernel_size=[9]), r"layer c \(Conv1D\): Computed output size would be zero or negative"),
}  # fmt: skip


@pytest.mark.parametrize(("layer", "told"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_begins_with_the_layer_and_the_reason(tmp_path, layer, told):
    shape = tuple(layer["config"]["batch_input_shape"][1:])
    with pytest.raises(UserError, match="^ValueError: " + told) as error:
        network(tmp_path, sequential([layer], "2.2.4"), shape)
    assert len(str(error.value)) < 500


OWN = """
import keras

class QDense(keras.layers.Dense):
    def __init__(self, units, bits=8, **options):
        super().__init__(units, **options)
        self.bits, self.levels = bits, {4: 16, 8: 256}[bits]

    def get_config(self):
        return super().get_config() | {"bits": self.bits}

    def call(self, values):
        return super().call(values) * self.levels

def twice(values):
    return 2 * values
"""
CUSTOM = {"QDense": "layers.py:QDense", "twice": "layers.py:twice"}


@pytest.mark.parametrize("version", ["2.4.0", "3"])
def test_classes_and_functions_of_the_user(tmp_path, monkeypatch, version):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layers.py").write_text(OWN)
    layer = layer_2("QDense", "q", [6], units=3, bits=4, activation="twice", kernel_regularizer={
        "class_name": "L1L2", "config": {"l1": 1.0, "l2": 0.0}})  # fmt: skip
    text = sequential([layer], version)
    if version == "3":
        import keras
        from layers import QDense, twice

        text = keras.Sequential(
            [
                keras.layers.Input((6,)),
                QDense(3, bits=4, name="q", activation=twice, kernel_regularizer=keras.regularizers.L1(1.0)),
            ]
        ).to_json()
    module = network(tmp_path, text, (6,), 3, CUSTOM)
    samples = torch.rand(2, 6)
    weights = dict(module.named_parameters())
    torch.testing.assert_close(module(samples), 32 * samples @ weights["q/kernel"])
    torch.testing.assert_close(module.regularization_loss(), weights["q/kernel"].abs().sum())


def test_the_user_s_files_are_inputs_of_the_run(tmp_path):
    """A checkpoint belongs to the content of these files."""
    (tmp_path / "layers.py").write_text("import own\n" + OWN)
    (tmp_path / "own.py").write_text("")
    (tmp_path / "net.json").write_text(sequential([layer_2("QDense", "q", [6], units=3)], "2.4.0"))
    model = {
        "name": str(tmp_path / "net.json"),
        "custom_objects": {"QDense": f"{tmp_path / 'layers.py'}:QDense"},
    }
    run = Run.model_validate({"model": model})
    assert [os.path.basename(file) for file in run.input_files] == ["net.json", "layers.py", "own.py"]
    assert sum(each.numel() for each in build_random_model(run, (6,), 3, 0).parameters()) == 6 * 3 + 3


def test_errors_of_the_user_s_class_name_its_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layers.py").write_text(OWN)
    text = sequential([layer_2("QDense", "q", [6], units=3, bits=5)], "2.4.0")
    message = r"^layers.py:7 in __init__: KeyError: 5; raised by the model .*net.json"
    with pytest.raises(UserError, match=message):
        network(tmp_path, text, (6,), 3, CUSTOM)


def test_mpi_learn_s_builder_passes_custom_objects():
    import keras

    from nnlo_lib.mpi_learn import ModelFromJson

    class Doubled(keras.layers.Dense):
        pass

    text = sequential([layer_2("Doubled", "q", [6], units=3)], "2.4.0")
    model = ModelFromJson(json_str=text, custom_objects={"Doubled": Doubled}).build_model()
    assert isinstance(model.layers[0], Doubled)
    with pytest.raises(ValueError, match=r"^layer q \(Doubled\): Keras 3 has no class"):
        ModelFromJson(json_str=text).build_model()
