"""TensorBoard event files, read back by a minimal parser of TFRecord files and the messages of tensorboardX."""

import struct
from collections import defaultdict
from pathlib import Path

import pytest
from helpers.observed_training import watched
from helpers.requires import absent
from helpers.training_here import simulate
from helpers.training_process import StopAfter

from nnlo_lib.config.checkpoint import ObserveConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.state.training_records import read_rows
from nnlo_lib.train.history_loggers import TensorBoardFile
from nnlo_lib.train.rank import train_simulated

try:
    from tensorboardX.proto.event_pb2 import Event
except ImportError:
    absent("tensorboardX is not installed")


def records(path: Path) -> list[bytes]:
    """Return the records of a TFRecord file: length, checksum of the length, data, checksum of the data."""
    data, place, found = path.read_bytes(), 0, []
    while place < len(data):
        (size,) = struct.unpack_from("<Q", data, place)
        found.append(data[place + 12 : place + 12 + size])
        place += 16 + size
    return found


def scalars(folder: Path) -> dict[str, list[tuple[int, float, float]]]:
    """Return step, time and value of each scalar."""
    (path,) = folder.glob("tensorboard/events.out.tfevents.*")
    found = defaultdict(list)
    first, *events = map(Event.FromString, records(path))
    assert first.file_version == "brain.Event:2"
    for event in events:
        for value in event.summary.value:
            found[value.tag].append((event.step, event.wall_time, value.simple_value))
    return found


def history(task) -> list[dict]:
    return read_rows(task.paths.state.history)


def check(task) -> None:
    """Assert that the event file contains each row of the history once, in order, in single precision."""
    found, rows = scalars(task.folder), history(task)
    for tag, column in {
        "train/loss": "train_loss", "val/loss": "val_loss", "val/accuracy": "val_accuracy",
        "learning_rate": "learning_rate",
    }.items():  # fmt: skip
        assert [step for step, _, _ in found[tag]] == [row["step"] for row in rows]
        assert [value for *_, value in found[tag]] == pytest.approx([row[column] for row in rows], rel=1e-6)
    times = [time for _, time, _ in found["val/loss"]]
    lasted = [row["seconds"] - rows[0]["seconds"] for row in rows]
    assert [time - times[0] for time in times] == pytest.approx(lasted, abs=1e-3)
    assert not {"epoch", "step", "samples", "seconds"} & found.keys()


def test_the_history_is_in_the_event_file(tmp_path, small_store):
    task = simulate(watched(tmp_path, small_store, {"tensorboard": True}, ranks=2))
    check(task)


def test_a_resumed_run_writes_no_row_twice(tmp_path, small_store):
    task = watched(
        tmp_path, small_store, {"tensorboard": True}, train={"epochs": 6}, checkpoint={"every": "4 epochs"}
    )
    stops = 0
    while not train_simulated(task, StopAfter(25)):
        stops += 1
    assert stops > 1
    check(task)


def test_rows_after_the_checkpoint_are_written_anew(tmp_path, small_store):
    task = watched(tmp_path / "job", small_store, {})
    rows = [{"step": 10 * n, "seconds": float(n), "val_loss": 1.0 / n} for n in range(1, 5)]
    board = TensorBoardFile(task)
    board.rewrite([])
    for row in rows:
        board.add(row)
    del board  # as if the process was killed
    board = TensorBoardFile(task)
    board.rewrite(rows[:2])
    board.add(rows[2] | {"val_loss": 9.0})
    board.close()
    found = [(step, value) for step, _, value in scalars(task.folder)["val/loss"]]
    assert found == [(10, 1.0), (20, 0.5), (30, 9.0)]


def test_without_tensorboardx_the_experiment_is_refused_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_text("name: t\nobserve:\n  tensorboard: true\n")
    load_experiment("t.yaml")
    monkeypatch.setattr("nnlo_lib.config.checkpoint.find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"t.yaml:3: observe.tensorboard: .*pip install 'nnlo\[tensorboard\]'"
    ):
        load_experiment("t.yaml")
    assert not ObserveConfig().missing_packages
