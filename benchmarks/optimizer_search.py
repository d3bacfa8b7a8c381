"""Compare optimizers after searches with equal budgets: `python benchmarks/optimizer_search.py [--data mnist --source FOLDER]`.

NNLO's own search (`auto`, the value is the mean validation loss of two folds) tunes learning rate and weight decay of each optimizer
with the same number of trials. The best point is then trained with seeds that the search has not seen. Each has a cosine schedule,
except schedule_free, which has a warm-up of one epoch instead.
"""

import argparse
import contextlib
import tempfile
from statistics import fmean, stdev
from typing import Any

import nnlo_lib

COSINE = {"schedule": {"name": "cosine"}}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd, momentum 0.9": {"optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": True, "lr": 0.03}, **COSINE},
    "adamw": {"optimizer": {"name": "adamw", "lr": 0.003}, **COSINE},
    "adamw, ema 0.98": {"optimizer": {"name": "adamw", "lr": 0.003}, "ema": {"decay": 0.98}},
    "lion": {"optimizer": {"name": "lion", "lr": 0.0006}, **COSINE},
    "muon": {"optimizer": {"name": "muon", "lr": 0.003}, **COSINE},
    "schedule_free adamw": {"optimizer": {"name": "schedule_free", "lr": 0.006}, "warm_up": {"epochs": 1}},
    "schedule_free sgd": {"optimizer": {"name": "schedule_free", "beta2": 0.0, "lr": 0.3}, "warm_up": {"epochs": 1}},
}  # fmt: skip


def compared(name: str, train: dict[str, Any], options: argparse.Namespace) -> None:
    """Search, train the best point with new seeds, and print its row."""
    data: dict[str, Any] = {"dataset": options.data} | ({"source": options.source} if options.source else {})
    rate = train["optimizer"]["lr"]
    space = {
        "train.optimizer.lr": {"log_uniform": [rate / 20, rate * 20]},
        "train.optimizer.weight_decay": {"log_uniform": [1e-5, 0.3]},
    }
    experiment = nnlo_lib.load_experiment({
        "name": f"optimizer-{len(name)}-{name.partition(' ')[0].strip(',')}", "data": data,
        "model": {"name": options.model}, "train": {"epochs": options.epochs, "batch_size": 64, **train},
        "search": {
            "space": space, "trials": options.trials, "folds": {"k": 2}, "parallel": 2, "order": "fixed",
            "objective": {"metric": "val_loss"},
        },
    })  # fmt: skip
    found = nnlo_lib.search(experiment)
    losses, accuracies = [], []
    for seed in range(11, 11 + options.seeds):
        best = nnlo_lib.load_experiment(
            found.best_experiment, {"name": f"{experiment.name}-{seed}", "seeds": [seed]}
        )
        run = nnlo_lib.train(best)
        losses.append(run.evaluation["loss"])
        accuracies.append(run.evaluation["accuracy"])
    point = ", ".join(f"{key.rpartition('.')[2]} {value:.2g}" for key, value in found.best_point.items())
    cells = [
        f"{fmean(losses):.4f} ± {stdev(losses):.4f}",
        f"{fmean(accuracies):.2%} ± {stdev(accuracies):.2%}",
    ]
    print(f"| {name} | {cells[0]} | {cells[1]} | {point} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--source", help="folder of the data's files")
    parser.add_argument("--model", default="simplecnn")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=[*OPTIMIZERS], default=[*OPTIMIZERS])
    parser.add_argument("--quick", action="store_true", help="two trials of one epoch")
    options = parser.parse_args()
    if options.quick:
        options.trials, options.epochs, options.seeds, options.only = 2, 1, 2, ["adamw", "muon"]
    print("| optimizer | test loss | test accuracy | best point |\n| --- | ---: | ---: | --- |", flush=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name in options.only:
            compared(name, OPTIMIZERS[name], options)


if __name__ == "__main__":
    main()
