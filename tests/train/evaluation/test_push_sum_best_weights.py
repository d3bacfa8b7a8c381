"""Published mean of the best models of push-sum: it uses the push-sum weights from the time of the measurement."""

import pytest
from helpers.training_process import training

pytestmark = pytest.mark.processes

CASES = {
    "gosgd": {"algorithm": {"name": "gosgd", "probability": 0.4}},
    "sgp": {
        "algorithm": "sgp",
        "topology": {"name": "directed_edges", "edges": [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]]},
    },
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_the_best_weights_are_those_of_a_run_that_ended_there(tmp_path, settings):
    train = {"epochs": 7, "batch_size": 32, "optimizer": {"lr": 0.9}}
    settings |= {"model": {"name": "simplemlp", "args": {"hidden": 16}}}
    settings |= {"parallel": {"ranks": 4, "transport": "simulated"}}
    best = training(tmp_path / "best", train=train | {"restore_best": "val_loss"}, **settings)
    best.finish()
    losses = [row["val_loss"] for row in best.rows]
    at = losses.index(min(losses)) + 1
    assert at < len(losses), "the oracle needs a run whose last epoch is not its best"
    short = training(tmp_path / "short", train=train | {"epochs": at}, **settings)
    short.finish()
    assert best.weights == short.weights
