"""Compare images/s of nnlo's models with plain PyTorch and DDP in one run: `python benchmarks/models.py [--quick]`.

The models are simplecnn on MNIST and vgg11 on CIFAR-10, with one thread per rank and SGD with momentum. Start-up, loading
and validation are excluded. Each peer is measured with PyTorch's defaults and tuned (peers.py).
"""

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from throughput import Figures, ours, peer

from nnlo_lib.data.catalog import DatasetSpec, find_dataset
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.store.convert import Conversion, convert
from nnlo_lib.data.store_settings import StoreSettings

# data set, batch size, steps per epoch
CASES = {"simplecnn": ("mnist", 64, 400), "vgg11": ("cifar10", 64, 20)}
QUICK = ("plain torch", "DDP gloo", "nnlo, 2 ranks")
Measure = Callable[[], Figures]


def configurations(manifest: Path, model: str, steps: int, epochs: int) -> dict[str, Measure]:
    """Return the measurements of a model by name, peers first.

    Args:
        manifest: manifest of the store.
        model: name of the model in CASES.
        steps: steps per epoch.
        epochs: number of epochs.
    """
    _, batch, _ = CASES[model]
    options = ("--model", model, "--batch", str(batch), "--steps", str(steps))
    peers = {"plain torch": 1, "DDP gloo": 2}
    found: dict[str, Measure] = {
        f"{name}{', tuned' * bool(tuned)}": lambda ranks=ranks, tuned=tuned: peer(  # type: ignore[misc]
            manifest, epochs, ranks, *options, *tuned
        )
        for name, ranks in peers.items()
        for tuned in ((), ("--tuned",))
    }
    for ranks in (1, 2):
        found[f"nnlo, {ranks} rank{'s' * (ranks > 1)}"] = lambda ranks=ranks: ours(  # type: ignore[misc]
            manifest, _run(model, steps, epochs, ranks)
        )
    return found


def _run(model: str, steps: int, epochs: int, ranks: int) -> dict[str, object]:
    dataset, batch, _ = CASES[model]
    optimizer = {"name": "sgd", "lr": 0.02, "momentum": 0.9}
    return {
        "data": {"dataset": dataset},
        "model": {"name": model},
        "train": {"epochs": epochs, "batch_size": batch, "steps_per_epoch": steps, "optimizer": optimizer},
        "algorithm": {"name": "allreduce"},
        "parallel": {"ranks": ranks},
    }


def main() -> None:
    """Measure the configurations of each model in turns and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", default="../shared/data", help="folder with mnist/ and cifar10/")
    parser.add_argument("--models", nargs="*", default=list(CASES))
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two steps of the smallest model, three configurations, one repetition",
    )
    options = parser.parse_args()
    if options.quick:
        options.models, options.epochs, options.repeat = ["simplecnn"], 1, 1
    for model in options.models:
        dataset, _, steps = CASES[model]
        steps = 2 if options.quick else steps
        folder = Path(tempfile.mkdtemp())
        try:
            manifest = _prepared(dataset, folder, f"{options.sources}/{dataset}")
            measures = configurations(manifest, model, steps, options.epochs)
            if options.quick:
                measures = {name: measures[name] for name in QUICK}
            _compare(model, measures, options.repeat)
        finally:
            shutil.rmtree(folder)


def _prepared(dataset: str, folder: Path, source: str) -> Path:
    known = find_dataset(dataset)
    if dataset == "cifar10":  # the archive holds only a part of CIFAR-10, which is enough for a few steps
        known, source = DatasetSpec(name="cifar10", reader="cifar"), f"{source}/cifar-10-binary.tar.gz"
    fetch(known, folder / "raw", source)
    convert(Conversion(StoreSettings(dataset), folder / "raw", folder / "hdf5"))
    return folder / "hdf5" / "manifest.json"


def _compare(model: str, measures: dict[str, Measure], repeat: int) -> None:
    speeds: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(repeat):
        for name, measure in measures.items():
            speeds[name].append(measure()["samples_per_second"])
            print(f"{model:<11}{name:<30}{speeds[name][-1]:>10,.1f} images/s", flush=True)
    medians = {name: statistics.median(runs) for name, runs in speeds.items()}
    print(f"\n{model:<11}{'median of ' + str(repeat):<30}{'images/s':>10}{'vs plain':>10}{'vs DDP':>8}")
    for name, median in medians.items():
        ratios = [f"{median / medians[other]:.2f}" for other in ("plain torch", "DDP gloo")]
        print(f"{'':<11}{name:<30}{median:>10,.1f}{ratios[0]:>10}{ratios[1]:>8}")
    print()


if __name__ == "__main__":
    main()
