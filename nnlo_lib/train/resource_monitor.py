"""CPU, memory and GPU usage of a rank and its host: the thread that records it, and the merged table of all ranks."""

import csv
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
import torch

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.train.callback import Callback

FIGURES = (
    "cpu_percent", "memory_bytes", "host_cpu_percent", "host_memory_bytes", "gpu_percent", "gpu_memory_bytes",
)  # fmt: skip
COLUMNS = ("seconds", "rank", "host", *FIGURES)


class ResourceMonitor(Callback):
    """Appends a row every `seconds` to the rank's file in `folder`, in a thread, from the start of a run to its end.

    The column cpu_percent is the sum over the threads of the process, where 100 is one core; host_cpu_percent
    is a percentage of all cores.
    """

    def __init__(self, folder: Path, rank: int, device: str, seconds: float) -> None:
        self._thread = Thread(target=self._record, name="monitor", daemon=True)
        self._path, self._seconds = folder / f"monitor-{rank:05d}.csv", seconds
        self._origin = (rank, socket.gethostname())
        self._device = torch.device(device) if device.startswith("cuda") else None
        self._process, self._over = psutil.Process(), Event()

    def begin(self, part: str) -> None:
        if part == "run":
            self._thread.start()

    def close(self) -> None:
        """Write a last row and end the thread, if it has started."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _record(self) -> None:
        # psutil measures the percentage since the previous call, so the first calls start the measurement.
        self._process.cpu_percent()
        psutil.cpu_percent()
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        while not self._over.wait(self._seconds):
            self._write_row()
        self._write_row()

    def _write_row(self) -> None:
        own, host = self._process.cpu_percent(), psutil.cpu_percent()
        memory = psutil.virtual_memory()
        row = [round(time.time(), 3), *self._origin, own, self._process.memory_info().rss, host]
        row += [memory.total - memory.available, *(_gpu(self._device) if self._device else ["", ""])]
        # Opened for each row: a full disk or a removed folder costs rows, not the training.
        with suppress(OSError), self._path.open("a", newline="") as file:
            csv.writer(file).writerow(row)


def _gpu(device: torch.device) -> list[Any]:
    """Return the GPU's utilization in percent (empty string without NVML) and used memory in bytes."""
    free, total = torch.cuda.mem_get_info(device)
    try:
        return [torch.cuda.utilization(device), total - free]
    except Exception:  # nvidia-ml-py (the NVML binding) or the library of the driver is missing
        return ["", total - free]


def merge_monitor_files(folder: Path, output: Path) -> None:
    """Write the rows of all ranks as one table, sorted by time; `seconds` is 0 in the first row."""
    rows = sorted(row for path in folder.glob("monitor-*.csv") for row in _rows(path))
    with atomic_write(output) as part, part.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows([round(row[0] - rows[0][0], 3), *row[1:]] for row in rows)


def _rows(path: Path) -> Iterable[list[Any]]:
    """Yield [seconds, rank, other columns]; skip rows that a crash or a full disk truncated."""
    with path.open(newline="") as file:
        for row in csv.reader(file):
            if len(row) == len(COLUMNS):
                with suppress(ValueError):
                    yield [float(row[0]), int(row[1]), *row[2:]]


def mean_and_max(output: Path) -> dict[str, dict[str, float]]:
    """Return mean and maximum of each figure in the merged table, over all ranks and times."""
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    # GPU columns are empty on ranks without GPU.
    known = {name: [float(row[name]) for row in rows if row[name]] for name in FIGURES}
    return {
        name: {"mean": round(sum(values) / len(values), 3), "max": max(values)}
        for name, values in known.items()
        if values
    }
