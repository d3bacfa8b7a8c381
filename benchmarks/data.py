"""Measure conversion, and compare loading with torch's DataLoader on the same store: `python benchmarks/data.py [--quick]`.

Each measurement is a separate process. The loaders run in turns, and the result is the median over the repetitions. All
loaders return shuffled batches of 64 as torch tensors of bytes and labels. Memory is measured at the end of the process:
anonymous memory, and peak resident memory, which includes mapped pages of shards that the kernel can reclaim.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from nnlo_lib.data.catalog import find_dataset
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.loading.loader import BatchLoader
from nnlo_lib.data.loading.sampler import SamplingPlan
from nnlo_lib.data.readers.base import ConversionUnit, DatasetContents, SampleBlock
from nnlo_lib.data.store.convert import Conversion, convert
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.data.store_settings import StoreSettings

BATCH = 64
EPOCHS = 5  # measured epochs after one for warm-up; a single epoch may be an outlier
Figures = dict[str, float]


class Samples:
    """Map-style data set over the mapped shards, as a PyTorch user writes it."""

    def __init__(self, split: Split) -> None:
        import torch

        self._split, self._tensor = split, torch.from_numpy
        self._labels = torch.from_numpy(split.labels)

    def __len__(self) -> int:
        return len(self._split)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        shard = int(np.searchsorted(self._split._ends, index, side="right"))
        features = self._split._inputs[0][shard][index - self._split._starts[shard]]
        return self._tensor(features.copy()), self._labels[index]


class BatchedSamples(Samples):
    """Variant of Samples that returns a whole batch per call."""

    def __getitems__(self, indices: list[int]) -> tuple[Any, Any]:
        (features,), labels = self._split.take(np.array(indices))
        return self._tensor(features), self._tensor(labels)


Epoch = Callable[[int], Iterable[tuple[Any, Any]]]


def _ours(split: Split) -> Epoch:
    import torch

    loader = BatchLoader(split, SamplingPlan([np.arange(len(split))], 1, BATCH, 1).sampler(0))
    return lambda epoch: (
        (torch.from_numpy(batch.inputs[0]), torch.from_numpy(batch.labels)) for batch in loader.epoch(epoch)
    )


def _torchs(split: Split, workers: int) -> Epoch:
    from torch.utils.data import DataLoader

    loader = DataLoader(
        Samples(split), BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    return lambda epoch: loader


def _torchs_batched(split: Split) -> Epoch:
    from torch.utils.data import DataLoader

    loader = DataLoader(BatchedSamples(split), BATCH, shuffle=True, collate_fn=lambda whole: whole)
    return lambda epoch: loader


LOADERS: dict[str, Callable[[Split], Epoch]] = {
    "nnlo": _ours,
    "DataLoader, 0 workers": lambda split: _torchs(split, 0),
    "DataLoader, 2 workers": lambda split: _torchs(split, 2),
    "DataLoader, 0 workers, our take()": _torchs_batched,
}
QUICK = ("nnlo", "DataLoader, 2 workers")


def load(manifest: Path, loader: str, epochs: int) -> Figures:
    """Read one epoch for warm-up, then measure the next epochs.

    Args:
        manifest: manifest of the store.
        loader: name of the loader in LOADERS.
        epochs: number of measured epochs.

    Returns:
        Median samples per second, and memory in MB.
    """
    import torch

    torch.set_num_threads(1)
    split = Split(DataManifest.load(manifest), "train")
    epoch, speeds = LOADERS[loader](split), []
    for number in range(1 + epochs):
        started, samples, total = time.perf_counter(), 0, 0
        for features, labels in epoch(number):
            samples += len(labels)
            total += int(features[0, 0, 0, 0])  # reads a byte of each batch, so that mapped pages are loaded
        speeds.append(samples / (time.perf_counter() - started))
    return {"samples_per_second": statistics.median(speeds[1:]), **_memory()}


def conversion(source: Path, target: Path) -> Figures:
    """Convert TFRecords in one process; return the speed, and memory in MB."""
    converting = Conversion(StoreSettings("imagenet", format="npz", shard_size=1), source, target)
    started = time.perf_counter()
    manifest = convert(converting)
    seconds = time.perf_counter() - started
    images = sum(part.samples for part in manifest.splits.values())
    read = sum(unit.origin.stat().st_size for unit in converting.contents.units)
    return {"images_per_second": images / seconds, "mb_per_second": read / seconds / 1e6, **_memory()}


def _memory() -> Figures:
    """Return the peak resident memory and the present anonymous memory of this process, in MB."""
    # VmHWM is the peak since the process started, so each measurement runs in its own process.
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        name: int(lines[key].split()[0]) / 1000 for name, key in (("peak", "VmHWM"), ("anonymous", "RssAnon"))
    }


def _mnist(folder: Path, source: str) -> Path:
    fetch(find_dataset("mnist"), folder / "raw", source)
    convert(Conversion(StoreSettings("mnist"), folder / "raw", folder / "mnist"))
    return folder / "mnist"


def _imagenet_sized(folder: Path, images: int) -> Path:
    """Write a store of random images (3, 227, 227) in shards of 1,024; return its folder."""
    import nnlo_lib.data.source_identity as module

    def block(seed: int) -> SampleBlock:
        pixels = np.random.default_rng(seed).integers(0, 256, (1024, 3, 227, 227), dtype=np.uint8)
        return SampleBlock((pixels,), np.arange(1024) % 1000)

    count = images // 1024
    units = [
        ConversionUnit("train", f"train-{n:05d}-of-{count:05d}", folder, lambda seed=n: block(seed))
        for n in range(count)
    ]
    # The conversion reads through module.read: generated blocks replace the files of a reader.
    original, module.read = module.read, lambda *_: DatasetContents(tuple(units))
    sized = StoreSettings("imagenet-sized", reader={"name": "folder"}, shard_size=1024)
    convert(Conversion(sized, folder, folder / "imagenet"))
    module.read = original
    return folder / "imagenet"


def _measured(kind: str, first: str, second: str, epochs: str = "0") -> Figures:
    """Run one measurement in this process.

    Args:
        kind: load or convert.
        first: manifest, or folder of TFRecords.
        second: name of the loader, or folder of the new store.
        epochs: number of measured epochs.
    """
    return load(Path(first), second, int(epochs)) if kind == "load" else conversion(Path(first), Path(second))


def _child(*arguments: str) -> Figures:
    command = [sys.executable, __file__, "--child", *arguments]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def _compare(name: str, manifest: Path, repeat: int, epochs: int, loaders: Iterable[str]) -> None:
    runs: dict[str, list[Figures]] = {loader: [] for loader in loaders}
    for _ in range(repeat):
        for loader in loaders:
            runs[loader].append(_child("load", str(manifest), loader, str(epochs)))
    speed = {
        loader: statistics.median(run["samples_per_second"] for run in each) for loader, each in runs.items()
    }
    print(f"\n{name:<40}{'samples/s':>12}{'nnlo/this':>9}{'peak MB':>10}{'anonymous MB':>14}")
    for loader, each in runs.items():
        peak, own_memory = (max(run[key] for run in each) for key in ("peak", "anonymous"))
        print(
            f"{loader:<40}{speed[loader]:>12,.0f}{speed['nnlo'] / speed[loader]:>8.1f}x{peak:>10,.0f}{own_memory:>14,.0f}"
        )


def main() -> None:
    """Measure loading and conversion; with --child, run a single measurement in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--source", default="../shared/data", help="folder with mnist/ and imagenet_tfrecord/"
    )
    parser.add_argument(
        "--images", type=int, default=8192, help="number of random images of 155 kB, ImageNet's size"
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--epochs", type=int, default=EPOCHS, help="number of measured epochs; default: %(default)s"
    )
    parser.add_argument("--quick", action="store_true", help="one small store, two loaders, one epoch, once")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(_measured(*options.child)))
        return
    if options.quick:
        options.images, options.repeat, options.epochs = 1024, 1, 1
    folder = Path(tempfile.mkdtemp())
    try:
        turns = options.repeat, options.epochs, QUICK if options.quick else LOADERS
        if not options.quick:
            _compare("MNIST, 60,000 samples of 784 bytes", _mnist(folder, f"{options.source}/mnist"), *turns)
        large = _imagenet_sized(folder, options.images)
        _compare(f"{options.images:,} samples of 154,587 bytes", large, *turns)
        runs = [
            _child("convert", f"{options.source}/imagenet_tfrecord", str(folder / f"npz{number}"))
            for number in range(options.repeat)
        ]
        median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        print(
            f"\nTFRecord to NPZ, one process: {median['images_per_second']:.0f} images/s, {median['mb_per_second']:.1f} MB/s "
            f"read, peak {median['peak']:.0f} MB"
        )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
