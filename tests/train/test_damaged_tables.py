"""After a power cut the tables in `state/` may be empty, short, torn or full of zeros; a resumed training rebuilds them."""

import json
import shutil

import pytest
from helpers.algorithm_trainings import STEPS, SYNCHRONOUS, manifest, measured, task
from helpers.training_process import StopAfter

from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated

__all__ = ["manifest"]
TABLES = ("history", "ledger")
CASE = "dsgd"
CALLS = 4 * (STEPS + 2)  # calls of the stop flag by four ranks; the training stops in its second epoch


def zeros(content: bytes) -> bytes:
    return bytes(len(content))


def torn(content: bytes) -> bytes:
    return content[: len(content) // 2]


def zero_tail(content: bytes) -> bytes:
    return torn(content) + bytes(100)


def not_text(content: bytes) -> bytes:
    return b"\xff\xfe" + content[2:]


def other_row(content: bytes) -> bytes:
    return content.replace(b'"epoch": 1', b'"epoch": 7')


DAMAGES = {
    "empty": lambda content: b"", "zeros": zeros, "torn": torn, "zeros at the end": zero_tail,
    "not text": not_text, "other row": other_row, "missing": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory, manifest):
    """Return an undisturbed training."""
    job = task(tmp_path_factory.mktemp("whole") / "job", manifest, CASE, SYNCHRONOUS[CASE])
    assert train_simulated(job, StopFlag())
    return job


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, manifest):
    """Return a training that stopped in its second epoch."""
    job = task(tmp_path_factory.mktemp("stopped") / "job", manifest, CASE, SYNCHRONOUS[CASE])
    assert not train_simulated(job, StopAfter(CALLS))
    assert len((job.state / "history.jsonl").read_text().splitlines()) == 1
    return job


def copy_of(job, name, manifest):
    """Return a copy of a training beside it, because the fingerprint contains the path of the network's module."""
    copy = task(job.folder.with_name(name), manifest, CASE, SYNCHRONOUS[CASE])
    shutil.copytree(job.folder, copy.folder)
    return copy


def damage(path, change):
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))


def ledger(job):
    return (job.state / "ledger.jsonl").read_text()


@pytest.mark.parametrize("table", [*TABLES, "nodes"])
@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_table_is_written_again_from_the_checkpoint(
    tmp_path, manifest, whole, stopped, table, name
):
    job = copy_of(stopped, tmp_path.name, manifest)
    damage(job.state / f"{table}.jsonl", DAMAGES[name])
    assert train_simulated(job, StopFlag())
    assert measured(job) == measured(whole)
    assert ledger(job) == ledger(whole)
    assert f"{table}.jsonl" in (job.state / "log.txt").read_text()


def test_an_intact_table_is_not_mentioned(tmp_path, manifest, stopped):
    job = copy_of(stopped, tmp_path.name, manifest)
    # The training was killed after its checkpoint: the rows behind the checkpoint are trained again.
    with (job.state / "history.jsonl").open("a") as file:
        file.write('{"epoch": 2}\n')
    assert train_simulated(job, StopFlag())
    assert "jsonl" not in (job.state / "log.txt").read_text()


def test_a_checkpoint_whose_tables_are_damaged_is_skipped(tmp_path, manifest, whole, stopped):
    job = copy_of(stopped, tmp_path.name, manifest)
    [checkpoint] = StatePaths(job.state).checkpoints.iterdir()
    (checkpoint / "tables.json").write_bytes(bytes(100))
    assert train_simulated(job, StopFlag())
    assert measured(job) == measured(whole)
    assert "damaged: tables.json" in (job.state / "log.txt").read_text()


def without_tables(job):
    """Turn the checkpoint of a training into one that an older nnlo wrote, without tables."""
    from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest

    [folder] = StatePaths(job.state).checkpoints.iterdir()
    (folder / "tables.json").unlink()
    found = CheckpointManifest.read(folder)
    del found.sha256["tables.json"]
    found.write(folder)


def test_a_checkpoint_of_an_older_nnlo_uses_the_tables_in_the_folder(tmp_path, manifest, whole, stopped):
    job = copy_of(stopped, tmp_path.name, manifest)
    without_tables(job)
    assert train_simulated(job, StopFlag())
    assert measured(job) == measured(whole)


@pytest.mark.parametrize("name", [name for name in DAMAGES if name != "other row"])
def test_a_damaged_table_without_a_copy_is_refused_in_a_sentence(tmp_path, manifest, stopped, name):
    job = copy_of(stopped, tmp_path.name, manifest)
    without_tables(job)
    damage(job.state / "history.jsonl", DAMAGES[name])
    with pytest.raises(UserError, match=r"history\.jsonl is damaged.* row 1"):
        train_simulated(job, StopFlag())


def test_a_log_that_is_no_text_does_not_end_a_training(tmp_path, manifest, whole, stopped):
    job = copy_of(stopped, tmp_path.name, manifest)
    with (job.state / "log.txt").open("ab") as file:
        file.write(b"\xff\xfe\x00\n")
    assert train_simulated(job, StopFlag())
    assert measured(job) == measured(whole)
    assert (job.folder / "log.txt").read_bytes() == (job.state / "log.txt").read_bytes()


@pytest.mark.parametrize("name", ["99999999", "00000099"])
def test_an_empty_checkpoint_folder_does_not_stop_checkpoints(tmp_path, manifest, whole, stopped, name):
    job = copy_of(stopped, tmp_path.name, manifest)
    (job.state / "checkpoints" / name).mkdir()
    assert not train_simulated(job, StopAfter(0))
    assert train_simulated(job, StopFlag())
    assert measured(job) == measured(whole)
    assert "could not be written" not in (job.state / "log.txt").read_text()
    assert json.loads((job.folder / "summary.json").read_text())["restarts"] == 2
