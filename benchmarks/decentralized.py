"""Measure a round of decentralized training with all nodes in one process: `python benchmarks/decentralized.py [--quick]`.

The problem is DiNNO's study of MNIST: one convolution and two dense layers (28,440 parameters), batch 64, a cycle of
nodes. In the same run and in turns, nnlo is compared with plain PyTorch, which computes one node after another, in
float64 as in DiNNO's code and in float32. Plain PyTorch uses batches in memory: DiNNO's data path, half of its time, is
not measured. Evaluation is timed separately.
"""

import argparse
import copy
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from nnlo_lib.config import Run
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.models.zoo.coordinate_networks import conv
from nnlo_lib.train.evaluation.evaluator import Evaluator
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag, tune_malloc_and_timers
from nnlo_lib.train.task import Task, prepare_dataset
from nnlo_lib.train.trainer import Trainer

ALGORITHMS = {"dinno": 2, "dsgt": 1, "dsgd": 1}  # gradients per round
BATCH = 64
METHODS = {"round": (Trainer, "_train_epoch"), "evaluation": (Evaluator, "_validation_metrics")}
Spans = defaultdict[str, list[tuple[float, float]]]


def ours(
    manifest: Path, algorithm: str, nodes: int, validation: float | str, most_steps: int
) -> dict[str, float]:
    """Return seconds per round and per evaluation of the batched simulator.

    Args:
        manifest: manifest of the store.
        algorithm: name of the algorithm.
        nodes: number of nodes.
        validation: data.validation of the run.
        most_steps: maximum number of steps per epoch.
    """
    steps = min(most_steps, 60_000 // nodes // BATCH)
    epochs = 2 if steps > 5 else 5  # the first epoch is not counted
    settings = {
        "data": {"dataset": "mnist", "validation": validation},
        "model": {"name": "dinno_conv"},
        "train": {
            "epochs": epochs, "steps_per_epoch": steps, "batch_size": BATCH,
            "optimizer": {"name": "adam" if algorithm == "dinno" else "sgd", "lr": 0.005},
        },
        "topology": {"name": "cycle"},
        "algorithm": {"name": algorithm},
        "parallel": {"ranks": nodes, "transport": "simulated", "simulation": {"compute": "batched"}},
    }  # fmt: skip
    spans: Spans = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, Clocked(spans):
        task = Task("d", algorithm, Run.model_validate(settings), 1, None, 1, manifest, Path(folder, "run"))
        train_simulated(task, StopFlag())
    rounds = steps / ALGORITHMS[algorithm]
    return {
        name: median(list(epochs_of(spans[name], nodes))[1:]) / (rounds if name == "round" else 1)
        for name in spans
    }


class Clocked:
    """Context that records the start and end of each rank's epochs and evaluations in wall-clock time."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._originals = {what: getattr(*place) for what, place in METHODS.items()}

    def __enter__(self) -> None:
        for what, place in METHODS.items():
            setattr(*place, self._timed(what, self._originals[what]))

    def __exit__(self, *_: object) -> None:
        for what, place in METHODS.items():
            setattr(*place, self._originals[what])

    def _timed(self, what: str, method: Callable[..., object]) -> Callable[..., object]:
        def timed(*arguments: object) -> object:
            started = time.perf_counter()
            result = method(*arguments)
            # The simulator's own timings are virtual; these are wall-clock times.
            self._spans[what].append((started, time.perf_counter()))
            return result

        return timed


def epochs_of(spans: list[tuple[float, float]], nodes: int) -> Iterator[float]:
    """Yield the time from the first rank's start to the last rank's end of each epoch."""
    for first in range(0, len(spans), nodes):
        epoch = spans[first : first + nodes]
        yield max(end for _, end in epoch) - min(start for start, _ in epoch)


def plain(images: Tensor, labels: Tensor, algorithm: str, nodes: int, rounds: int) -> float:
    """Return seconds per round of a loop over nodes in plain PyTorch.

    Args:
        images: (samples, 1, 28, 28) training images; their dtype is the dtype of the computation.
        labels: (samples,) classes.
        algorithm: name of the algorithm.
        nodes: number of nodes.
        rounds: number of rounds; the first is not counted.
    """
    torch.manual_seed(0)
    base = conv((1, 28, 28), 10).to(images.dtype)
    models = [copy.deepcopy(base) for _ in range(nodes)]
    neighbors = [((i - 1) % nodes, (i + 1) % nodes) for i in range(nodes)]
    state = [{"dual": torch.zeros_like(_flat(base)), "gradient": None} for _ in range(nodes)]
    times = []
    for k in range(rounds):
        started = time.perf_counter()
        _round(algorithm, models, neighbors, state, images, labels, k)
        times.append(time.perf_counter() - started)
    return median(times[1:])


def _round(algorithm, models, neighbors, state, images, labels, k) -> None:  # type: ignore[no-untyped-def]
    thetas = [_flat(model) for model in models]
    for i, model in enumerate(models):
        if algorithm == "dinno":
            _primal(model, state[i], thetas, i, neighbors[i], images, labels, k)
            continue
        # Metropolis weights of a cycle: each node has two neighbors, so every weight is 1/3.
        mixed = (thetas[i] + thetas[neighbors[i][0]] + thetas[neighbors[i][1]]) / 3
        gradient = _gradient(model, *_batch(images, labels, i, k))
        _load(model, mixed - 0.005 * gradient)
        if algorithm == "dsgt":
            # The neighbors' trackers are left out: this loop is only timed, and its result is not used.
            previous = state[i]["gradient"]
            state[i]["dual"] = state[i]["dual"] / 3 + gradient - (0 if previous is None else previous)
            state[i]["gradient"] = gradient


def _primal(model, state, thetas, i, neighbors, images, labels, k) -> None:  # type: ignore[no-untyped-def]
    others = torch.stack([thetas[j] for j in neighbors])
    state["dual"] = state["dual"] + 0.5 * (thetas[i] - others).sum(0)
    middles = (thetas[i] + others) / 2
    # DiNNO's configurations create a new optimizer in each round (persistant_primal_opt: false).
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for step in range(2):
        batch, classes = _batch(images, labels, i, 2 * k + step)
        optimizer.zero_grad()
        theta = nn.utils.parameters_to_vector(model.parameters())
        # As in DiNNO's code, which differentiates the quadratic penalty through cdist.
        penalty = torch.cdist(theta[None], middles).square().sum()
        loss = nn.functional.cross_entropy(model(batch), classes)
        (loss + theta @ state["dual"] + 0.5 * penalty).backward()
        optimizer.step()


def _batch(images: Tensor, labels: Tensor, node: int, step: int) -> tuple[Tensor, Tensor]:
    start = (node * 997 + step * BATCH) % (len(images) - BATCH)
    return images[start : start + BATCH], labels[start : start + BATCH]


def _gradient(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    model.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    return torch.cat(
        [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    )


def _flat(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def _load(model: nn.Module, theta: Tensor) -> None:
    nn.utils.vector_to_parameters(theta, model.parameters())


def evaluate_plain(images: Tensor, labels: Tensor, nodes: int) -> float:
    """Return seconds to evaluate the model of each node on all images, in batches of 128 as in DiNNO's code.

    Args:
        images: (samples, 1, 28, 28) images.
        labels: (samples,) classes.
        nodes: number of nodes.
    """
    models = [conv((1, 28, 28), 10).to(images.dtype).eval() for _ in range(nodes)]
    started = time.perf_counter()
    with torch.no_grad():
        for model in models:
            for start in range(0, len(images), 128):
                (model(images[start : start + 128]).argmax(1) == labels[start : start + 128]).sum().item()
    return time.perf_counter() - started


def median(values: list[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def _in_memory(manifest: Path, split: str, samples: int) -> tuple[Tensor, Tensor]:
    (images,), labels = Split(DataManifest.load(manifest), split).take(np.arange(samples))
    return torch.from_numpy(images).double() / 255, torch.from_numpy(labels)


def main() -> None:
    """Measure each configuration and print a Markdown table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default="../shared/data/mnist", help="folder of the four MNIST files")
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100, 500])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument(
        "--steps", type=int, default=40, help="maximum number of steps per epoch; default: %(default)s"
    )
    parser.add_argument("--quick", action="store_true", help="three nodes, few steps, one repetition")
    options = parser.parse_args()
    if options.quick:
        options.nodes, options.threads, options.repetitions = [3], [1], 1
        options.steps = 2
    tune_malloc_and_timers()
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder, "hdf5", "manifest.json")
        prepare_dataset(
            Run.model_validate({"data": {"dataset": "mnist", "source": options.source}}).data, manifest.parent
        )
        images, labels = _in_memory(manifest, "train", 8_000)
        test, classes = _in_memory(manifest, "test", 10_000)
        print("| nodes | threads | algorithm | nnlo, s | plain float32, s | plain float64, s |")
        print("| --- | --- | --- | --- | --- | --- |")
        for nodes in options.nodes:
            for threads in options.threads:
                torch.set_num_threads(threads)
                figures: defaultdict[str, list[tuple[float, float, float]]] = defaultdict(list)
                for _ in range(options.repetitions):
                    for algorithm in ALGORITHMS:
                        rounds = max(3, min(options.steps, 100 // nodes))
                        # Evaluation does not depend on the algorithm and is measured only for the last one.
                        mine = ours(
                            manifest, algorithm, nodes, "test" if algorithm == "dsgd" else 0.0, options.steps
                        )
                        figures[f"{algorithm}, one round"].append((
                            mine["round"],
                            plain(images.float(), labels, algorithm, nodes, rounds),
                            plain(images, labels, algorithm, nodes, rounds),
                        ))  # fmt: skip
                    figures["evaluation, 10,000 images"].append((
                        mine["evaluation"],
                        # Plain evaluation takes equally long for each node: at most ten are measured, and the
                        # time is scaled.
                        evaluate_plain(test.float(), classes, min(nodes, 10)) * nodes / min(nodes, 10),
                        evaluate_plain(test, classes, min(nodes, 10)) * nodes / min(nodes, 10),
                    ))  # fmt: skip
                for what, rows in figures.items():
                    cells = " | ".join(f"{median(list(column)):.4g}" for column in zip(*rows, strict=True))
                    print(f"| {nodes} | {threads} | {what} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
