"""Regularizers of Keras networks: the loss compared with Keras and with numpy, and what is refused."""

import os

import numpy as np
import pytest
import torch
from helpers.requires import optional
from torch import nn

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.factory import build_model
from nnlo_lib.models.keras.module import KerasNetwork
from nnlo_lib.problems.supervised import SupervisedProblem

os.environ["KERAS_BACKEND"] = "torch"
keras = optional("keras")


def mean_square(outputs, labels):
    return (outputs - labels).square().mean(1)


PROBLEM = SupervisedProblem(mean_square, {})


def regularized():
    """Return a Keras model with one penalty of each kind; Keras rounds the factors to float32."""
    layers, regularizers = keras.layers, keras.regularizers
    return keras.Sequential([
        layers.Input((4,)),
        layers.Dense(5, activation="tanh", kernel_regularizer=regularizers.L1L2(0.125, 0.25), bias_regularizer=regularizers.L2(0.5),
                     activity_regularizer=regularizers.L1(0.25)),
        layers.Dense(3, kernel_regularizer=regularizers.L1(0.0625)),
        layers.Dense(2, kernel_regularizer=regularizers.L1L2(0.0, 0.0)),
    ])  # fmt: skip


def batch(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(6, size, generator=generator, dtype=dtype) for size in (4, 2))


def penalty_by_hand(values, inputs, activity=0.25):
    """Return the penalties of `regularized` in numpy; Keras divides that of the activity by the batch size."""
    kernel, bias, second = values[0], values[1], values[2]
    outputs = np.tanh(inputs @ kernel + bias)
    of_weights = 0.125 * abs(kernel).sum() + 0.25 * (kernel**2).sum() + 0.5 * (bias**2).sum()
    return of_weights + 0.0625 * abs(second).sum() + activity * abs(outputs).sum() / len(inputs)


def test_the_penalty_is_that_of_keras_and_of_numpy():
    model = regularized()
    module = KerasNetwork(model, [(4,)]).double()
    inputs, _ = batch()
    assert module(inputs).dtype == torch.float64
    values = [each.detach().numpy() for each in module.parameters()]
    found = module.regularization_loss().item()
    assert found == pytest.approx(penalty_by_hand(values, inputs.numpy()), rel=1e-7)
    assert found == sum(float(loss) for loss in model.losses)
    # Activities are rounded to float32 by Keras, weights are not.
    model.layers[0].activity_regularizer = None
    module(inputs)
    assert module.regularization_loss().item() == pytest.approx(
        penalty_by_hand(values, inputs.numpy(), 0), rel=1e-14
    )


def test_losses_of_training_and_validation_are_those_of_keras():
    """Keras adds penalties to `loss` and to `val_loss`."""
    model = regularized()
    module = KerasNetwork(model, [(4,)])
    inputs, labels = batch(torch.float32)
    model.compile(loss="mse", run_eagerly=True)
    of_keras = model.test_on_batch(inputs.numpy(), labels.numpy())
    plain = mean_square(module(inputs), labels).mean().item()
    assert of_keras > plain + 0.1
    training = PROBLEM.compute_loss(module.train(), (inputs,), labels, 0)
    validation = PROBLEM.means(PROBLEM.measure(module.eval(), (inputs,), labels))
    found = [training.loss.item(), PROBLEM.means(training.sums())["loss"], validation["loss"]]
    assert found == pytest.approx([of_keras] * 3, rel=1e-6)


def test_the_samples_of_a_test_have_the_loss_of_the_test():
    module = KerasNetwork(regularized(), [(4,)]).eval()
    inputs, labels = batch(torch.float32)
    outputs, penalty = module(inputs), module.regularization_loss()
    mean = PROBLEM.means(PROBLEM.sums_of_outputs(outputs, labels, penalty))["loss"]
    of_samples = PROBLEM.values_of_outputs(outputs, labels, penalty)[0]
    assert of_samples.mean().item() == pytest.approx(mean, rel=1e-6)


def test_regularizers_of_zero_change_no_bit():
    dense = keras.layers.Dense(2, kernel_regularizer=keras.regularizers.L1L2(0, 0))
    module = KerasNetwork(keras.Sequential([keras.layers.Input((4,)), dense]), [(4,)])
    assert module.regularization_loss() is None


def test_a_penalty_on_probabilities_is_not_computed_from_scores(tmp_path):
    dense = keras.layers.Dense(2, activation="softmax", activity_regularizer="l2")
    (tmp_path / "net.json").write_text(keras.Sequential([keras.layers.Input((4,)), dense]).to_json())
    path = str(tmp_path / "net.json")
    with pytest.raises(UserError, match=r"layer dense.*activity_regularizer.*problem.outputs: probabilities"):
        build_model(path, {}, (4,), 2, 0, "softmax")
    module = build_model(path, {}, (4,), 2, 0)
    outputs = module(torch.rand(3, 4))
    torch.testing.assert_close(module.regularization_loss(), 0.01 * outputs.square().sum() / 3)


def test_a_loss_added_by_a_layer_of_the_user_counts():
    class Adds(keras.layers.Layer):
        def call(self, values):
            self.add_loss(values.square().mean())
            return values

    module = KerasNetwork(keras.Sequential([keras.layers.Input((4,)), Adds(), keras.layers.Dense(2)]), [(4,)])
    inputs, _ = batch(torch.float32)
    module(inputs)
    torch.testing.assert_close(module.regularization_loss(), inputs.square().mean())


def test_cross_entropy_and_penalty_are_those_of_keras():
    """With the softmax in the loss, as runs train, the sum is that of Keras' categorical_crossentropy."""
    dense = keras.layers.Dense(3, activation="softmax", kernel_regularizer=keras.regularizers.L1L2(0.1, 0.2))
    model = keras.Sequential([keras.layers.Input((4,)), dense])
    model.compile(loss="sparse_categorical_crossentropy", run_eagerly=True)
    inputs, labels = torch.randn(5, 4), torch.tensor([0, 2, 1, 1, 0])
    of_keras = model.test_on_batch(inputs.numpy(), labels.numpy())
    module = KerasNetwork(model, [(4,)], "softmax")
    problem = SupervisedProblem(nn.CrossEntropyLoss(reduction="none"), {})
    loss = problem.compute_loss(module.train(), (inputs,), labels, 0).loss
    assert loss.item() == pytest.approx(of_keras, rel=1e-5)
