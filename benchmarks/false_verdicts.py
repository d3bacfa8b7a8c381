"""False verdicts and power of the report's comparisons: trainings of equally good runs, and simulated summaries.

    python benchmarks/false_verdicts.py --experiments 200 --figure docs/images/false_verdicts.svg
    python benchmarks/false_verdicts.py --quick    # few experiments

Each experiment trains three runs on the embedded digits, on one simulated rank, with the division into folds and the
random streams of `nnlo run`. The runs `a` and `b` have the same settings, and networks whose initial weights are drawn
at different places of the stream; `chosen` differs from `a` by train.restore_best alone. A verdict on `a` and `b` is
false, and so is `chosen` better than `a`: restored weights are not better on new samples. The power is that of simulated
accuracies.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from scipy import stats

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Experiment, Run
from nnlo_lib.data.store.split import Split
from nnlo_lib.report.statistics.run_comparison import compare_runs, ranking_metric
from nnlo_lib.report.tables import MEASURED
from nnlo_lib.train.evaluation.evaluate import test_result_of_run
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task, prepare_dataset
from nnlo_lib.train.trainer import Trainer

SEEDS = (2, 3, 5, 10)
DESIGNS = ((3, 1), (1, 5), (3, 3))  # seeds, folds
SAMPLES = 2000  # test samples of a simulated accuracy
GAINS = (0, 0.5, 1, 1.5, 2, 3, 4, 6)  # true differences, in deviations of a paired difference
NETWORK = """import torch
from torch import nn

def network(shape, classes, skipped):
    torch.rand(skipped)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, classes))
"""
SETTINGS = {
    "algorithm": {"name": "allreduce"},
    "parallel": {"ranks": 1, "transport": "simulated"},
    "train": {"epochs": 4, "batch_size": 256, "optimizer": {"name": "sgd", "lr": 0.3}},
}
Table = pd.DataFrame


def null_runs(folder: Path) -> dict[str, Run]:
    """Return the runs of an experiment, whose network is written into a folder."""
    file = folder / "network.py"
    file.write_text(NETWORK)
    runs = {}
    for name, (skipped, best) in {"a": (0, None), "b": (1, None), "chosen": (0, "val_accuracy")}.items():
        train = SETTINGS["train"] | {"restore_best": best}
        model = {"name": f"{file}:network", "args": {"skipped": skipped}}
        [runs[name]] = Experiment.model_validate(SETTINGS | {"model": model, "train": train}).variants.values()
    return runs


def trained(task: Task) -> dict[str, object]:
    """Train a task on one simulated rank; return its row of the summary."""

    def run_rank(comm) -> dict[str, object]:  # type: ignore[no-untyped-def]
        trainer = Trainer(RankContext(task, comm), StopFlag())
        with closing(trainer):
            trainer.run()
        context, rows = trainer.context, trainer.recorder.validation_rows
        published = next((row for row in rows if row["step"] == trainer.best_weights.step), rows[-1])
        split = Split(context.data.manifest, "test")
        tested = test_result_of_run(
            task.run, context.replica.module, context.preprocessor, split, np.arange(len(split)), 10
        )
        return {
            "run": task.name,
            "seed": task.seed,
            "fold": task.fold,
            "accuracy": tested.report["accuracy"],
            "loss": tested.report["loss"],
            "samples": len(split),
            "training_samples": context.data.num_training_samples,
            "validation_samples": len(context.data.validation_set[1]),
            "chosen_by": "restore_best" if task.run.train.restore_best else None,
            "val_accuracy": published["val_accuracy"],
            "val_loss": published["val_loss"],
        }

    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        [row] = SimulatedWorld(1, task.run.parallel.simulation, task.seed).run(run_rank)
    return row


def experiment(folder: Path, runs: dict[str, Run], number: int, seeds: int, folds: int) -> Table:
    """Train all seeds and folds of the runs; return their summary. `number`: of the experiment, from 0."""
    rows = []
    for name, run in runs.items():
        for seed in range(seeds * number, seeds * (number + 1)):
            for fold in range(folds) if folds > 1 else [None]:
                with tempfile.TemporaryDirectory(dir=folder) as own:
                    task = Task("t", name, run, seed, fold, folds, folder / "store/manifest.json", Path(own))
                    rows.append(trained(task))
    return described(pd.DataFrame(rows), "test")


def described(table: Table, split: str) -> Table:
    """Return a summary with the columns that are equal in all jobs; `split`: the evaluated samples."""
    equal = {"problem": "classification", "loss_function": "", "data": "", "split": split}
    return table.assign(**equal).astype({"fold": "Int64"})


def without_test_split(table: Table) -> Table:
    """Return the summary that the same trainings would have without a test split."""
    held_back = {"accuracy": table["val_accuracy"], "loss": table["val_loss"], "samples": table["validation_samples"]}
    return described(table.assign(**held_back), "held back")


def better(table: Table, *runs: str) -> str | None:
    """Return the run that is called better, of two runs, by the metric that ranks them."""
    both = table[table["run"].isin(runs)]
    metric = ranking_metric(both)
    assert metric is not None
    [found] = compare_runs(both, metric, lambda job, column: None)
    return found.better


def false_verdicts(experiments: int, first: int) -> Iterator[tuple[str, int, int]]:
    """Yield a description, the experiments with a false verdict, and their number, design by design."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        prepare_dataset(Experiment().data, folder / "store")
        runs = null_runs(folder)
        for seeds, folds in DESIGNS:
            tables = [experiment(folder, runs, first + each, seeds, folds) for each in range(experiments)]
            design = f"{seeds} seed{'s' * (seeds > 1)}" + (f" x {folds} folds" if folds > 1 else "")
            yield f"{design}, equal settings", sum(better(each, "a", "b") is not None for each in tables), experiments
            for kind, change in (("", lambda table: table), (", no test split", without_test_split)):
                wrong = [better(change(each), "a", "chosen") == "chosen" for each in tables]
                yield f"{design}, `restore_best` in one run{kind}", sum(wrong), experiments
