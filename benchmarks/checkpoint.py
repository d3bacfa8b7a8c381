"""Measure the cost of checkpoints of 100 million parameters: `python benchmarks/checkpoint.py [--pairs N] [--quick]`.

Overhead: the ranks train a perceptron by all-reduce with SGD and momentum, one thread each, in blocks of 30 s. Every other block
begins with a checkpoint, which a thread writes during the training. The benchmark compares the mean time per step of
consecutive blocks. Stop and resume: `nnlo run` trains a model of that size on the digits, is stopped by SIGTERM and
restarted.
"""

import argparse
import json
import math
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCK_SECONDS = 30.0
HIDDEN, BATCH = 9_900, 16  # 100 million parameters
NNLO = Path(sys.executable).with_name("nnlo")


def overhead(ranks: int, pairs: int, hidden: int, seconds: float, each: bool = False) -> dict[str, Any]:
    """Start the training ranks and return the measurements of rank 0.

    Args:
        ranks: number of ranks.
        pairs: number of pairs of blocks, one with and one without a checkpoint.
        hidden: width of the perceptron.
        seconds: duration of a block in seconds.
        each: whether each rank writes all of its tensors, as for algorithms whose ranks differ.
    """
    command = [sys.executable, "-m", "mpi4py", __file__, "--rank", "--pairs", str(pairs)]
    command += ["--hidden", str(hidden), "--seconds", str(seconds), *["--each"] * each]
    launcher = [Path(sys.executable).with_name("mpiexec"), "-n", str(ranks)]
    # UCX once failed to start on a busy virtual machine; these transports are safe there.
    environment = {"UCX_TLS": "self,sm,tcp", **os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, *command], env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def rank(pairs: int, hidden: int, seconds: float, each: bool) -> None:
    """Train as one rank; rank 0 prints the measurements as JSON.

    Args:
        pairs: number of pairs of blocks, one with and one without a checkpoint.
        hidden: width of the perceptron.
        seconds: duration of a block in seconds.
        each: whether each rank writes all of its tensors.
    """
    import torch

    from nnlo_lib.checkpoint.checkpointer import Checkpointer, CheckpointPosition
    from nnlo_lib.checkpoint.rank_file import RankState
    from nnlo_lib.comm.mpi.communicator import MPICommunicator
    from nnlo_lib.config.checkpoint import CheckpointConfig
    from nnlo_lib.state.training_records import RunLog

    torch.set_num_threads(1)
    comm = MPICommunicator(timeout=300)
    step, state = _training(hidden, comm)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        # Each rank has a temporary folder, but all use that of rank 0.
        folder = Path(comm.gather(name)[0])
        log = RunLog(folder, comm.rank == 0)
        checkpoints = Checkpointer(folder, "", "", CheckpointConfig(), comm, log, 300)

        def save() -> None:
            tensors = state()
            checkpoints.save(
                RankState(tensors, {}, () if each else tuple(tensors)), CheckpointPosition(0, 0, {}), {}
            )

        for _ in range(2):  # warm up: the first steps and checkpoints allocate memory
            per_step = _block(step, 4, save)
        # All ranks make the same steps.
        steps = comm.gather(math.ceil(seconds / per_step))[0]
        blocks = [(_block(step, steps, save), _block(step, steps)) for _ in range(pairs)]
        checkpoints.wait_until_saved()
        size = sum(path.stat().st_size for path in max(folder.glob("0*")).iterdir())
        # Rank 0 must not remove the folder before the other ranks have read it.
        comm.barrier()
    ratios = [saving / plain - 1 for saving, plain in blocks]
    means = statistics.mean(each[0] for each in blocks), statistics.mean(each[1] for each in blocks)
    if comm.rank == 0:
        print(json.dumps({"overheads": ratios, "step": means[1], "mean": means[0] / means[1] - 1,
                          "took": checkpoints.last_save_seconds, "bytes": size}))  # fmt: skip


def _training(hidden: int, comm: Any) -> tuple[Callable[[], None], Callable[[], dict[str, Any]]]:
    """Return the step, whose gradient all ranks share, and the state, which all have."""
    import torch

    from nnlo_lib.train.replica.replica import Replica

    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, hidden), torch.nn.ReLU()]
    replica = Replica(torch.nn.Sequential(*layers, torch.nn.Linear(hidden, 10)))
    replica.set_optimizer(torch.optim.SGD, lr=1e-4, momentum=0.9)
    inputs, labels = torch.randn(BATCH, 64), torch.randint(10, (BATCH,))

    def step() -> None:
        replica.backward(torch.nn.functional.cross_entropy(replica.module(inputs), labels))
        comm.allreduce(replica.grad)
        replica.step()

    # The first step allocates the momentum, which belongs to the state.
    step()
    return step, replica.state


def _block(step: Callable[[], None], steps: int, begin: Callable[[], None] = lambda: None) -> float:
    """Return the mean time of a step in seconds, in a block that starts with `begin`."""
    started = time.perf_counter()
    begin()
    for _ in range(steps):
        step()
    return (time.perf_counter() - started) / steps


def stop_and_resume(ranks: int, hidden: int, resumes: int) -> dict[str, float]:
    """Time `nnlo run` from SIGTERM to its exit, and from its restart to the first new step.

    Args:
        ranks: number of ranks.
        hidden: width of the perceptron.
        resumes: number of restarts; the minimum of their times is returned.

    Returns:
        Times in seconds, and the size of a checkpoint in bytes.
    """
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        model = {"name": "simplemlp", "args": {"hidden": hidden, "layers": 2}}
        train = {"epochs": 1000, "batch_size": BATCH}
        (folder / "t.yaml").write_text(
            json.dumps({"name": "t", "model": model, "train": train, "parallel": {"ranks": ranks}})
        )
        state = folder / "results/t/allreduce/seed-0/state"
        _start_and_stop(folder, state)  # the first start converts the data and is not counted
        resumed = [_start_and_stop(folder, state) for _ in range(resumes)]
        newest = max((state / "checkpoints").glob("0*"))
        size = json.loads((newest / "manifest.json").read_text())["bytes"]
    return {
        # Other work of the machine can only add time, so the minimum is closest to the cost.
        "restart to first step": min(start for start, _ in resumed),
        "SIGTERM to exit": min(stop for _, stop in resumed),
        "bytes": size,
    }


def _start_and_stop(folder: Path, state: Path) -> tuple[float, float]:
    """Return the seconds from the start to the first step, and from SIGTERM to the exit."""
    # The step marker of the previous attempt would end the wait below at once.
    (state / "step").unlink(missing_ok=True)
    started = time.perf_counter()
    process = subprocess.Popen([NNLO, "run", "t.yaml"], cwd=folder, stderr=subprocess.DEVNULL)
    while not _stepped(state / "step"):
        time.sleep(0.005)
    running = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    process.wait()
    return running - started, time.perf_counter() - running


def _stepped(path: Path) -> bool:
    try:
        begun, reached = struct.unpack("<qq", path.read_bytes())
    except (OSError, struct.error):
        return False
    return bool(reached > begun)


def main() -> None:
    """Measure the overhead and the times of stop and resume, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument(
        "--hidden", type=int, default=HIDDEN, help="width of the perceptron; default: %(default)s"
    )
    parser.add_argument(
        "--seconds", type=float, default=BLOCK_SECONDS, help="duration of a block; default: %(default)s"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one rank, one small model, one pair of short blocks"
    )
    parser.add_argument("--each", action="store_true", help="each rank writes all of its tensors")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options.pairs, options.hidden, options.seconds, options.each)
        return
    if options.quick:
        options.pairs, options.hidden, options.seconds = 1, 128, 0.3
    rank_counts, resumes = ((1,), 1) if options.quick else ((1, 2), 2)
    for ranks in rank_counts:
        found = overhead(ranks, options.pairs, options.hidden, options.seconds, options.each)
        each = ", ".join(f"{100 * ratio:+.2f}" for ratio in found["overheads"])
        print(
            f"{ranks} ranks: {found['step']:.3f} s per step; overhead of a checkpoint every {options.seconds:g} s "
            f"{100 * found['mean']:+.2f} % (per pair of blocks {each}); {found['bytes'] / 1e6:.0f} MB, written in "
            f"{found['took']:.1f} s", flush=True
        )  # fmt: skip
    for hidden in sorted({128, options.hidden}):
        for ranks in rank_counts:
            times = "; ".join(
                f"{name} {value:,.2f}" for name, value in stop_and_resume(ranks, hidden, resumes).items()
            )
            print(f"hidden {hidden}, {ranks} ranks: {times}", flush=True)


if __name__ == "__main__":
    main()
