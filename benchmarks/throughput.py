"""Compare the training throughput of nnlo with PyTorch and PyTorch DDP: `python benchmarks/throughput.py [--quick]`.

The model is simplecnn on MNIST, with batch 64 per rank, one thread per rank and SGD with momentum. The time of the whole
training counts, without start-up, loading and validation. The peers run with PyTorch's defaults and tuned (peers.py).
The configurations run in turns, and the results are medians over the repetitions. A configuration of one process is
compared with one process of PyTorch, each other configuration with two ranks of DDP. Two independent trainings at once are
the limit of the machine for two ranks.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nnlo_lib.data.catalog import find_dataset
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.store.convert import Conversion, convert
from nnlo_lib.data.store_settings import StoreSettings

HERE, BIN = Path(__file__).parent, Path(sys.executable).parent
PLAIN, DDP = "PyTorch, 1 process", "PyTorch DDP with gloo, 2 ranks"
QUICK = (f"{PLAIN}, defaults", f"{PLAIN}, tuned", "nnlo, 1 rank")
# glibc then keeps freed memory, as nnlo's ranks do; Python cannot change this after the start.
KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 30)}
Figures = dict[str, float]


def peer(manifest: Path, epochs: int, ranks: int, *options: str) -> Figures:
    """Run a peer of peers.py and return its results.

    Args:
        manifest: manifest of the store.
        epochs: number of epochs.
        ranks: number of ranks; more than one rank is started by torchrun.
        options: further options of peers.py.
    """
    start = [sys.executable] if ranks == 1 else [BIN / "torchrun", f"--nproc-per-node={ranks}"]
    command = [*start, HERE / "peers.py", manifest, "--epochs", str(epochs), *options]
    environment = _one_thread() | (KEPT_MEMORY if "--tuned" in options else {})
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return dict(json.loads(output.splitlines()[-1]))


def ours(manifest: Path, run: dict[str, object]) -> Figures:
    """Train the run with scripts/train.py and return its speed and validation accuracy."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.json")
        config.write_text(json.dumps({"experiment": "benchmark", "name": "run", "folds": 1, "run": run}))
        command = [
            sys.executable, HERE.parent / "scripts/train.py", "--config", config, "--manifest", manifest,
            "--folder", folder, "--seed", "1",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        summary = json.loads(Path(folder, "summary.json").read_text())
    return {
        "samples_per_second": summary["samples_per_second"],
        "val_accuracy": summary["final"]["val_accuracy"],
    }


def twice(measure: Callable[[], Figures]) -> Figures:
    """Return the sums of two measurements at once, which exchange nothing: the limit of two ranks on this machine."""
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: measure(), range(2)))
    return both[0] | {"samples_per_second": sum(each["samples_per_second"] for each in both)}


def _run(options: argparse.Namespace, ranks: int, algorithm: str) -> dict[str, object]:
    optimizer = {"name": "sgd", "lr": 0.02, "momentum": 0.9}
    return {
        "data": {"dataset": "mnist"},
        "model": {"name": "simplecnn"},
        "train": {
            "epochs": options.epochs, "batch_size": 64, "optimizer": optimizer,
            **({"steps_per_epoch": options.steps} if options.steps else {}),
        },
        "algorithm": {"name": algorithm},
        "parallel": {"ranks": ranks},
    }  # fmt: skip


def _one_thread() -> dict[str, str]:
    import os

    return {**os.environ, "OMP_NUM_THREADS": "1"}


def main() -> None:
    """Measure the configurations in turns and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", default="../shared/data/mnist", help="folder or URL of the MNIST files")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="configurations to measure")
    parser.add_argument("--steps", type=int, help="steps per epoch; default: all")
    parser.add_argument(
        "--quick", action="store_true", help="two steps, three configurations, one repetition"
    )
    options = parser.parse_args()
    if options.quick:
        options.epochs, options.repeat, options.steps, options.only = 1, 1, 2, QUICK
    folder = Path(tempfile.mkdtemp())
    try:
        manifest = _prepare(folder, options.source)
        _report(_measure(manifest, options))
    finally:
        shutil.rmtree(folder)


def _prepare(folder: Path, source: str) -> Path:
    fetch(find_dataset("mnist"), folder / "raw", source)
    convert(Conversion(StoreSettings("mnist"), folder / "raw", folder / "hdf5"))
    return folder / "hdf5" / "manifest.json"


def _measure(manifest: Path, options: argparse.Namespace) -> dict[str, list[Figures]]:
    steps = ("--steps", str(options.steps)) if options.steps else ()
    configurations: dict[str, Callable[[], Figures]] = {
        f"{PLAIN}, defaults": lambda: peer(manifest, options.epochs, 1, *steps),
        f"{PLAIN}, tuned": lambda: peer(manifest, options.epochs, 1, *steps, "--tuned"),
        "nnlo, 1 rank": lambda: ours(manifest, _run(options, 1, "allreduce")),
        f"{DDP}, defaults": lambda: peer(manifest, options.epochs, 2, *steps),
        f"{DDP}, tuned": lambda: peer(manifest, options.epochs, 2, *steps, "--tuned"),
        "nnlo allreduce, 2 ranks": lambda: ours(manifest, _run(options, 2, "allreduce")),
        "PyTorch, 2 independent processes, tuned": lambda: twice(
            lambda: peer(manifest, options.epochs, 1, *steps, "--tuned")
        ),
        "nnlo, 2 independent trainings": lambda: twice(lambda: ours(manifest, _run(options, 1, "allreduce"))),
        "nnlo downpour, 1 server + 2 workers": lambda: ours(manifest, _run(options, 3, "downpour")),
    }
    chosen = {name: run for name, run in configurations.items() if not options.only or name in options.only}
    results: dict[str, list[Figures]] = {name: [] for name in chosen}
    for _ in range(options.repeat):
        for name, run in chosen.items():
            results[name].append(run())
            print(f"{name:<42}{results[name][-1]['samples_per_second']:>9,.0f} samples/s", flush=True)
    return results


def _report(results: dict[str, list[Figures]]) -> None:
    speed = {
        name: statistics.median(run["samples_per_second"] for run in runs) for name, runs in results.items()
    }
    print(f"\n{'median of runs':<42}{'samples/s':>10}{'vs defaults':>13}{'vs tuned':>10}{'val accuracy':>14}")
    for name, runs in results.items():
        accuracy = statistics.median(run["val_accuracy"] for run in runs)
        other = PLAIN if "1 rank" in name or PLAIN in name else DDP
        ratios = [_ratio(speed[name], speed.get(f"{other}, {kind}")) for kind in ("defaults", "tuned")]
        print(f"{name:<42}{speed[name]:>10,.0f}{ratios[0]:>13}{ratios[1]:>10}{accuracy:>14.4f}")


def _ratio(speed: float, other: float | None) -> str:
    return f"{speed / other:.2f}" if other else "-"


if __name__ == "__main__":
    main()
