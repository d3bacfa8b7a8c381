"""Models with their own iterations under the rules, beside loops written from the equations in numpy."""

import inspect
import math

import numpy as np
import pytest
from helpers import iteration_models
from helpers.iteration_models import LinearData

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.compat.theano_mpi.iteration_model import build_iteration_model
from nnlo_lib.compat.theano_mpi.iteration_session import IterationRank, model_config
from nnlo_lib.compat.theano_mpi.rule import RuleSettings
from nnlo_lib.core.errors import UserError

FILE = inspect.getsourcefile(iteration_models)
AVERAGE = RuleSettings("BSP", sync_type="avg")


def trained(name, settings, ranks):
    """Return, for each rank, its model and its history."""

    def program(comm):
        config = model_config(comm, settings, ["cpu"] * ranks, name)
        model = build_iteration_model(FILE, name, config)
        rows = IterationRank(model, comm, settings).run()
        return model, rows

    return SimulatedWorld(ranks).run(program)


def batches(rank, size):
    """Return a worker's batches with a column of ones, as arrays."""
    data = LinearData(rank, size)
    return [(np.column_stack([x.numpy(), np.ones(len(x))]), y.numpy()) for x, y in data.train]


def gradient(w, x, y):
    return 2 * x.T @ (x @ w - y) / len(y)


def weights(model):
    return np.concatenate([each.numpy() for each in model.params])


def start():
    return np.array([0.5, 0.5, 0.5, 0.0])


def test_average_of_parameters():
    everyones, w, rate = [batches(rank, 3) for rank in range(3)], start(), 0.05 * 3
    for _ in range(2):
        for step in range(6):
            w = np.mean([w - rate * gradient(w, *each[step]) for each in everyones], axis=0)
        rate /= 2
    for model, _ in trained("LinearModel", AVERAGE, 3):
        np.testing.assert_allclose(weights(model), w, rtol=1e-12)


def test_sum_of_momenta_is_momentum_of_the_mean_gradient():
    everyones, w, velocity, rate = [batches(rank, 2) for rank in range(2)], start(), np.zeros(4), 0.05
    for _ in range(2):
        for step in range(6):
            w = w - rate * velocity
            velocity = 0.9 * velocity + np.mean([gradient(w, *each[step]) for each in everyones], axis=0)
        rate /= 2
    for model, _ in trained("MomentumModel", RuleSettings("BSP"), 2):
        np.testing.assert_allclose(weights(model), w, rtol=1e-12)


def test_elastic_averaging():
    mine, w, center, rate = batches(0, 1), start(), start(), 0.05
    for epoch in range(2):
        for step in range(6):
            if (6 * epoch + step) % 4 == 0:
                w, center = w - 0.3 * (w - center), center + 0.3 * (w - center)
            w = w - rate * gradient(w, *mine[step])
        rate /= 2
    results = trained("LinearModel", RuleSettings("EASGD", tau=4, alpha=0.3), 2)
    for model, _ in results:  # the center is the result on all ranks
        np.testing.assert_allclose(weights(model), center, rtol=1e-12)


def test_gossip_ends_with_one_model_near_the_optimum():
    results = trained("LinearModel", RuleSettings("GOSGD", p=0.5), 4)
    first = weights(results[0][0])
    assert all((weights(model) == first).all() for model, _ in results)
    assert np.linalg.norm(first - [1, 1, 1, 0]) < np.linalg.norm(start() - [1, 1, 1, 0])


def test_methods_are_called_in_the_order_of_theano_mpi():
    [(model, rows)] = trained("LinearModel", AVERAGE, 1)
    epoch = ["reset train", "reset val"]
    assert model.calls == [
        "compile_iter_fns", "scale_lr 1", *epoch, "adjust_hyperp 0", *epoch, "adjust_hyperp 1", "cleanup",
    ]  # fmt: skip
    assert (model.epoch, [row["iterations"] for row in rows]) == (1, [6, 12])
    assert model.current_info == [12, rows[1]["val_cost"], 0.25, 0.125]


def test_history_is_the_mean_over_ranks():
    results = trained("LinearModel", AVERAGE, 2)
    rows = results[0][1]
    assert rows == results[1][1]
    assert (rows[0]["train_error"], rows[0]["val_error"], rows[0]["val_error_top5"]) == (0.5, 0.25, 0.125)
    x, y = batches(0, 2)[0]
    other = batches(1, 2)[0]
    costs = [
        np.mean((x @ weights(results[0][0]) - y) ** 2),
        np.mean((other[0] @ weights(results[0][0]) - other[1]) ** 2),
    ]
    assert math.isclose(rows[1]["val_cost"], np.mean(costs), rel_tol=1e-12)


@pytest.mark.parametrize(("name", "iterations"), [("EarlyModel", [6]), ("JumpingModel", [3, 6])])
def test_a_model_may_end_the_training_or_use_several_batches(name, iterations):
    [(_, rows)] = trained(name, AVERAGE, 1)
    assert [row["iterations"] for row in rows] == iterations


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("AbsentModel", AVERAGE, "the class cannot be built (AttributeError: module 'iteration_models' has no attribute 'AbsentModel')"),
        ("FailingModel", AVERAGE, "FileNotFoundError: no batches in /data/made-up"),
        ("UnfinishedModel", AVERAGE, "the class lacks data, n_epochs, n_subb, compile_iter_fns(), train_iter()"),
        ("ArrayModel", AVERAGE, "params holds list; put torch tensors there"),
        ("MixedModel", AVERAGE, "params: tensors are torch.float32 on cpu, torch.float64 on cpu; use one"),
        ("UnequalModel", AVERAGE, "the workers have [[6, 1, 2], [7, 1, 2]]; give all workers as many batches"),
        ("LinearModel", RuleSettings("BSP"), "`vels` to `vels2`, which the class lacks; add both"),
        ("MomentumModel", RuleSettings("BSP", exch_strategy="nccl16"), "half precision with sync_type cdd is not available"),
    ],
)  # fmt: skip
def test_mistakes(name, settings, sentence):
    with pytest.raises(UserError) as error:
        trained(name, settings, 2)
    assert sentence in str(error.value)
