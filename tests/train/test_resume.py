"""A training that was stopped or killed at any moment resumes: a synchronous one to the same bits, others without loss.

The ranks are simulated in this process. A killed process leaves the files that are on the disk at this moment, so each
resume starts from a copy of the files of one undisturbed training. test_killed_ranks.py kills real processes.
"""

import json
import os
import random
from collections import Counter
from dataclasses import replace
from threading import Lock
from unittest.mock import patch

import pytest
from helpers.algorithm_trainings import (
    ASYNCHRONOUS,
    CALLS,
    EPOCHS,
    ROUNDS,
    SIMULATED_ASYNCHRONOUS,
    STEPS,
    SYNCHRONOUS,
    UNEQUAL,
    first_steps,
    interrupt,
    measured,
    rows,
    task,
)
from helpers.chaos_report import find_differences
from helpers.power_cut import CrashState, Disk
from helpers.training_here import simulate
from helpers.training_process import StopAfter
from safetensors.torch import load_file

from nnlo_lib.config import Run
from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.config.checkpoint import CheckpointConfig
from nnlo_lib.core import failpoints
from nnlo_lib.reliability.reproduce import check_reproducibility
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.train import training_state
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag

MOMENTS = (
    "checkpoint.begin", "checkpoint.written", "checkpoint.complete", "checkpoint.unnamed", "checkpoint.published",
    "training.resumed", "training.step", "training.pause", "training.evaluate", "training.epoch", "training.finish",
    "exchange.gather",
)  # fmt: skip
STOP = "stop"  # within the first epoch and within a round
CASES = SYNCHRONOUS | {f"asynchronous {case}": settings for case, settings in ASYNCHRONOUS.items()}
OPTIMIZERS = (
    "sgd",
    "adam",
    "adamw",
    "nadam",
    "adamax",
    "rmsprop",
    "adadelta",
    "adagrad",
    "lars",
    "lamb",
    "muon",
    "lion",
)
BATCHED = ("average", "asynchronous gosgd")  # of these also with gradients of all ranks at once


@pytest.fixture(autouse=True)
def _small_common_tensors(monkeypatch):
    """Let rank 0 alone write tensors of any size that all ranks have."""
    monkeypatch.setattr(training_state, "MIN_COMMON_BYTES", 1)


def cells(cases):
    """Return (case, moment): each case with one moment of a kill, those with rounds with a stop; others are exhaustive."""
    found = []
    for number, case in enumerate(CASES):
        for place, moment in enumerate((*MOMENTS, STOP)):
            usual = place == number % len(MOMENTS) or (moment == STOP and case in ROUNDS)
            marks = () if usual and case in cases else pytest.mark.exhaustive
            found.append(pytest.param(case, moment, marks=marks))
    return found


def job(folder, manifest, case, compute):
    """Return the task of a case that saves every 2 steps; cases differ in their optimizers."""
    rule = {"name": OPTIMIZERS[list(CASES).index(case) % len(OPTIMIZERS)], "lr": 0.002}
    settings = CASES[case] | {"train": {"optimizer": rule} | CASES[case].get("train", {})}
    settings |= {"checkpoint": {"every": "2 steps"}}
    simulation = {"compute": compute} | (UNEQUAL if case.startswith("asynchronous") else {})
    return task(folder, manifest, case.removeprefix("asynchronous "), settings, **simulation)


class Snapshots:
    """Failpoint handler that keeps the files of a training at one occurrence of each moment."""

    def __init__(self, folder, case):
        draw = random.Random(case)
        self._wanted = {moment: draw.randint(1, 6) for moment in MOMENTS}
        self._folder, self._count, self._lock = folder, Counter(), Lock()
        self.files = {}

    def __call__(self, moment):
        # Threads that write checkpoints pass failpoints, too.
        with self._lock:
            self._count[moment] += 1
            if self._count[moment] <= self._wanted.get(moment, 0):
                disk = Disk.read(self._folder)
                self.files[moment] = disk.files(disk.contents)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, manifest):
    """Return a function that trains a case once; its result is the task and the files at each moment."""
    trained = {}

    def whole(case, compute="exact"):
        if (case, compute) not in trained:
            made = job(tmp_path_factory.mktemp("whole") / "job", manifest, case, compute)
            snapshots = Snapshots(made.folder, case)
            with patch.object(failpoints, "_handlers", [snapshots]):
                simulate(made)
            assert snapshots.files.keys() == set(MOMENTS)
            trained[case, compute] = made, snapshots.files
        return trained[case, compute]

    return whole


def killed(whole, files, name):
    """Return the task of a training with the files that a kill has left, beside the undisturbed one."""
    folder = whole.folder.with_name(name)
    folder.mkdir()
    CrashState(0, name, "killed", files).write(folder)
    return replace(whole, folder=folder)


def resumed(whole, files, moment, case):
    """Stop or kill a training, stop it again if steps are left, resume it and return it."""
    if moment == STOP:
        # Saves only where it stops; the interval of checkpoints changes no result.
        run = whole.run.model_copy(update={"checkpoint": CheckpointConfig()})
        ended = replace(whole, folder=whole.folder.with_name(STOP), run=run)
        assert not train_simulated(ended, StopAfter(CALLS))
        steps, name = first_steps(ended), case.partition(",")[0]
        assert any(0 < step < STEPS for step in steps)
        assert name not in ROUNDS or all(step % ROUNDS[name] for step in steps)
    else:
        ended = killed(whole, files[moment], moment)
    assert train_simulated(ended, StopAfter(CALLS)) or train_simulated(ended, StopFlag())
    return ended


def check(ended, whole, case):
    """Assert that the bits are those of the undisturbed training, and that each epoch used each sample once."""
    if case.startswith("asynchronous"):
        assert rows(ended)[-1]["invariant"] < 1e-5
    else:
        assert find_differences(ended.folder, whole.folder) == []
    ledger = [json.loads(line) for line in (ended.state / "ledger.jsonl").read_text().splitlines()]
    used = 361 if "clients" in case else 721  # in each round, two of four clients rest
    assert [(row["epoch"], row["samples"], row["missed"], row["repeated"]) for row in ledger] == [
        (1, used, 0, 0), (2, used, 0, 0),
    ]  # fmt: skip
    assert [row["samples"] for row in rows(ended)] == [used, 2 * used]


def test_no_algorithm_is_left_out():
    assert {case.partition(",")[0] for case in (*SYNCHRONOUS, *ASYNCHRONOUS)} == set(ALGORITHMS)


@pytest.mark.parametrize(("case", "moment"), cells(CASES))
def test_a_synchronous_training_resumes_to_the_same_bits(undisturbed, case, moment):
    """Asynchronous ones, which have other messages after a resume, lose no sample and keep their invariant."""
    whole, files = undisturbed(case)
    check(resumed(whole, files, moment, case), whole, case)


@pytest.mark.parametrize(("case", "moment"), cells(BATCHED))
def test_a_training_with_batched_gradients_resumes(undisturbed, case, moment):
    whole, files = undisturbed(case, "batched")
    check(resumed(whole, files, moment, case), whole, case)


def test_the_training_after_a_damaged_checkpoint_has_the_same_bits(undisturbed):
    """test_checkpointer.py has each kind of damage."""
    whole, files = undisturbed("allreduce")
    ended = killed(whole, files["training.finish"], "damaged")
    *_, newest = sorted((ended.state / "checkpoints").glob("[0-9]*"))
    os.truncate(newest / "rank-0.safetensors", 100)
    simulate(ended)
    check(ended, whole, "allreduce")
    assert "is skipped" in (ended.state / "log.txt").read_text()


MACHINES = {
    "unequal": {"speeds": {1: 0.6, 2: 1.7}, "jitter": 0.3},
    "stragglers": {"stragglers": {"ranks": [1, 2], "slowdown": 3, "probability": 0.5}},
    "losses": {"loss": 0.2, "retransmit": 0.003},
    "failures": {"failures": [{"rank": 2, "at": 0.025, "seconds": 0.004}], "mtbf": 0.02, "repair": 0.003},
    "batched": {"compute": "batched", "speeds": {1: 0.6, 2: 1.7}, "jitter": 0.3},
}


def trained(folder, manifest, case, machine, **checkpoint):
    """Return the task of a case, trained to its end."""
    job = task(
        folder, manifest, case, SIMULATED_ASYNCHRONOUS[case] | {"checkpoint": checkpoint}, **MACHINES[machine]
    )
    simulate(job)
    return job


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if number % 3 == 0 else pytest.mark.exhaustive)
        for number, case in enumerate(SIMULATED_ASYNCHRONOUS)
    ],
)
def test_the_interval_of_checkpoints_changes_no_bit(tmp_path, manifest, case):
    often, never = (
        trained(tmp_path / every.replace(" ", ""), manifest, case, "unequal", every=every)
        for every in ("2 steps", "99 h")
    )
    assert often.run.hash == never.run.hash
    assert measured(often) == measured(never)


@pytest.mark.parametrize(
    ("case", "machine"),
    [
        pytest.param(case, machine, marks=() if (number + place) % 5 == 0 else pytest.mark.exhaustive)
        for number, case in enumerate(SIMULATED_ASYNCHRONOUS)
        for place, machine in enumerate(MACHINES)
    ],
)
def test_a_training_resumed_after_an_epoch_has_the_same_bits(tmp_path, manifest, case, machine):
    whole = trained(tmp_path / "whole", manifest, case, machine)
    parts = task(tmp_path / "parts", manifest, case, SIMULATED_ASYNCHRONOUS[case], **MACHINES[machine])
    for epochs in range(1, EPOCHS + 1):
        simulate(replace(parts, until=epochs))
    for ours, reference in zip(measured(parts), measured(whole), strict=True):
        assert ours == reference


OWN = """
from nnlo_lib import Algorithm, Capabilities

class Own(Algorithm):
    capabilities = Capabilities(asynchronous={asynchronous})
    replicas_differ = True

    def on_gradient(self, replica, share):
        pass

    def before_evaluation(self, replica):
        pass
"""


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_stop_within_an_epoch_of_an_own_algorithm_is_judged_by_its_capabilities(
    tmp_path, manifest, asynchronous
):
    (tmp_path / "own.py").write_text(OWN.format(asynchronous=asynchronous))
    job = task(tmp_path / "parts", manifest, "average", {})
    settings = job.run.model_dump(mode="json", exclude_unset=True)
    settings |= {"algorithm": {"name": f"{tmp_path / 'own.py'}:Own"}, "topology": {"name": "complete"}}
    job = replace(job, run=Run.model_validate(settings))
    interrupt(job)
    found = " ".join(map(str, check_reproducibility(FinishedRun(job.folder))))
    assert ("stopped and resumed within an epoch" in found) == asynchronous
    assert json.loads((job.folder / "summary.json").read_text())["paused_within_epoch"] == asynchronous
    # A summary of an earlier version says only that the training was resumed; the user's file is not run to know more.
    summary = json.loads((job.folder / "summary.json").read_text())
    del summary["paused_within_epoch"]
    (job.folder / "summary.json").write_text(json.dumps(summary))
    assert "stopped and resumed within an epoch" in " ".join(
        map(str, check_reproducibility(FinishedRun(job.folder)))
    )


@pytest.mark.parametrize("case", ["gem", "adpsgd"])
def test_the_version_of_the_code_changes_no_clock(tmp_path, manifest, case, monkeypatch):
    """The ranks exchange the version; the length of its text moved the clocks, and messages changed places."""
    histories = []
    for number, version in enumerate(("0.2.0", "0.2.0 (0123456789ab+)")):
        monkeypatch.setattr("nnlo_lib.train.resume.code_version", lambda version=version: version)
        job = simulate(task(tmp_path / str(number), manifest, case, SIMULATED_ASYNCHRONOUS[case]))
        histories.append([row["seconds"] for row in rows(job)])
        summaries = json.loads((job.folder / "summary.json").read_text())
        histories[-1].append(summaries["seconds"]["total"])
    assert histories[0] == histories[1]


@pytest.mark.parametrize(
    ("case", "left_out"),
    [
        ("allreduce", {"theta", "optimizer.momentum_buffer", "best.theta"}),
        ("allreduce, sign", {"theta", "optimizer.momentum_buffer", "best.theta"}),
        ("diloco", set()),
    ],
)
def test_ranks_that_add_one_gradient_write_its_parameters_once(tmp_path, manifest, case, left_out):
    """Batch statistics and residuals differ from rank to rank."""
    settings = SYNCHRONOUS[case] | {"train": {"restore_best": "val_loss"}}
    once = task(tmp_path / "once", manifest, case, settings)
    assert not train_simulated(once, StopAfter(CALLS + 4 * STEPS))
    *_, folder = sorted((once.state / "checkpoints").iterdir())
    names = [set(load_file(folder / f"rank-{rank}.safetensors")) for rank in range(4)]
    assert [names[0] - each for each in names] == [set(), left_out, left_out, left_out]
    assert {"buffers", "theta", "best.theta", "best.buffers"} <= names[0]
