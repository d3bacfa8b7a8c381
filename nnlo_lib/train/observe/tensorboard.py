"""TensorBoard event file of the history, in <run folder>/tensorboard."""

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nnlo_lib.core.errors import UserError
from nnlo_lib.state.jsonl_table import TableRow
from nnlo_lib.train.callback import Callback
from nnlo_lib.train.evaluation.recorder import Recorder

EVENT_FILE_SUFFIX = ".nnlo"
EXCLUDED_COLUMNS = ("epoch", "step", "samples", "seconds")


class TensorBoardWriter:
    """Writes each row of the history once, at its step.

    Each attempt starts a new file with the rows of the checkpoint from which it resumes. Write errors are
    ignored.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._protocol = folder, _protocol()
        self._file: Any = None
        self._zero = time.time()

    def rewrite(self, rows: Sequence[TableRow]) -> None:
        """Start a new file with `rows`; remove the files of earlier attempts."""
        self.close()
        # Times continue the training seconds of the last row, so that interruptions leave no gap in the
        # curves.
        self._zero = time.time() - (rows[-1]["seconds"] if rows else 0.0)
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            for old in self._folder.glob(f"events.out.tfevents.*{EVENT_FILE_SUFFIX}"):
                # TensorBoard shows the rows of all files in a folder; rows after the checkpoint would appear
                # twice.
                old.unlink()
            self._file = self._protocol.EventsWriter(str(self._folder / "events"), EVENT_FILE_SUFFIX)
        for row in rows:
            self.add(row)

    def add(self, row: TableRow) -> None:
        """Write a row; its time is the start plus the training time, without interruptions."""
        event = self._protocol.Event(wall_time=self._zero + row["seconds"], step=row["step"])
        for name, value in row.items():
            if name not in EXCLUDED_COLUMNS and isinstance(value, int | float):
                event.summary.value.add(tag=_tag(name), simple_value=value)
        with suppress(OSError):
            if self._file is not None:
                self._file.write_event(event)
                self._file.flush()

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        with suppress(OSError):
            if file is not None:
                file.close()


class TensorBoardCallback(Callback):
    """Writes each row of the history and of the validations within epochs to the event file."""

    def __init__(self, writer: TensorBoardWriter, recorder: Recorder) -> None:
        self._writer, self._recorder = writer, recorder

    def on_rows_rewound(self) -> None:
        self._writer.rewrite(self._recorder.validation_rows)

    def on_epoch_recorded(self) -> None:
        self._writer.add(self._recorder.history.rows[-1])

    def on_validation_recorded(self) -> None:
        self._writer.add(self._recorder.validations.rows[-1])

    def close(self) -> None:
        self._writer.close()


class _Protocol:
    """The classes of tensorboardX that write without a background thread."""

    def __init__(self) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event

        self.EventsWriter: Any = EventsWriter
        self.Event: Any = Event


def _protocol() -> _Protocol:
    try:
        return _Protocol()
    except ImportError as error:
        raise UserError(
            "observe.tensorboard: the package tensorboardX is not installed; run `pip install 'nnlo[tensorboard]'`"
        ) from error


def _tag(name: str) -> str:
    """Return a tag grouped by split: train/loss for train_loss."""
    split, _, rest = name.partition("_")
    return f"{split}/{rest}" if split in ("train", "val") else name
