"""Stand-in for the trainer: `trainer.py FOLDER STEPS OUTPUT` counts steps of 0.1 s and survives preemption.

A signal only sets a flag. The ranks agree on it at the end of a step, save, and wait until the scheduler ends them.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
received: list[int] = []


def main(folder: Path, steps: int, output: Path) -> None:
    """Count from the last checkpoint to `steps` and publish the log of all starts and checkpoints."""
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda got, _: received.append(got))
    start = int((folder / "step").read_text()) if (folder / "step").exists() else 0
    report(folder, f"starts at {start}")
    for step in range(start + 1, steps + 1):
        time.sleep(0.1)
        if WORLD.allreduce(len(received)):
            save_and_wait(folder, step)
    if WORLD.rank == 0:
        lines = (folder / "log").read_text().splitlines()
        output.write_text(json.dumps({"steps": steps, "log": lines}, indent=1))


def report(folder: Path, event: str) -> None:
    """Append one line with rank, node and event to the log, then wait for all ranks."""
    node = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    with (folder / "log").open("a") as log:
        log.write(f"rank {WORLD.rank} of {WORLD.size} on {node} {event}\n")
    WORLD.barrier()


def save_and_wait(folder: Path, step: int) -> None:
    """Write the checkpoint and wait: Slurm requeues a job that waits; an exit within the grace time is FAILED."""
    if WORLD.rank == 0:
        (folder / "step").write_text(str(step))
    report(folder, f"saved at {step} on signal {received}")
    while True:
        time.sleep(1)


if __name__ == "__main__":
    work = Path(sys.argv[1])
    work.mkdir(parents=True, exist_ok=True)
    main(work, int(sys.argv[2]), Path(sys.argv[3]))
