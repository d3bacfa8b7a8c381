"""What is written of a run while it goes on, by rank 0."""

from operator import itemgetter

import numpy as np
from torch import from_numpy

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.state import sample_ledger as ledger
from nnlo_lib.state.jsonl_table import JsonlTable, TableRow
from nnlo_lib.state.run_log import RunLog
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.task import Task


class Recorder:
    """The history by epoch and by node, the ledger of samples, and lines for people.

    uses: how often this rank learned from each sample in the running epoch.
    """

    def __init__(self, task: Task, comm: Communicator, data: TrainingData) -> None:
        self._comm, self._data, self._epochs = comm, data, task.run.train.epochs
        paths = task.paths.state
        self.history, self.nodes = JsonlTable(paths.history), JsonlTable(paths.nodes)
        self._ledger, self.validations = JsonlTable(paths.ledger), JsonlTable(paths.validations)
        self.journal = RunLog(task.state, enabled=comm.rank == 0)
        self._tables = {
            "history": self.history, "nodes": self.nodes, "ledger": self._ledger, "validations": self.validations,
        }  # fmt: skip
        self.sample_counts = ledger.SampleLedger(len(data.split))

    def close_epoch_ledger(self, epoch: int, cut: bool = False) -> None:
        """Add up how often each sample was used, and compare with what the epoch should use; all ranks call it.

        cut: the epoch ended before its last step, and its samples are as many as they are.
        """
        uses = from_numpy(self.sample_counts.counts).int()
        self._comm.allreduce(uses, "telemetry")
        self.sample_counts.clear()
        if self._comm.rank == 0:
            counts, expected = uses.numpy(), self._data.expected(epoch)
            row = ledger.epoch_row(epoch + 1, counts, np.minimum(counts, expected) if cut else expected)
            self._ledger.append(row | ({"cut": True} if cut else {}))

    @property
    def validation_rows(self) -> list[TableRow]:
        """Every validation in order, those at the ends of epochs and those between, as rank 0 knows them."""
        ended = [((row["epoch"] - 1, 1), row) for row in self.history.rows]
        between = [((row["epoch"], 0), row) for row in self.validations.rows]  # after so many epochs
        return [row for _, row in sorted(between + ended, key=itemgetter(0))]

    def record_epoch(self, row: TableRow, measured: dict[str, float]) -> None:
        """Write an epoch's row and say it."""
        before = self.history.rows[-1] if self.history.rows else {"seconds": 0.0, "samples": 0}
        pace = (row["samples"] - before["samples"]) / (row["seconds"] - before["seconds"])
        passes = round(row["samples"] / self._data.num_training_samples, 6)
        self.history.append(row | {"passes": passes, "samples_per_second": round(pace, 3)} | measured)
        self._log_metrics(f"epoch {row['epoch']:3d}/{self._epochs}  {pace:,.0f} samples/s", measured)

    def record_validation(self, row: TableRow, measured: dict[str, float]) -> None:
        """Write the row of a validation within an epoch and say it."""
        self.validations.append(row | measured)
        self._log_metrics(f"step {row['step']:,}", measured)

    def _log_metrics(self, where: str, measured: dict[str, float]) -> None:
        figures = "  ".join(f"{name} {value:.4g}" for name, value in measured.items())
        self.journal.write(f"{where}  {figures}")

    def row_counts(self) -> dict[str, int]:
        """Return how many rows each table has."""
        return {name: len(table.rows) for name, table in self._tables.items()}

    def rewind(self, rows: dict[str, int]) -> None:
        """Go back to so many rows."""
        if self._comm.rank == 0:
            for name, table in self._tables.items():
                table.rewind(rows.get(name, 0))

    def flush_tables(self) -> str:
        """Write what a checkpoint relies on; return why the disk refused, if it did."""
        try:
            for table in self._tables.values():
                table.flush()
        except OSError as error:
            return str(error)
        return ""
