"""Compare the algorithms with their default settings: `python benchmarks/defaults.py [--data mnist --source FOLDER] [--quick]`.

Each algorithm trains the default model with the default optimizer on simulated ranks, with the same number of ranks, epochs and
seeds as all-reduce. Only the name of the algorithm is set, and a cycle for algorithms that need another graph than the default;
`--topology` and `--set` show other graphs and settings. The table shows the mean test accuracy of the seeds, its range, and the
distance to the first algorithm in percentage points.
"""

import argparse
import contextlib
import io
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import yaml

from nnlo_lib.config import Experiment
from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.core.atomic_file import load_json
from nnlo_lib.train.evaluation.evaluate import evaluate_model
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task, prepare_dataset
from nnlo_lib.workflow.plan import Plan

CYCLES = ("adpsgd",)  # need a bipartite graph


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="digits", help="data set of the catalog")
    parser.add_argument("--source", help="folder of its files")
    parser.add_argument("--epochs", type=int, help="epochs; default: epochs of the experiment file")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*ALGORITHMS],
        default=[name for name in ALGORITHMS if name != "scaffold"],
        help="algorithms",
    )
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument(
        "--topology",
        help="graph of all algorithms, such as star or '{name: erdos_renyi, p: 0.4}'; default: their own",
    )
    parser.add_argument(
        "--set", default="{}", help="settings of the algorithms, such as '{beta: 1, momentum: 0}'"
    )
    parser.add_argument("--quick", action="store_true", help="one epoch, one seed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = {"dataset": options.data} | ({"source": options.source} if options.source else {})
    train = {"epochs": 1 if options.quick else options.epochs} if options.quick or options.epochs else {}
    seeds = range(1, 2 if options.quick else options.seeds + 1)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        manifest = Path("data/store/manifest.json")
        prepare_dataset(Experiment.model_validate({"data": data}).data, manifest.parent)
        common: dict[str, Any] = {
            "data": data,
            "train": train,
            "parallel": {"ranks": options.ranks, "transport": "simulated"},
        }
        if options.topology:
            graph = yaml.safe_load(options.topology)
            common["topology"] = {"name": graph} if isinstance(graph, str) else graph
        _print_table(common, yaml.safe_load(options.set), manifest, options.only, seeds)


def _print_table(
    common: dict[str, Any], changes: dict[str, Any], manifest: Path, names: list[str], seeds: range
) -> None:
    """Print a row for each algorithm.

    Args:
        common: settings of all trainings.
        changes: settings of the algorithms beside their names.
        manifest: manifest of the data store.
        names: algorithms; the first is the reference.
        seeds: seeds of the trainings of each algorithm.
    """
    print(f"| algorithm | test accuracy | range | points below {names[0]} |\n| --- | --- | --- | --- |")
    reference = 0.0
    for name in names:
        settings = _settings(common, {"name": name} | changes)
        found = [_accuracy(name, settings, manifest, seed) for seed in seeds]
        mean = fmean(found)
        reference = reference or mean
        below = 100 * (reference - mean)
        print(f"| `{name}` | {mean:.3f} | {min(found):.3f} to {max(found):.3f} | {below:.1f} |", flush=True)


def _settings(common: dict[str, Any], algorithm: dict[str, Any]) -> dict[str, Any]:
    graph = {"topology": {"name": "cycle"}} if algorithm["name"] in CYCLES else {}
    return {"name": "defaults", **graph, **common, "algorithm": algorithm}


def _accuracy(name: str, settings: dict[str, Any], manifest: Path, seed: int) -> float:
    """Return the test accuracy of a training.

    Args:
        name: name of the algorithm.
        settings: settings of the experiment.
        manifest: manifest of the data store.
        seed: seed of the training.
    """
    run = Plan.of(Experiment.model_validate(settings)).run(name)
    folder = Path(f"results/{name}/{seed}")
    with contextlib.redirect_stderr(io.StringIO()):
        train_simulated(Task("defaults", name, run, seed, None, 1, manifest, folder), StopFlag())
    evaluate_model(run, manifest, folder / "model.safetensors", folder / "evaluation.json")
    accuracy: float = load_json((folder / "evaluation.json").read_text())["accuracy"]
    return accuracy


if __name__ == "__main__":
    main()
