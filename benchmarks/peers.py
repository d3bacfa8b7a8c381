"""Peers of throughput.py, models.py and gpu.py: a plain PyTorch loop, and the same in DistributedDataParallel with gloo.

Both peers are typical user code: float32 images in memory, batches from one permutation per epoch and no metrics in the
loop. They use PyTorch's defaults or, with `--tuned`, what nnlo's ranks use where PyTorch has it: images and weights
channels last, a fused optimizer step, freed memory that malloc keeps (throughput.py sets its variables before the
start), and in DDP gradients as views of the buckets and a static graph. On a GPU, all tuned images are there from the
start. Neither peer uses torch.compile unless `--compile` says how.
"""

import argparse
import json
import os
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from nnlo_lib.data.partition import split_train_validation
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.models.factory import build_model


def load(manifest: Path, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training images and labels, then validation images and labels."""
    data = DataManifest.load(manifest)
    split = Split(data, "train")
    tensors = []
    for indices in split_train_validation(len(split), split.labels, 0.1, 1, None, seed):
        (features,), labels = split.take(indices)
        tensors += [torch.from_numpy(features).float() * data.scale, torch.from_numpy(labels)]
    return tuple(tensors)  # type: ignore[return-value]


def train(
    model: nn.Module, data: tuple[Tensor, ...], options: argparse.Namespace, rank: int, ranks: int
) -> float:
    """Train and return the seconds; each rank trains on its slice of every global batch.

    Args:
        model: network to train.
        data: training images and labels, further tensors are ignored.
        options: options of the command.
        rank: index of this rank.
        ranks: number of ranks.
    """
    images, labels, *_ = data
    cast = torch.autocast(options.device, torch.bfloat16) if options.bf16 else nullcontext()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, fused=options.tuned or None)
    seconds = 0.0
    for epoch in range(options.epochs):
        # Seeded by the epoch, so that all ranks draw the same order and take disjoint slices of it.
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch)).to(images.device)
        _wait(options.device)
        started = time.perf_counter()
        for batch in order.split(options.batch * ranks)[: options.steps]:
            mine = batch.tensor_split(ranks)[rank]
            optimizer.zero_grad()
            with cast:
                loss = cross_entropy(model(images[mine].to(options.device)), labels[mine].to(options.device))
            loss.backward()
            optimizer.step()
        _wait(options.device)
        seconds += time.perf_counter() - started
    return seconds


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor, device: str) -> float:
    """Return the fraction of images that are classified correctly."""
    model.eval()
    guesses = torch.cat([model(part.to(device)).argmax(1).cpu() for part in images.split(1000)])
    return float((guesses == labels.cpu()).float().mean())


def main() -> None:
    """Train as a single process or as a rank of torchrun; rank 0 prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--model", default="simplecnn")
    parser.add_argument("--steps", type=int, help="steps per epoch; default: all")
    parser.add_argument("--tuned", action="store_true", help="use the faster options of PyTorch")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--bf16", action="store_true", help="mixed precision")
    parser.add_argument("--compile", choices=("default", "reduce-overhead"), help="mode of torch.compile")
    parser.add_argument(
        "--deterministic", action="store_true", help="kernels whose results have the same bits"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    data = load(options.manifest, seed=1)
    model = build_model(options.model, {}, tuple(data[0].shape[1:]), int(data[1].max()) + 1, seed=1)
    model = model.to(options.device)
    if options.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
    if options.tuned:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        data = (data[0].contiguous(memory_format=torch.channels_last), *data[1:])
        data = tuple(tensor.to(options.device) for tensor in data)
    if options.compile:
        model = torch.compile(model, mode=options.compile)  # type: ignore[assignment]
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(
            model, gradient_as_bucket_view=options.tuned, static_graph=options.tuned
        )
    if options.device == "cuda":  # the first pass chooses kernels, or compiles
        options.epochs, epochs = 1, options.epochs
        train(model, data, options, rank, ranks)
        options.epochs = epochs
    seconds = train(model, data, options, rank, ranks)
    if rank == 0:
        samples = min(len(data[0]), (options.steps or len(data[0])) * options.batch * ranks)
        speed = options.epochs * samples / seconds
        print(
            json.dumps(
                {"samples_per_second": speed, "val_accuracy": accuracy(model, *data[2:], options.device)}
            )
        )


if __name__ == "__main__":
    main()
