"""False verdicts and power of the report's comparisons: trainings of equally good runs, and simulated summaries.

    python benchmarks/false_verdicts.py --experiments 200 --figure docs/images/false_verdicts.svg
    python benchmarks/false_verdicts.py --quick    # few experiments

Each experiment trains the runs of RUNS on the embedded digits, on one simulated rank, with the division into folds and
the random streams of `nnlo run`. `a` and `b` have the same settings, and networks whose initial weights are drawn at
different places of the stream: each verdict is false. `chosen` differs from `last` by train.restore_best alone, and is
not better on new samples. The power is that of simulated accuracies.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, redirect_stderr
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from figures import IMAGES, record
from scipy import stats

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Experiment, Run
from nnlo_lib.data.store.split import Split
from nnlo_lib.report.statistics.run_comparison import compare_runs, ranking_metric
from nnlo_lib.train.evaluation.evaluate import test_result_of_run
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task, prepare_dataset
from nnlo_lib.train.trainer import Trainer

SEEDS = (3, 5, 10)
DESIGNS = ((3, 1), (1, 5), (3, 3))  # seeds, folds
SAMPLES = 2000  # test samples of a simulated accuracy
GAINS = (0, 0.5, 1, 1.5, 2, 3, 4, 6)  # true differences, in deviations of a paired difference
NETWORK = """import torch
from torch import nn

def network(shape, classes, skipped, hidden, activation):
    torch.rand(skipped)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), getattr(nn, activation)(), nn.Linear(hidden, classes))
"""
SETTINGS = {"algorithm": {"name": "allreduce"}, "parallel": {"ranks": 1, "transport": "simulated"}}
# Few steps, so that the initial weights matter.
SHORT = {"epochs": 3, "batch_size": 256, "optimizer": {"name": "sgd", "lr": 0.3}}
# The accuracy hardly rises in the last epochs.
LONG = {"epochs": 7, "batch_size": 256, "optimizer": {"name": "adam", "lr": 0.1}}
RUNS = {
    "a": (0, 6, "ReLU", SHORT),
    "b": (1, 6, "ReLU", SHORT),
    "last": (0, 8, "Tanh", LONG),
    "chosen": (0, 8, "Tanh", LONG | {"restore_best": "val_accuracy"}),
}
Table = pd.DataFrame


def null_runs(folder: Path) -> dict[str, Run]:
    """Return the runs of an experiment, whose network is written into a folder."""
    file = folder / "network.py"
    file.write_text(NETWORK)
    runs = {}
    for name, (skipped, hidden, activation, train) in RUNS.items():
        model = {
            "name": f"{file}:network",
            "args": {"skipped": skipped, "hidden": hidden, "activation": activation},
        }
        [runs[name]] = Experiment.model_validate(
            SETTINGS | {"model": model, "train": train}
        ).variants.values()
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
            "weights_chosen_by": "restore_best" if task.run.train.restore_best else None,
            "val_accuracy": published["val_accuracy"],
            "val_loss": published["val_loss"],
        }

    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):
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
    held_back = {
        "accuracy": table["val_accuracy"],
        "loss": table["val_loss"],
        "samples": table["validation_samples"],
    }
    return described(table.assign(**held_back), "held back")


def better(table: Table, *runs: str) -> str | None:
    """Return the run that is called better, of two runs, by the metric that ranks them."""
    both = table[table["run"].isin(runs)]
    metric = ranking_metric(both)
    assert metric is not None
    [found] = compare_runs(both, metric, lambda job, column: None)
    return found.better


def false_verdicts(experiments: int) -> Iterator[tuple[str, int]]:
    """Yield a description and the number of experiments with a false verdict, design by design."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        prepare_dataset(Experiment().data, folder / "store")
        runs = null_runs(folder)
        for seeds, folds in DESIGNS:
            tables = [experiment(folder, runs, each, seeds, folds) for each in range(experiments)]
            design = f"{seeds} seed{'s' * (seeds > 1)}" + (f" x {folds} folds" if folds > 1 else "")
            yield f"{design}, equal settings", sum(better(each, "a", "b") is not None for each in tables)
            for kind, seen in (("with", tables), ("without", [*map(without_test_split, tables)])):
                wrong = sum(better(each, "last", "chosen") == "chosen" for each in seen)
                yield f"{design}, `restore_best` in one run, {kind} a test split", wrong


def interval(found: int, experiments: int) -> str:
    """Return a share in per cent with its exact 95 % interval."""
    low, high = stats.binomtest(found, experiments).proportion_ci(method="exact")
    return f"{found} of {experiments}: {100 * found / experiments:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def simulated(rng: np.random.Generator, seeds: int, gain: float) -> Table:
    """Return a summary of accuracies with a common effect of each seed; the first run is better by `gain` deviations."""
    values = 0.5 * rng.normal(size=(1, seeds)) + rng.normal(size=(2, seeds)) + [[gain], [0.0]]
    accuracy = np.round((0.9 + 0.005 * values) * SAMPLES) / SAMPLES
    rows = [
        {"run": run, "seed": seed, "fold": pd.NA, "accuracy": accuracy[place, seed], "loss": 0.5}
        for place, run in enumerate(("a", "b"))
        for seed in range(seeds)
    ]
    table = described(pd.DataFrame(rows), "test")
    return table.assign(
        samples=SAMPLES, training_samples=SAMPLES, validation_samples=0, weights_chosen_by=None
    )


def power_curve(experiments: int, seeds: int) -> list[float]:
    """Return the share of experiments with a verdict for each difference, in deviations of a paired difference."""
    rng = np.random.default_rng(17)
    scale = np.sqrt(2)  # deviation of the difference of two values of deviation 1
    return [
        float(
            np.mean(
                [
                    better(simulated(rng, seeds, scale * gain), "a", "b") is not None
                    for _ in range(experiments)
                ]
            )
        )
        for gain in GAINS
    ]


def main() -> None:
    """Print the tables; with --figure, draw the power."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--experiments", type=int, default=200)
    parser.add_argument("--figure", type=Path, help="file of the figure of the power")
    parser.add_argument("--quick", action="store_true", help="one experiment")
    options = parser.parse_args()
    experiments = 1 if options.quick else options.experiments
    torch.set_num_threads(1)
    print("| trained experiments with a false verdict | 95 % interval |\n| --- | --- |")
    for name, found in false_verdicts(experiments):
        print(f"| {name} | {interval(found, experiments)} |", flush=True)
    curves = {seeds: power_curve(20 if options.quick else 250, seeds) for seeds in SEEDS}
    print("\n| difference in deviations | " + " | ".join(map(str, GAINS)) + " |")
    print("| --- |" + " ---: |" * len(GAINS))
    for seeds, curve in curves.items():
        print(f"| {seeds} seeds | " + " | ".join(f"{100 * share:.0f} %" for share in curve) + " |")
    if options.figure:
        draw(curves, options.figure)
        if options.figure.resolve().is_relative_to(IMAGES):
            record(options.figure.resolve(), Path(__file__).resolve())


def draw(curves: dict[int, list[float]], output: Path) -> None:
    """Draw the power against the difference, a curve for each number of seeds."""
    figure, panel = plt.subplots(figsize=(6, 3.6))
    for seeds, curve in curves.items():
        panel.plot(GAINS, curve, marker=".", label=f"{seeds} seeds")
    panel.axhline(0.05, color="grey", lw=0.5)
    panel.set(
        xlabel="true difference, in standard deviations of a paired difference",
        ylabel="probability of a verdict",
        ylim=(0, 1.02),
    )
    panel.legend()
    figure.tight_layout()
    # Without a date, equal results give equal bytes.
    figure.savefig(output, metadata={"Date": None})


if __name__ == "__main__":
    main()
