"""The log of a training starts with its settings, as far as they are no defaults."""

from helpers.observed_training import watched

from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated


def test_the_log_starts_with_the_settings_that_are_no_defaults(tmp_path, small_store):
    settings = {
        "model": {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}},
        "algorithm": {"name": "easgd", "sync_every": 2, "alpha": 0.25},
        "train": {"optimizer": {"name": "sgd", "lr": 0.02, "nesterov": True, "momentum": 0.9}},
        "parallel": {"ranks": 3, "transport": "simulated"},
        "metrics": ["accuracy", "mse"],
    }
    task = watched(tmp_path / "job", small_store, {}, **settings)
    assert train_simulated(task, StopFlag())
    written = (tmp_path / "job/log.txt").read_text().splitlines()
    first, *lines = (line.split(" ", 2)[2] for line in written if line.count(" ") > 1)
    assert "easgd on 3 ranks" in first
    listed = lines[: next(number for number, line in enumerate(lines) if line.startswith("#"))]
    assert sorted(listed) == [
        "algorithm: easgd, sync_every 2, alpha 0.25",
        'metrics: ["accuracy", "mse"]',
        "model: simplemlp, args.hidden 4, args.layers 1",
        "parallel: ranks 3, transport simulated",
        "train: epochs 3, batch_size 20, optimizer sgd, optimizer.lr 0.02, optimizer.momentum 0.9, optimizer.nesterov true",
    ]
