"""Tables and log of a run, which rank 0 writes."""

from operator import itemgetter

import numpy as np
from torch import from_numpy

from nnlo_lib.checkpoint.rank_file import SavedTables
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.state.training_records import JsonlTable, RunLog, SampleLedger, TableRow, epoch_row
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.task import Task


class Recorder:
    """Writes the history, the metrics by node, the sample ledger, the validations within epochs and the log."""

    def __init__(self, task: Task, comm: Communicator, data: TrainingData) -> None:
        self._comm, self._data, self._epochs = comm, data, task.run.train.epochs
        self._some_rest = task.run.algorithm.some_ranks_rest
        paths = task.paths.state
        self.history, self.nodes = JsonlTable(paths.history), JsonlTable(paths.nodes)
        self._ledger, self.validations = JsonlTable(paths.ledger), JsonlTable(paths.validations)
        self.journal = RunLog(task.state, enabled=comm.rank == 0)
        # By their names in checkpoints.
        self.tables = {
            "history": self.history, "nodes": self.nodes, "ledger": self._ledger, "validations": self.validations,
        }  # fmt: skip
        # Uses of each sample by this rank in the running epoch.
        self.sample_counts = SampleLedger(len(data.split))

    def close_epoch_ledger(self, epoch: int, cut: bool = False) -> None:
        """Record the epoch's sum of each sample's uses and compare it with the plan; all ranks call it.

        If the epoch was `cut` before its last step, or some ranks rested, unused samples do not count as missed.
        """
        cut = cut or self._some_rest
        # Summed as int32: sums of the ranks' uint8 counts could overflow.
        uses = from_numpy(self.sample_counts.counts).int()
        self._comm.allreduce(uses, "telemetry")
        self.sample_counts.clear()
        if self._comm.rank == 0:
            counts, expected = uses.numpy(), self._data.expected(epoch)
            row = epoch_row(epoch + 1, counts, np.minimum(counts, expected) if cut else expected)
            self._ledger.append(row | ({"cut": True} if cut else {}))

    @property
    def validation_rows(self) -> list[TableRow]:
        """All validations in order, at the end of epochs and within them; complete on rank 0 only."""
        ended = [((row["epoch"] - 1, 1), row) for row in self.history.rows]
        # In these rows, `epoch` is the number of completed epochs.
        between = [((row["epoch"], 0), row) for row in self.validations.rows]
        return [row for _, row in sorted(between + ended, key=itemgetter(0))]

    def record_epoch(self, row: TableRow, measured: dict[str, float]) -> None:
        """Write and log the row of an epoch."""
        before = self.history.rows[-1] if self.history.rows else {"seconds": 0.0, "samples": 0}
        pace = (row["samples"] - before["samples"]) / (row["seconds"] - before["seconds"])
        passes = round(row["samples"] / self._data.num_training_samples, 6)
        self.history.append(row | {"passes": passes, "samples_per_second": round(pace, 3)} | measured)
        self._log_metrics(f"epoch {row['epoch']:3d}/{self._epochs}  {pace:,.0f} samples/s", measured)

    def record_validation(self, row: TableRow, measured: dict[str, float]) -> None:
        """Write and log the row of a validation within an epoch."""
        self.validations.append(row | measured)
        self._log_metrics(f"step {row['step']:,}", measured)

    def _log_metrics(self, where: str, measured: dict[str, float]) -> None:
        figures = "  ".join(f"{name} {value:.4g}" for name, value in measured.items())
        self.journal.write(f"{where}  {figures}")

    def restore_tables(self, saved: SavedTables, may_lack_rows: bool = False) -> None:
        """Take each table back to its rows in a checkpoint, on rank 0; warn of rows that its file lacks, unless it may lack them."""
        if self._comm.rank != 0:
            return
        for name, table in self.tables.items():
            rows = saved.get(name, [])
            if (lost := table.restore(rows)) and not may_lack_rows:
                self.journal.warn(
                    f"{table.path} lacked {lost} of {len(rows)} rows, as after a power failure; they were written again from "
                    "the checkpoint"
                )

    def flush_tables(self) -> str:
        """Write all rows to the files of the tables; return the error message, or an empty string."""
        try:
            for table in self.tables.values():
                table.flush()
        except OSError as error:
            return str(error)
        return ""
