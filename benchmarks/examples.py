"""Train the example experiments: `python benchmarks/examples.py [--mnist FOLDER] [--cifar FOLDER] [--imagenet FOLDER]`.

The examples are the files of config/experiments that name a data set or a search; tests/train/test_examples_learn.py trains the
others. Each run is trained on simulated ranks with each seed, and its model is measured on the test samples. The best trial of a
search is trained again. A row says how much a training was shortened, and whether a seed ended at guessing level: an accuracy not
better than always naming the most frequent class, or a mean absolute error not below the one of the targets' median.
Examples whose data set has no folder on the command line are left out, and named.
"""

import argparse
import contextlib
import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Read by torch when it is imported, and by the processes of the trials.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from nnlo_lib.api import load_experiment, search
from nnlo_lib.config import Experiment, Run, merge_settings
from nnlo_lib.config.paths import store_of
from nnlo_lib.core.atomic_file import load_json
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.problems.set_metrics import guessing
from nnlo_lib.train.evaluation.evaluate import evaluate_model
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task, prepare_store

EXAMPLES = Path(__file__).parents[1] / "config/experiments"
FOLDERS = {
    "mnist": "mnist",
    "cifar10": "cifar",
    "imagenet": "imagenet",
}  # option with the folder of a data set
METRICS = ("accuracy", "mae", "distance")  # the first that an evaluation has is shown
# Settings of the small archive that the tests use: the catalog knows the checksum of the full one only.
CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"
CIFAR = {"data.dataset": "cifar10-small", "data.reader": {"name": "cifar"}}


@dataclass(frozen=True)
class Shortened:
    """How the training of an example is shortened, so that all examples together take about half an hour on one core (estimated).

    Attributes:
        divisor: number by which the epochs are divided.
        changes: other changed settings, by dotted key.
        unjudged: reason why a model cannot be compared with guessing; empty if it can.
    """

    divisor: int = 1
    changes: dict[str, Any] = field(default_factory=dict)
    unjudged: str = ""


SHORTENED = {
    "algorithm-search": Shortened(changes={"search.trials": 4}),
    "cifar10": Shortened(30),
    # All nodes of the figures are evaluated on all test images after each epoch, which takes longer than the training.
    "dinno-mnist": Shortened(20, {"data.validation": 0.01}),
    "dinno-scaling": Shortened(37, {"data.validation": 0.01}),
    "imagenet": Shortened(
        45, {"parallel.ranks": 2}, "not judged: each image of the three files has its own class"
    ),
    "mnist": Shortened(3),
    "mnist-asha": Shortened(changes={"search.trials": 3, "train.epochs": 1, "search.fidelity.name": "full"}),
    "nnlo-modes": Shortened(5),
    "nnlo-search-13": Shortened(changes={"search.trials": 3}),
    "nnlo-search-7": Shortened(changes={"search.trials": 3}),
    "pydtnn-mnist": Shortened(50),
    "stragglers": Shortened(8),
    "theanompi-rules": Shortened(15),
    "wgan-mnist": Shortened(
        5, {"train.steps_per_epoch": 100}, "not judged: a critic's distance has no such level"
    ),
}
QUICK_TRAIN = {"epochs": 1, "steps_per_epoch": 1}
QUICK_EXAMPLES = ["nnlo-search-7", "regression"]
QUICK_SEARCH = {"search.trials": 1, "train.epochs": 1}
HEADINGS = ("example", "run", "data", "epochs", "other changes", "metric", "by seed", "at guessing level")


def main() -> None:
    """Print a row for each run of each example."""
    names = [path.stem for path in sorted(EXAMPLES.glob("*.yaml")) if not _is_tested(path)]
    options = _options(names)
    torch.set_num_threads(1)
    print(f"| {' | '.join(HEADINGS)} |\n|{' --- |' * len(HEADINGS)}", flush=True)
    missing = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            source = source_of(name, options)
            if source is None:
                missing.append(name)
                continue
            with contextlib.chdir(folder):
                example = Example(name, source, options.quick, options.all_epochs, options.runs)
                for row in _rows(example, range(1, options.seeds + 1)):
                    print(f"| {' | '.join(row)} |", flush=True)
    if missing:
        print(f"\nleft out, because the folder of their data was not named: {', '.join(missing)}")


def example_options(text: str, names: list[str]) -> argparse.ArgumentParser:
    """Return a parser of the folders of data sets and of `--only`; the first line of `text` is its description."""
    parser = argparse.ArgumentParser(description=text.partition("\n")[0])
    parser.add_argument("--mnist", type=Path, help="folder of the four files of MNIST")
    parser.add_argument("--cifar", type=Path, help=f"folder of {CIFAR_ARCHIVE}")
    parser.add_argument("--imagenet", type=Path, help="folder of TFRecord files")
    parser.add_argument("--only", nargs="+", choices=names, help="examples; default: all")
    return parser


def _options(names: list[str]) -> argparse.Namespace:
    parser = example_options(__doc__, names)
    parser.add_argument("--runs", nargs="+", help="runs of the examples; default: all")
    parser.add_argument(
        "--all-epochs", action="store_true", help="as many epochs as the example, which takes hours"
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds; default: %(default)s")
    parser.add_argument(
        "--quick", action="store_true", help="two examples, one seed, first run, one step or one trial"
    )
    options = parser.parse_args()
    options.only = options.only or (QUICK_EXAMPLES if options.quick else names)
    options.seeds = 1 if options.quick else options.seeds
    return options


def _is_tested(path: Path) -> bool:
    """Return True if a test trains the example: on the digits or data of its own, without a search."""
    experiment = load_experiment(path)
    return experiment.data.dataset not in (*FOLDERS, "diabetes") and experiment.search is None


def source_of(name: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """Return the settings of an example's data; None if the folder of its data set was not named."""
    dataset = load_experiment(EXAMPLES / f"{name}.yaml").data.dataset
    if dataset not in FOLDERS:
        return {}
    folder = getattr(options, FOLDERS[dataset])
    if folder is None:
        return None
    if dataset == "cifar10":
        return {**CIFAR, "data.source": str((folder / CIFAR_ARCHIVE).absolute())}
    return {"data.source": str(folder.absolute())}


@dataclass(frozen=True)
class Example:
    """An example with its changes.

    Attributes:
        name: name of the file, without the suffix.
        source: settings of the data.
        quick: train the first run for one step only.
        all_epochs: do not divide the number of epochs.
        selected: names of the runs to train; None: all.
    """

    name: str
    source: dict[str, Any]
    quick: bool
    all_epochs: bool
    selected: list[str] | None

    @property
    def shortened(self) -> Shortened:
        """How the training is shortened, apart from `quick`."""
        return SHORTENED.get(self.name, Shortened())

    def load(self, changes: dict[str, Any]) -> Experiment:
        """Return the experiment with its changes and others, on simulated ranks."""
        own = {"parallel.transport": "simulated", **self.source, **self.shortened.changes}
        return load_experiment(EXAMPLES / f"{self.name}.yaml", own | changes)

    def runs(self) -> dict[str, Run]:
        """Return the shortened runs by name."""
        named = self.load({}).variants
        names = [name for name in named if self.selected is None or name in self.selected]
        return {name: self._shortened(named[name]) for name in names[: 1 if self.quick else None]}

    def best_run(self, seed: int) -> Run:
        """Search with a seed; return the run of the best trial."""
        quick = QUICK_SEARCH if self.quick else {}
        name = f"{self.name}-{seed}"
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            found = search(self.load({"name": name, "search.seed": seed, "seeds": [seed], **quick}))
        [run] = found.best_experiment.variants.values()
        return run

    def _shortened(self, run: Run) -> Run:
        divisor = 1 if self.all_epochs else self.shortened.divisor
        epochs = max(1, run.train.epochs // divisor)
        train = QUICK_TRAIN if self.quick else {"epochs": epochs}
        return Run.model_validate(merge_settings(run.model_dump(exclude_unset=True), {"train": train}))


def _rows(example: Example, seeds: range) -> Iterator[list[str]]:
    """Yield the rows of an example."""
    if example.load({}).search:
        found = [example.best_run(seed) for seed in seeds]
        yield _row(example, "best trial", found, seeds)
        return
    for name, run in example.runs().items():
        yield _row(example, name, [run for _ in seeds], seeds)


def _row(example: Example, name: str, runs: Sequence[Run], seeds: range) -> list[str]:
    """Train and return the cells of a row.

    Args:
        example: the example.
        name: name of the run.
        runs: run of each seed.
        seeds: seeds of the trainings.
    """
    reports = [
        _evaluation(f"{example.name}/{name}", run, seed) for run, seed in zip(runs, seeds, strict=True)
    ]
    metric = next(metric for metric in METRICS if metric in reports[0])
    file = load_experiment(EXAMPLES / f"{example.name}.yaml")
    planned = file.variants[name].train.epochs if name in file.variants else file.train.epochs
    epochs = runs[0].train.epochs
    changes = ", ".join(f"{key} {value}" for key, value in example.shortened.changes.items())
    return [
        example.name,
        name,
        runs[0].data.dataset,
        str(epochs) if epochs == planned else f"{epochs} of {planned}",
        "one step" if example.quick else changes,
        metric,
        ", ".join(f"{report[metric]:.4g}" for report in reports),
        example.shortened.unjudged or _guessing_seeds(runs, reports, seeds),
    ]


def _evaluation(folder: str, run: Run, seed: int) -> dict[str, Any]:
    """Train a run and return the content of evaluation.json.

    Args:
        folder: folder of the run below `results`.
        run: the run.
        seed: seed of the training.
    """
    manifest = prepare_store(store_of(run))
    task = Task("examples", Path(folder).name, run, seed, None, 1, manifest, Path(f"results/{folder}/{seed}"))
    with contextlib.redirect_stderr(io.StringIO()):
        train_simulated(task, StopFlag())
    evaluate_model(run, manifest, task.paths.model, task.paths.evaluation)
    report: dict[str, Any] = load_json(task.paths.evaluation.read_text())
    return report


def _guessing_seeds(runs: Sequence[Run], reports: Sequence[dict[str, Any]], seeds: range) -> str:
    """Return the seeds whose model is at guessing level, as text.

    Args:
        runs: run of each seed.
        reports: evaluation of each seed.
        seeds: the seeds.
    """
    found = [
        str(seed) for run, report, seed in zip(runs, reports, seeds, strict=True) if _is_guess(run, report)
    ]
    return f"**seed {', '.join(found)}**" if found else "none"


def _is_guess(run: Run, report: dict[str, Any]) -> bool:
    """Return True if the model is not better than always naming the most frequent class, or the median of the targets."""
    if "accuracy" in report:
        return guessing(report, dict) is not None
    targets = Split(DataManifest.load(store_of(run).manifest), report["split"]).labels
    return bool(report["mae"] >= abs(targets - np.median(targets)).mean())


if __name__ == "__main__":
    main()
