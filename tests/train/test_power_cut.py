"""A power cut at any moment of a training loses at most what the last checkpoint did not hold.

Files in `state/` that were not flushed may be empty, short, torn or full of zeros; the next attempt rebuilds them.
"""

import json
import re
import shutil

import pytest
from helpers.algorithm_trainings import STEPS, SYNCHRONOUS, measured
from helpers.algorithm_trainings import task as task_of
from helpers.power_cut import PowerCutRecorder
from helpers.training_here import digits, simulate, training_here
from helpers.training_process import StopAfter

from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest
from nnlo_lib.config import Experiment
from nnlo_lib.state.lease import Lease
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.plan import Plan

SMALL = {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}}


def sample(states, count):
    """Return about `count` states of each kind, evenly spaced in time; all if it is None."""
    if count is None:
        return states
    kinds = {state.kind: [each for each in states if each.kind == state.kind] for state in states}
    steps = {kind: max(1, len(found) // count) for kind, found in kinds.items()}
    return [state for kind, found in kinds.items() for state in found[steps[kind] // 2 :: steps[kind]]]


# Simulated ranks

SETTINGS = {
    "model": SMALL,
    "train": {"epochs": 3, "batch_size": 200, "validate_every": 2},
    "algorithm": {"name": "dsgd"},
    "topology": {"name": "cycle"},
    "parallel": {"ranks": 3, "transport": "simulated"},
    "checkpoint": {"every": "2 steps", "keep": 2},
}


def task(folder):
    run = Plan.of(Experiment.model_validate(SETTINGS)).run("dsgd")
    return Task("t", "job", run, 0, None, 1, digits(), folder)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return an undisturbed training and the states that a power cut leaves."""
    folder = tmp_path_factory.mktemp("recorded")
    job = task(folder / "job")
    with PowerCutRecorder(folder) as recorder:
        simulate(job)
    return job, recorder.states


def newest_step(folder) -> int:
    """Return the step of the newest checkpoint that is complete in a state."""
    found = [CheckpointManifest.read(each).step for each in folder.glob("job/state/checkpoints/[0-9]*")]
    return max(found, default=0)


def resumed_step(job) -> int:
    """Return the step at which the last attempt resumed."""
    text = (job.state / "log.txt").read_text(errors="replace")
    found = re.findall(r"resumed at epoch (\d+), step (\d+)", text)
    return int(found[-1][0]) * 3 + int(found[-1][1]) if found else 0


@pytest.mark.parametrize("count", [4, pytest.param(None, marks=pytest.mark.exhaustive)])
def test_a_training_ends_with_the_undisturbed_bits_and_history(recorded, tmp_path, count):
    whole, states = recorded
    expected, ledger = measured(whole), (whole.state / "ledger.jsonl").read_text()
    for number, state in enumerate(sample(states, count)):
        folder = tmp_path / str(number)
        folder.mkdir()
        state.write(folder)
        job, where = task(folder / "job"), f"{state.kind} at {state.moment} ({state.event})"
        safe = newest_step(folder)
        assert train_simulated(job, StopFlag()), where
        assert measured(job) == expected, where
        assert (job.state / "ledger.jsonl").read_text() == ledger, where
        assert json.loads((job.folder / "summary.json").read_text())["steps"] == 9
        assert resumed_step(job) >= safe, where


# Damaged files in `state/`

CASE = "dsgd"
CALLS = 4 * (STEPS + 2)  # calls of the stop flag by four ranks; the training stops in its second epoch
TABLES = ("history", "ledger", "nodes")
DAMAGES = {
    "empty": lambda content: b"",
    "zeros": lambda content: bytes(len(content)),
    "torn": lambda content: content[: len(content) // 2],
    "zeros at the end": lambda content: content[: len(content) // 2] + bytes(100),
    "not text": lambda content: b"\xff\xfe" + content[2:],
    "other row": lambda content: content.replace(b'"epoch": 1', b'"epoch": 7'),
    "missing": None,
}


def damage(path, name):
    if DAMAGES[name] is None:
        path.unlink()
    else:
        path.write_bytes(DAMAGES[name](path.read_bytes()))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with an undisturbed training, and one that stopped in its second epoch."""
    folder = tmp_path_factory.mktemp("place")
    simulate(at(folder / "whole"))
    assert not train_simulated(at(folder / "stopped"), StopAfter(CALLS))
    return folder


def at(folder):
    return task_of(folder, digits(), CASE, SYNCHRONOUS[CASE])


@pytest.fixture
def stopped(place, tmp_path):
    """Return a copy of the stopped training beside it: the fingerprint contains the path of the network's module."""
    copy = at(place / tmp_path.name)
    shutil.copytree(place / "stopped", copy.folder)
    return copy


def finished_log(job, place):
    """Resume a training; assert that it ends as the undisturbed one; return its log."""
    simulate(job)
    assert measured(job) == measured(at(place / "whole"))
    ledgers = [(folder / "state/ledger.jsonl").read_text() for folder in (job.folder, place / "whole")]
    assert ledgers[0] == ledgers[1]
    return (job.state / "log.txt").read_text(errors="replace")


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_tables_are_written_again_from_the_checkpoint(place, stopped, name):
    for table in TABLES:
        damage(stopped.state / f"{table}.jsonl", name)
    log = finished_log(stopped, place)
    assert all(f"{table}.jsonl" in log for table in TABLES)


def test_an_intact_table_is_not_mentioned(place, stopped):
    # The training was killed after its checkpoint: the rows behind the checkpoint are trained again.
    with (stopped.state / "history.jsonl").open("a") as file:
        file.write('{"epoch": 2}\n')
    assert "jsonl" not in finished_log(stopped, place)


def test_a_checkpoint_whose_tables_are_damaged_is_skipped(place, stopped):
    [checkpoint] = (stopped.state / "checkpoints").iterdir()
    (checkpoint / "tables.json").write_bytes(bytes(100))
    assert "damaged: tables.json" in finished_log(stopped, place)


def test_a_log_that_is_no_text_does_not_end_a_training(place, stopped):
    with (stopped.state / "log.txt").open("ab") as file:
        file.write(b"\xff\xfe\x00\n")
    finished_log(stopped, place)
    assert (stopped.folder / "log.txt").read_bytes() == (stopped.state / "log.txt").read_bytes()


@pytest.mark.parametrize("name", ["99999999", "00000099"])
def test_an_empty_checkpoint_folder_does_not_stop_checkpoints(place, stopped, name):
    (stopped.state / "checkpoints" / name).mkdir()
    assert not train_simulated(stopped, StopAfter(0))
    assert "could not be written" not in finished_log(stopped, place)
    assert json.loads((stopped.folder / "summary.json").read_text())["restarts"] == 2


FLUSHED = ("checkpoints", "code", "input_files.json")  # on the disk before the first step


@pytest.mark.parametrize("name", ["empty", "zeros"])
def test_the_next_attempt_resumes_if_no_file_of_the_state_was_flushed(tmp_path, monkeypatch, name):
    monkeypatch.setattr(
        Lease.__init__, "__defaults__", (5.0, 0.1)
    )  # seconds to wait for a heartbeat of the owner
    settings = {"model": SMALL, "train": {"epochs": 3, "batch_size": 100}}
    run, whole = (training_here(tmp_path / each, **settings) for each in ("run", "whole"))
    run.finish(expect=75, calls=32)
    state = run.job / "state"
    # An attempt that is under way has these files, too.
    for left in ("lease.json", "step", "ranks/0"):
        (state / left).parent.mkdir(exist_ok=True)
        (state / left).write_text("0" * 100)
    files = {str(path.relative_to(state)): path for path in state.rglob("*") if path.is_file()}
    damaged = {key: path for key, path in files.items() if key.partition("/")[0] not in FLUSHED}
    assert {
        "attempts.jsonl",
        "history.jsonl",
        "lease.json",
        "ledger.jsonl",
        "log.txt",
        "step",
    } <= damaged.keys()
    for path in damaged.values():
        damage(path, name)
    said = run.finish()
    assert "Traceback" not in said
    assert "resumed at epoch 2" in said
    whole.finish()
    assert (run.weights, run.history) == (whole.weights, whole.history)
