"""Compare nnlo's all-reduce with gloo, with and without overlap of communication and backward pass.

`python benchmarks/communication.py [--quick]`. Each rank is a process with one thread, an MPI communicator of nnlo and a
process group of torch.distributed. The methods run in turns; the time of the slowest rank counts, and the result is the
median over the turns. Methods: `reproducible` sums in rank order, `fastest` is MPI_Allreduce with nnlo's polling, and
`gloo` is torch.distributed.all_reduce. A step consists of forward pass, backward pass, all-reduce and SGD of a
perceptron of 10 MB; `DDP` is DistributedDataParallel with gloo.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 40_000_000)
BUCKETS = (0.0, 0.5, 2.0, 5.0)  # MB
BATCH = 64
Seconds = dict[str, float]
Way = Callable[[], None]


def in_turns(comm: Any, ways: dict[str, Way], turns: int, calls: int) -> Seconds:
    """Return the median time of a call of each method in seconds.

    Args:
        comm: communicator of all ranks.
        ways: methods by name.
        turns: number of measured turns, after one turn for warm-up.
        calls: calls of each method per turn.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, way in ways.items():
            comm.barrier()
            started = time.perf_counter()
            for _ in range(calls):
                way()
            slowest = max(comm.gather((time.perf_counter() - started) / calls))
            if turn:  # the first turn is for warm-up
                times[name].append(slowest)
    return {name: statistics.median(each) for name, each in times.items()}


def exchanges(comm: Any, fastest: Any, turns: int, sizes: list[int]) -> dict[str, Seconds]:
    """Time the all-reduce of float32 vectors.

    Args:
        comm: communicator that sums in rank order.
        fastest: communicator that calls MPI_Allreduce.
        turns: number of measured turns.
        sizes: sizes of the vectors in bytes.

    Returns:
        Median seconds by size and method.
    """
    import torch
    import torch.distributed as dist

    results = {}
    for size in sizes:
        vector = torch.zeros(size // 4)
        ways: dict[str, Way] = {
            # The default argument binds the vector of this iteration.
            "reproducible": lambda vector=vector: comm.allreduce(vector),
            "fastest": lambda vector=vector: fastest.allreduce(vector),
            "gloo": lambda vector=vector: dist.all_reduce(vector),
        }
        # Small vectors need several calls, because a single one is short against the timer and the barrier.
        results[_bytes(size)] = in_turns(comm, ways, turns, max(1, min(20, 2_000_000 // size)))
    return results


def steps(comm: Any, turns: int) -> Seconds:
    """Return the median time of training steps with several bucket sizes and with DistributedDataParallel."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from nnlo_lib.algorithms.allreduce import AllReduce
    from nnlo_lib.algorithms.base import SampleShare
    from nnlo_lib.train.replica.replica import Replica

    inputs, labels = torch.randn(BATCH, 784), torch.randint(10, (BATCH,))
    loss_of, share = torch.nn.CrossEntropyLoss(), SampleShare(BATCH, BATCH * comm.size)

    def ours(bucket: float) -> Way:
        replica, algorithm = Replica(_perceptron()), AllReduce(comm, int(bucket * 1e6))
        replica.set_optimizer(torch.optim.SGD, lr=0.01)

        def step() -> None:
            algorithm.on_batch(replica, share)
            replica.backward(loss_of(replica.module(inputs), labels))
            algorithm.on_gradient(replica, share)
            replica.step()

        return step

    peer = DistributedDataParallel(_perceptron())
    optimizer = torch.optim.SGD(peer.parameters(), lr=0.01)

    def ddp() -> None:
        optimizer.zero_grad()
        loss_of(peer(inputs), labels).backward()
        optimizer.step()

    alone = Replica(_perceptron())
    compute: Way = lambda: alone.backward(loss_of(alone.forward(inputs), labels))  # noqa: E731
    ways = {"compute alone": compute, "DDP": ddp}
    ways |= {f"{bucket:g} MB" if bucket else "one message": ours(bucket) for bucket in BUCKETS}
    return in_turns(comm, ways, turns, 3)


def _perceptron() -> Any:
    import torch

    widths = (784, 1024, 1024, 512, 256, 10)
    layers = [(torch.nn.Linear(i, o), torch.nn.ReLU()) for i, o in pairwise(widths)]
    return torch.nn.Sequential(*(layer for pair in layers for layer in pair))


def rank(turns: int, sizes: list[int], rendezvous: str) -> None:
    """Measure as one rank; rank 0 prints the measurements as JSON.

    Args:
        turns: number of measured turns.
        sizes: sizes of the vectors in bytes.
        rendezvous: path of the file by which torch.distributed connects the ranks.
    """
    import torch
    import torch.distributed as dist

    from nnlo_lib.comm.mpi.communicator import MPICommunicator

    torch.set_num_threads(1)
    comm, fastest = MPICommunicator(timeout=60), MPICommunicator(reduction="fastest", timeout=60)
    # A rendezvous by file needs no free port.
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=comm.rank, world_size=comm.size)
    results = {"exchanges": exchanges(comm, fastest, turns, sizes), "steps": steps(comm, turns)}
    if comm.rank == 0:
        print(json.dumps(results))
    dist.destroy_process_group()


def measure(ranks: int, turns: int, sizes: list[int]) -> dict[str, Any]:
    """Start the ranks and return the measurements of rank 0.

    Args:
        ranks: number of ranks.
        turns: number of measured turns.
        sizes: sizes of the vectors in bytes.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [
            Path(sys.executable).with_name("mpiexec"), "-n", str(ranks), sys.executable, "-m", "mpi4py", __file__,
            "--rank", f"{folder}/rendezvous", "--turns", str(turns), "--sizes", *map(str, sizes),
        ]  # fmt: skip
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        # UCX once failed to start on a busy virtual machine; these transports are safe there.
        environment.setdefault("UCX_TLS", "self,sm,tcp")
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def report(results: dict[int, dict[str, Any]]) -> None:
    """Print the results by number of ranks as Markdown tables."""
    print(
        f"{os.cpu_count()} cores\n\n| ranks | bytes | reproducible ms | fastest ms | gloo ms | gloo / reproducible |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for ranks, result in results.items():
        for size, seconds in result["exchanges"].items():
            cells = " | ".join(f"{1000 * seconds[way]:.3g}" for way in ("reproducible", "fastest", "gloo"))
            print(f"| {ranks} | {size} | {cells} | {seconds['gloo'] / seconds['reproducible']:.2f} |")
    names = list(next(iter(results.values()))["steps"])
    print(f"\n| ms per step | {' | '.join(names)} |\n| ---: {'| ---: ' * len(names)}|")
    for ranks, result in results.items():
        cells = " | ".join(f"{1000 * result['steps'][name]:.1f}" for name in names)
        print(f"| {ranks} ranks | {cells} |")


def _bytes(size: int) -> str:
    return f"{size // 1_000_000} MB" if size >= 1_000_000 else f"{size // 1000} kB"


def main() -> None:
    """Measure with each number of ranks; with --rank, run as one of the ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer turns, two ranks, small vectors")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--turns", type=int, default=11)
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=SIZES,
        help="sizes of the vectors in bytes; default: %(default)s",
    )
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.ranks, options.turns, options.sizes = [2], 1, SIZES[:4]
    if options.rank:
        rank(options.turns, options.sizes, options.rank)
    else:
        report({ranks: measure(ranks, options.turns, options.sizes) for ranks in options.ranks})


if __name__ == "__main__":
    main()
