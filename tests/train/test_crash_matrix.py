"""Every algorithm resumes correctly after a kill or a stop signal at each of its failpoints.

The ranks are simulated. Synchronous trainings end bit-identical to an undisturbed run; asynchronous ones lose no sample.
"""

import json
import random
from dataclasses import replace
from signal import SIGKILL

import pytest
from helpers.algorithm_trainings import ASYNCHRONOUS, SYNCHRONOUS, UNEQUAL, manifest, rows, task
from helpers.fault_trainings import forge, said

from nnlo_lib.reliability.chaos.bitwise_comparison import find_differences
from nnlo_lib.state.outcome import EXIT_PREEMPTED
from nnlo_lib.train.fault_injection import InjectedFault, injected_faults

pytestmark = pytest.mark.processes

__all__ = ["manifest"]
ACTIONS = {"kill": -SIGKILL, "term": EXIT_PREEMPTED}  # action of a fault: expected exit status
SAMPLES = 721  # samples per epoch
# a fault occurs within this part (1 / STRIDE) of a run, so that faults hit early, middle and late failpoints
STRIDE = 3
QUICK = {"allreduce", "downpour"}
EVERYWHERE = {
    "checkpoint.begin", "checkpoint.written", "checkpoint.complete", "checkpoint.unnamed", "checkpoint.published",
    "training.resumed", "training.step", "training.pause", "training.evaluate", "training.epoch", "training.finish",
    "exchange.gather",
}  # fmt: skip


def cases(settings):
    """Return the names of the cases; mark all except the quick ones as slow, and variants as nightly.

    Variants such as `easgd, masters` are disturbed on real ranks by test_crashed_ranks.py.
    """
    marks = {name: pytest.mark.nightly if ", " in name else pytest.mark.slow for name in settings}
    return [name if name in QUICK else pytest.param(name, marks=marks[name]) for name in settings]


@pytest.fixture(scope="module")
def ranks():
    """Return the process that forks trainings with simulated ranks."""
    with forge() as started:
        yield started


def job(folder, manifest, case, settings, **simulation):
    """Return the task of a case that saves a checkpoint every 2 steps."""
    made = task(folder, manifest, case, settings, **simulation)
    every = made.run.checkpoint.model_copy(update={"every": "2 steps"})
    return replace(made, run=made.run.model_copy(update={"checkpoint": every}))


def matrix(found, seed):
    """Return a fault for each failpoint and action, in random order.

    Args:
        found: how often a run reaches each failpoint.
        seed: seed of the random order.
    """
    cells = [(place, action) for place in found for action in ACTIONS]
    draw = random.Random(seed)
    draw.shuffle(cells)
    return [
        InjectedFault(number, place, 0, 1 + draw.randrange(-(-found[place] // STRIDE)), action)
        for number, (place, action) in enumerate(cells)
    ]


def suffer(ranks, fresh, faults):
    """Inject the faults one after another; yield each training that finishes.

    Args:
        ranks: process that forks the attempts.
        fresh: function that returns a new training.
        faults: faults to inject, one per attempt.
    """
    training = fresh()
    for fault in faults:
        status = ranks.attempt(training, fault)
        if fault.number not in injected_faults(training.folder):
            assert status == 0, said(training)
            yield training
            training = fresh()
            status = ranks.attempt(training, fault)
        assert fault.number in injected_faults(training.folder), f"{fault}: {said(training)}"
        expected = {ACTIONS[fault.action], 0} if fault.action == "term" else {ACTIONS[fault.action]}
        assert status in expected, f"{fault}: {said(training)}"
    assert ranks.attempt(training) == 0, said(training)
    yield training


def trainings(tmp_path, *given, **simulation):
    """Return a function that creates the same training in a new folder per call."""
    return lambda: job(tmp_path / f"disturbed-{len(list(tmp_path.iterdir()))}", *given, **simulation)


def check_uses(training):
    """Assert that each epoch used each sample exactly once."""
    ledger = [json.loads(line) for line in (training.state / "ledger.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in ledger] == [*range(1, training.run.train.epochs + 1)]
    assert {(row["samples"], row["missed"], row["repeated"]) for row in ledger} == {(SAMPLES, 0, 0)}


@pytest.mark.parametrize("case", cases(SYNCHRONOUS))
def test_a_synchronous_training_comes_back_bit_for_bit(tmp_path, manifest, ranks, case):
    whole = job(tmp_path / "whole", manifest, case, SYNCHRONOUS[case])
    found = ranks.record(whole)
    assert found.keys() >= EVERYWHERE
    for ended in suffer(ranks, trainings(tmp_path, manifest, case, SYNCHRONOUS[case]), matrix(found, case)):
        assert find_differences(ended.folder, whole.folder) == []
        check_uses(ended)


@pytest.mark.parametrize("case", cases(ASYNCHRONOUS))
def test_an_asynchronous_training_comes_back_without_loss(tmp_path, manifest, ranks, case):
    given = (manifest, case, ASYNCHRONOUS[case])
    found = ranks.record(job(tmp_path / "whole", *given, **UNEQUAL))
    assert found.keys() >= EVERYWHERE
    for ended in suffer(ranks, trainings(tmp_path, *given, **UNEQUAL), matrix(found, case)):
        assert rows(ended)[-1]["invariant"] < 1e-5
        check_uses(ended)
