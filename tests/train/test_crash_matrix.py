"""Every algorithm, killed or told to stop at every place that it reaches, ends as if nothing had been."""

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
ACTIONS = {"kill": -SIGKILL, "term": EXIT_PREEMPTED}  # and the exit status after it
SAMPLES = 721  # of an epoch
STRIDE = 3  # the next fault strikes within this part of a run, so that early, middle and late places are hit
QUICK = {"allreduce", "downpour"}
EVERYWHERE = {
    "checkpoint.begin", "checkpoint.written", "checkpoint.complete", "checkpoint.unnamed", "checkpoint.published",
    "training.resumed", "training.step", "training.pause", "training.evaluate", "training.epoch", "training.finish",
    "exchange.gather",
}  # fmt: skip


def cases(settings):
    """Return the cases' names, of which all but the quick ones are left to make test-slow."""
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in settings]


@pytest.fixture(scope="module")
def ranks():
    """Return what starts simulated ranks."""
    with forge() as started:
        yield started


def job(folder, manifest, case, settings, **simulation):
    """Return a training of a case that is saved every other step."""
    made = task(folder, manifest, case, settings, **simulation)
    every = made.run.checkpoint.model_copy(update={"every": "2 steps"})
    return replace(made, run=made.run.model_copy(update={"checkpoint": every}))


def matrix(found, seed):
    """Return a fault for each place and action, in random order."""
    cells = [(place, action) for place in found for action in ACTIONS]
    draw = random.Random(seed)
    draw.shuffle(cells)
    return [
        InjectedFault(number, place, 0, 1 + draw.randrange(-(-found[place] // STRIDE)), action)
        for number, (place, action) in enumerate(cells)
    ]


def suffer(ranks, fresh, faults):
    """Let one fault after another strike; yield each training that came to its end, whenever one does."""
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
    """Return what makes the same training in one folder after the other."""
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
